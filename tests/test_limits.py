"""Limits as values: where a cgroup may be made, what holds without one, and what is said of it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher import cgroup, confine, scope
from launcher.cgroup import Mount, Seen, directory, parse_membership, parse_mount, usable
from launcher.guardian import Guardian
from launcher.limits import (
    Enforced,
    Facts,
    Group,
    Kind,
    LimitPlan,
    Measure,
    in_words,
    is_held,
    plan_limits,
    report,
    second_best,
    settings,
)
from launcher.options import Resources

G = 1 << 30
USER = Facts(kernel=(6, 8), is_root=False, processors=(0, 1, 2, 3))
ALL = Resources(memory=4 * G, cpus=2.0, pids=256)
EVERYTHING = frozenset({"memory", "cpu", "pids", "io"})


def test_nothing_asked_is_nothing_planned() -> None:
    facts = USER._replace(groups=(Group("/sys/fs/cgroup", EVERYTHING),))
    assert plan_limits(Resources(timeout=3), facts) == LimitPlan(Resources(timeout=3), facts, None)


def test_the_nearest_group_that_has_everything_is_chosen() -> None:
    near, middle, far = Group("/near", frozenset({"pids"})), Group("/middle", EVERYTHING), Group("/far", EVERYTHING)
    assert plan_limits(ALL, USER._replace(groups=(near, middle, far))).group == middle


def test_a_group_with_a_part_is_better_than_none() -> None:
    part, other = Group("/part", frozenset({"memory"})), Group("/other", frozenset({"io"}))
    assert plan_limits(ALL, USER._replace(groups=(other, part))).group == part
    assert plan_limits(Resources(pids=5), USER._replace(groups=(other, part))).group is None


def test_memory_is_bounded_without_a_way_out_into_swap() -> None:
    assert settings(ALL) == {
        Kind.MEMORY: {"memory.max": "4294967296", "memory.swap.max": "0"},
        Kind.CPUS: {"cpu.max": "200000 100000"},
        Kind.PIDS: {"pids.max": "256"},
    }


def test_a_small_part_of_a_processor_is_what_the_kernel_still_takes() -> None:
    assert settings(Resources(cpus=0.001)) == {Kind.CPUS: {"cpu.max": "1000 100000"}}


@pytest.mark.parametrize(
    ("wanted", "found", "held"),
    [
        ({"pids.max": "256"}, {"pids.max": "256"}, True),
        ({"pids.max": "256"}, {"pids.max": "257"}, False),
        ({"pids.max": "256"}, {"pids.max": "max"}, False),
        ({"pids.max": "256"}, {}, False),
        ({"memory.max": "5000", "memory.swap.max": "0"}, {"memory.max": "4096", "memory.swap.max": "0"}, True),
        ({"memory.max": "5000", "memory.swap.max": "0"}, {"memory.max": "4096", "memory.swap.max": "max"}, False),
        ({"memory.max": "5000", "memory.swap.max": "0"}, {"memory.max": "4096"}, True),
        ({"memory.max": "5000", "memory.swap.max": "0"}, {"memory.swap.max": "0"}, False),
        ({"cpu.max": "1000 100000"}, {"cpu.max": "2000 200000"}, True),
        ({"cpu.max": "1000 100000"}, {"cpu.max": "2000 100000"}, False),
    ],
)
def test_only_what_reads_back_as_strict_is_held(wanted: dict[str, str], found: dict[str, str], held: bool) -> None:
    assert is_held(wanted, found) is held


def test_without_a_cgroup_memory_is_bounded_per_process_and_that_is_said() -> None:
    measure = second_best(Kind.MEMORY, ALL, USER)
    assert (measure.data, measure.applied) == (4 * G, "memory: 4G for each process")
    assert "together" in measure.missing


def test_without_a_cgroup_processors_are_taken_away_in_whole_numbers() -> None:
    assert second_best(Kind.CPUS, Resources(cpus=2.9), USER).processors == (2, 3)
    half = second_best(Kind.CPUS, Resources(cpus=0.5), USER)
    assert (half.processors, half.applied, half.missing) == ((3,), "cpus: 1 of 4", "cpus: 0.5 is not to be had")


def test_more_processors_than_there_are_need_no_bound() -> None:
    assert second_best(Kind.CPUS, Resources(cpus=4), USER) == Measure(applied="cpus: 4, and there are 4")


def test_without_a_cgroup_processes_are_counted_where_the_kernel_counts_them_per_sandbox() -> None:
    assert second_best(Kind.PIDS, ALL, USER) == Measure(processes=256, applied="pids: 256")
    for facts in (USER._replace(is_root=True), USER._replace(kernel=(5, 13))):
        measure = second_best(Kind.PIDS, ALL, facts)
        assert (measure.processes, measure.applied) == (None, "")
        assert measure.missing.startswith("pids: ")


def test_what_holds_and_what_does_not_are_told_apart() -> None:
    assert report(LimitPlan(ALL, USER), [*Kind], {}) == Enforced(
        ("memory: 4G for all processes together", "cpus: 2", "pids: 256")
    )
    told = report(LimitPlan(ALL, USER._replace(is_root=True)), [Kind.CPUS], {})
    assert told.applied == ("cpus: 2", "memory: 4G for each process")
    assert [line.split(":")[0] for line in told.missing] == ["memory", "pids"]


def test_a_second_best_that_failed_is_said_not_to_hold() -> None:
    told = report(LimitPlan(Resources(pids=7), USER), [], {Kind.PIDS: "Operation not permitted"})
    assert told == Enforced((), ("pids: Operation not permitted (no cgroup for it)",))


@pytest.mark.parametrize(("size", "words"), [(4 * G, "4G"), (1536 << 20, "1536M"), (1000, "1000"), (0, "0")])
def test_sizes_are_said_as_they_are_written(size: int, words: str) -> None:
    assert in_words(size) == words


# Where cgroups are.

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
"""


def test_the_tree_is_found_wherever_it_is_mounted() -> None:
    assert parse_mount(HYBRID) == Mount("/sys/fs/cgroup/unified", "/")
    assert parse_mount("1 2 0:3 /a\\040b /mnt/c\\040d rw - cgroup2 none rw") == Mount("/mnt/c d", "/a b")


def test_without_version_2_there_is_no_tree() -> None:
    assert parse_mount("".join(HYBRID.splitlines(keepends=True)[:2])) is None
    assert parse_membership("8:pids:/\n4:memory:/x\n") is None


def test_the_cgroup_of_a_process_is_the_one_of_version_2() -> None:
    assert parse_membership("9:name=systemd:/a\n0::/user.slice/b:c\n") == "/user.slice/b:c"


@pytest.mark.parametrize(
    ("mount", "group", "expected"),
    [
        (Mount("/sys/fs/cgroup", "/"), "/", "/sys/fs/cgroup"),
        (Mount("/sys/fs/cgroup", "/"), "/a/b", "/sys/fs/cgroup/a/b"),
        (Mount("/sys/fs/cgroup", "/a"), "/a/b", "/sys/fs/cgroup/b"),
        (Mount("/sys/fs/cgroup", "/a"), "/a", "/sys/fs/cgroup"),
        (Mount("/sys/fs/cgroup", "/a"), "/ab", None),
        (Mount("/sys/fs/cgroup", "/"), "/../a", None),
    ],
)
def test_a_cgroup_is_seen_below_the_mount_or_not_at_all(mount: Mount, group: str, expected: str | None) -> None:
    assert directory(mount, group) == expected


def test_a_cgroup_is_usable_where_we_may_write_and_have_controllers() -> None:
    has = frozenset({"memory", "pids", "hugetlb"})
    seen = [
        Seen("/not-ours", may_write=False, is_free=False, controllers=has, enabled=has),
        Seen("/busy", may_write=True, is_free=False, controllers=has, enabled=frozenset()),
        Seen("/busy-but-on", may_write=True, is_free=False, controllers=has, enabled=frozenset({"pids"})),
        Seen("/free", may_write=True, is_free=True, controllers=has, enabled=frozenset()),
        Seen("/of-no-use", may_write=True, is_free=True, controllers=frozenset({"hugetlb"}), enabled=frozenset()),
    ]
    assert list(usable(seen)) == [Group("/busy-but-on", frozenset({"pids"})), Group("/free", has)]


def test_this_machine_can_be_looked_at() -> None:
    facts = cgroup.look()
    assert facts.kernel >= (5, 0)
    assert facts.processors


# Acting.


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as running:
        yield running.pid


def test_limits_are_never_raised(process: int) -> None:
    import resource

    resource.prlimit(process, resource.RLIMIT_NPROC, (100, 200))
    plan = plan_limits(Resources(pids=5000), USER)
    assert confine.confine(plan, process).enforced.applied == ("pids: 5000",)
    assert resource.prlimit(process, resource.RLIMIT_NPROC) == (200, 200)


def test_second_bests_are_applied_to_the_process_that_is_named(process: int) -> None:
    import resource

    processors = tuple(sorted(os.sched_getaffinity(0)))
    plan = plan_limits(Resources(512 << 20, 1, 64), USER._replace(processors=processors))
    confined = confine.confine(plan, process)
    confined.release()
    assert resource.prlimit(process, resource.RLIMIT_DATA) == (512 << 20, 512 << 20)
    assert resource.prlimit(process, resource.RLIMIT_NPROC) == (64, 64)
    assert os.sched_getaffinity(process) == {processors[-1]}
    assert confined.enforced.applied[0] == "memory: 512M for each process"


def test_what_cannot_be_done_is_said(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    told = confine.confine(plan_limits(Resources(pids=5), USER), process).enforced
    assert told.applied == ()
    assert told.missing[0].startswith("pids: No such process")


def test_a_manager_that_is_not_there_leaves_the_second_best(process: int, tmp_path: Path) -> None:
    plan = plan_limits(Resources(pids=5000), USER._replace(manager=str(tmp_path / "private")))
    assert confine.confine(plan, process).enforced.applied == ("pids: 5000",)


def test_a_cgroup_that_cannot_be_made_leaves_the_second_best(process: int, tmp_path: Path) -> None:
    gone = Group(str(tmp_path / "gone"), EVERYTHING)
    plan = plan_limits(Resources(pids=5000), USER._replace(groups=(gone,)))
    assert confine.confine(plan, process).enforced.applied == ("pids: 5000",)


def test_no_second_best_is_needed_for_what_a_scope_holds(
    process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(scope, "make", lambda *words: asked.append(words))
    monkeypatch.setattr(cgroup, "of_process", lambda *_: str(tmp_path))
    (tmp_path / "pids.max").write_text("5000\n")
    plan = plan_limits(Resources(pids=5000, memory=G), USER._replace(manager="/m"))
    told = confine.confine(plan, process).enforced
    assert asked == [("/m", process, plan.resources)]
    assert told.applied == ("pids: 5000", "memory: 1G for each process")


# The guardian.

GUARDED = """
import os, sys
from launcher.guardian import Guardian
guardian = Guardian(lambda: open(sys.argv[1], "w").close())
print(guardian.pid, flush=True)
sys.stdin.read()
guardian.dismiss()
"""


def _guarded(mark: Path) -> tuple[subprocess.Popen[str], int]:
    words = [sys.executable, "-c", GUARDED, str(mark)]
    launcher = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout
    return launcher, os.pidfd_open(int(launcher.stdout.readline()))


def _await(guardian: int) -> None:
    assert select.select([guardian], [], [], 10)[0]
    os.close(guardian)


def test_the_guardian_acts_when_the_launcher_is_killed(tmp_path: Path) -> None:
    launcher, guardian = _guarded(tmp_path / "acted")
    with launcher:
        launcher.kill()
    _await(guardian)
    assert (tmp_path / "acted").exists()


def test_the_guardian_outlives_what_ends_a_job(tmp_path: Path) -> None:
    launcher, guardian = _guarded(tmp_path / "acted")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.pidfd_send_signal(guardian, number)
    with launcher:
        launcher.kill()
    _await(guardian)
    assert (tmp_path / "acted").exists()


def test_a_dismissed_guardian_does_nothing(tmp_path: Path) -> None:
    launcher, guardian = _guarded(tmp_path / "acted")
    with launcher:
        pass
    _await(guardian)
    assert not (tmp_path / "acted").exists()


def test_a_guardian_that_was_killed_can_be_dismissed(tmp_path: Path) -> None:
    guardian = Guardian(lambda: None)
    os.kill(guardian.pid, signal.SIGKILL)
    guardian.dismiss()


# Asking systemd.


class Manager:
    """Answers each connection with what it was given for it, once the whole call has come."""

    def __init__(self, path: Path, *answers: bytes, greeting: bytes = b"OK 123\r\n") -> None:
        self.path, self.calls = str(path), []
        self._greeting = greeting
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, args=(answers,))
        self._thread.start()

    def _serve(self, answers: tuple[bytes, ...]) -> None:
        for answer in answers:
            sock, _ = self._listener.accept()
            with sock, sock.makefile("rb") as file:
                self.calls.append(file.readline())
                sock.sendall(self._greeting)
                if self._greeting.startswith(b"OK"):
                    assert file.readline() == b"BEGIN\r\n"
                    head = file.read(16)
                    body, fields = (int.from_bytes(head[at : at + 4], "little") for at in (4, 12))
                    self.calls.append(head + file.read(fields + -fields % 8 + body))
                    sock.sendall(answer)
        self._listener.close()

    def join(self) -> None:
        self._thread.join(10)


def message(kind: int, member: bytes, body: bytes) -> bytes:
    fields = b"\x03\x01s\0" + len(member).to_bytes(4, "little") + member + b"\0"
    head = b"l" + bytes([kind, 0, 1]) + len(body).to_bytes(4, "little") + bytes(4) + len(fields).to_bytes(4, "little")
    return head + fields + bytes(-len(fields) % 8) + body


def text(value: str) -> bytes:
    return len(value).to_bytes(4, "little") + value.encode() + b"\0"


def removed(unit: str, result: str = "done") -> bytes:
    return message(4, b"JobRemoved", text(unit) + text(result))


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(os, "urandom", lambda _: b"\xab\xcd\xef\x01")
    return "egress-77-abcdef01.scope"


def test_a_scope_is_made_when_its_own_job_is_done(tmp_path: Path, unit: str) -> None:
    news = [message(2, b"", text("/job/1")), removed("other.scope"), message(4, b"UnitNew", text(unit)), removed(unit)]
    manager = Manager(tmp_path / "private", b"".join(news))
    scope.make(manager.path, 77, ALL)
    manager.join()
    assert manager.calls[0] == b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n"
    for word in (unit, "StartTransientUnit", "MemoryMax", "MemorySwapMax", "CPUQuotaPerSecUSec", "TasksMax", "PIDs"):
        assert word.encode() in manager.calls[1]


def test_a_process_is_put_into_a_scope_when_the_call_has_returned(tmp_path: Path) -> None:
    manager = Manager(tmp_path / "private", message(4, b"UnitNew", text("u.scope")) + message(2, b"", b""))
    scope.attach(manager.path, "u.scope", 78)
    manager.join()
    body = text("u.scope") + text("") + b"\0" * 3 + (4).to_bytes(4, "little") + (78).to_bytes(4, "little")
    assert manager.calls[1].endswith(body)
    assert b"AttachProcessesToUnit" in manager.calls[1]


def test_an_older_systemd_is_asked_again_without_what_it_does_not_know(tmp_path: Path, unit: str) -> None:
    unknown = message(3, b"", text("Cannot set property OOMPolicy, or unknown property."))
    manager = Manager(tmp_path / "private", unknown, removed(unit))
    scope.make(manager.path, 77, ALL)
    manager.join()
    assert [b"OOMPolicy" in call for call in manager.calls[1::2]] == [True, False]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (message(3, b"", text("Access denied")), "systemd: Access denied"),
        (removed("egress-77-abcdef01.scope", "failed"), "the job of egress-77-abcdef01.scope has failed"),
        (b"", "closed the connection"),
        (b"B" + bytes(15), "expected a D-Bus message"),
        (b"l\x02\0\x01" + b"\xff" * 12, "expected a D-Bus message"),
    ],
)
def test_what_systemd_does_not_do_is_an_error(tmp_path: Path, unit: str, answer: bytes, complaint: str) -> None:
    manager = Manager(tmp_path / "private", answer)
    with pytest.raises(scope.ScopeError, match=complaint):
        scope.make(manager.path, 77, ALL)
    manager.join()


def test_a_systemd_that_does_not_know_us_is_an_error(tmp_path: Path, unit: str) -> None:
    manager = Manager(tmp_path / "private", b"", greeting=b"REJECTED EXTERNAL\r\n")
    with pytest.raises(scope.ScopeError, match="REJECTED"):
        scope.make(manager.path, 77, ALL)
    manager.join()


def test_only_the_limits_that_were_asked_for_are_sent() -> None:
    names = [name for name, _, _ in scope.properties(5, Resources(pids=3))]
    assert names == ["Description", "CollectMode", "PIDs", "TasksMax"]


def test_a_call_is_laid_out_as_dbus_has_it() -> None:
    made = scope.call("u", [("A", "t", 7), ("B", "s", "x"), ("C", "au", 9)])
    start = 16 + int.from_bytes(made[12:16], "little")
    body = made[start + -start % 8 :]
    assert int.from_bytes(made[4:8], "little") == len(body)
    properties = (
        # every struct and every 64-bit number at a multiple of eight
        b"\1\0\0\0A\0\1t\0" + bytes(7) + b"\7" + bytes(7)
        + b"\1\0\0\0B\0\1s\0" + bytes(3) + b"\1\0\0\0x\0" + bytes(6)
        + b"\1\0\0\0C\0\2au\0" + bytes(2) + b"\4\0\0\0\x09\0\0\0"
    )  # fmt: skip
    assert body[:17] == b"\1\0\0\0u\0\0\0\4\0\0\0fail\0"
    assert body[20:24] == len(properties).to_bytes(4, "little")
    assert body[24 : 24 + len(properties)] == properties
    assert body[24 + len(properties) :] == bytes(4)  # no further units: a length, and after it a multiple of eight
    assert len(body) % 8 == 0
