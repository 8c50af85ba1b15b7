"""Limits in real sandboxes, as root and as an ordinary user, by whatever this machine has for them.

What is said to hold must hold, and what does not hold must be said: so each test first tries, and then
compares with the words. Cgroups of our own making are tried on the machine's real tree with any controller
that it has there, and scopes with a real systemd.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from launcher import cgroup
from launcher.limits import CONTROLLERS, Group, Kind

pytestmark = pytest.mark.scenario

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"  # every user can run this one
IS_ROOT = os.geteuid() == 0
PEOPLE = ["root", "ordinary"] if IS_ROOT else ["ordinary"]
NOBODY = 47114  # has no name, no files and no other processes
M = 1 << 20

BOMB = """
import os
gate, children = os.pipe(), 0
try:
    while children < 150:
        if os.fork() == 0:
            os.close(gate[1])
            os.read(gate[0], 1)
            os._exit(0)
        children += 1
except BlockingIOError:
    pass
print(children)
"""
CROWD = """
import os, sys
for _ in range(120):
    if os.fork() == 0:
        break
else:
    os.write(1, b"x")
sys.stdin.read()
"""
HOG = """
held = []
while len(held) < 512:
    held.append(b"x" * (1 << 20))
print("has it")
"""
HERD = """
import os
pids = []
for _ in range(8):
    pids.append(os.fork())
    if pids[-1] == 0:
        held = b"x" * (64 << 20)
        os.kill(os.getpid(), 19)
        os._exit(0)
ended = [os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]) for pid in pids]
print(sum(ended) * 64)
[os.kill(pid, 9) for pid in pids]
"""
BUSY = """
import os, time
start, pids = time.monotonic(), []
for _ in range(4):
    pids.append(os.fork())
    if pids[-1] == 0:
        while time.monotonic() - start < 0.6:
            pass
        os._exit(0)
for pid in pids:
    os.waitpid(pid, 0)
used = os.times()
print((used.children_user + used.children_system) / (time.monotonic() - start))
"""


class Person(NamedTuple):
    kind: str
    code: Path

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        as_them = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if IS_ROOT and self.kind != "root" else {}
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin", "PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen(words, env=environment, cwd="/", stdin=-1, stdout=-1, **as_them)

    def tell(self, *command: str, **resources: float) -> dict[str, Any]:
        request = json.dumps({"resources": resources, "command": command})
        with self.start(PYTHON, str(self.code / "limitskit.py"), request) as running:
            return json.loads(running.stdout.read())


@pytest.fixture(scope="module")
def code() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    for package in ("egress", "launcher"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "limitskit.py", folder)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=PEOPLE)
def person(request: pytest.FixtureRequest, code: Path) -> Person:
    return Person(request.param, code)


def test_a_fork_bomb_is_held_or_it_is_said_that_it_is_not(person: Person) -> None:
    told = person.tell(PYTHON, "-c", BOMB, pids=50)
    is_held = told["applied"] == ["pids: 50"]
    assert (int(told["output"]) < 50) is is_held
    assert bool(told["missing"]) is not is_held


def test_processes_outside_do_not_count(person: Person) -> None:
    with person.start(PYTHON, "-c", CROWD) as crowd:
        assert crowd.stdout.read(1) == b"x"
        told = person.tell(PYTHON, "-c", BOMB, pids=100)
        crowd.kill()
    assert int(told["output"]) > 90


def test_a_hog_does_not_get_what_it_wants(person: Person) -> None:
    told = person.tell(PYTHON, "-c", HOG, memory=128 * M)
    assert told["status"] != 0
    assert "has it" not in told["output"]
    assert any(line.startswith("memory: 128M") for line in told["applied"])


def test_a_herd_of_hogs_is_held_or_it_is_said_that_it_is_not(person: Person) -> None:
    told = person.tell(PYTHON, "-c", HERD, memory=256 * M)
    is_held = "memory: 256M for all processes together" in told["applied"]
    assert (int(told["output"]) <= 256) is is_held
    assert any(line.startswith("memory: what all processes use") for line in told["missing"]) is not is_held


@pytest.mark.parametrize(
    "program", [["node", "-e", "console.log(1)"], ["java", "-version"], [PYTHON, "-c", "print(1)"]]
)
def test_programs_that_reserve_much_and_use_little_still_start(person: Person, program: list[str]) -> None:
    told = person.tell(*program, memory=768 * M)
    assert (told["status"], told["output"] != "") == (0, True)


def test_processors_are_bounded(person: Person) -> None:
    told = person.tell(PYTHON, "-c", BUSY, cpus=1)
    assert float(told["output"]) < 1.3  # four that want one each
    assert told["applied"]


def test_without_limits_nothing_is_said_and_nothing_is_done(person: Person) -> None:
    told = person.tell(PYTHON, "-c", BOMB)
    assert (told["applied"], told["missing"], told["output"].strip()) == ([], [], "150")


# A cgroup of our own.

SETTINGS = {"pids": ("pids.max", "64"), "memory": ("memory.max", "67108864"), "hugetlb": ("hugetlb.2MB.max", "4194304")}
TREE = cgroup.mounted()


def _controller() -> str | None:
    if not IS_ROOT or TREE is None:
        return None
    there = (Path(TREE.path) / "cgroup.controllers").read_text().split()
    return next((name for name in SETTINGS if name in there), None)


CONTROLLER = _controller()
needs_tree = pytest.mark.skipif(CONTROLLER is None, reason="needs root and a cgroup of version 2 with a controller")


class Place(NamedTuple):
    """A cgroup of the test's own, in which others can be made."""

    path: Path
    controller: str

    @property
    def group(self) -> Group:
        return Group(str(self.path), frozenset({self.controller}))

    @property
    def settings(self) -> dict[Kind, dict[str, str]]:
        return {Kind.PIDS: dict([SETTINGS[self.controller]])}

    @property
    def children(self) -> list[str]:
        return [path.name for path in self.path.iterdir() if path.is_dir()]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Whatever controller there is stands for that of processes."""
    assert CONTROLLER
    assert TREE
    monkeypatch.setitem(CONTROLLERS, Kind.PIDS, CONTROLLER)
    top = Path(TREE.path) / "cgroup.subtree_control"
    was_on = CONTROLLER in top.read_text().split()
    path = Path(TREE.path) / f"test-of-limits-{os.getpid()}"
    top.write_text(f"+{CONTROLLER}")
    path.mkdir()
    try:
        yield Place(path, CONTROLLER)
    finally:
        for left in sorted(path.rglob("*/"), reverse=True):
            left.rmdir()
        path.rmdir()
        if not was_on:
            top.write_text(f"-{CONTROLLER}")


@needs_tree
def test_a_cgroup_has_its_limits_and_whoever_is_added(place: Place) -> None:
    made = cgroup.Made(place.group, place.settings)
    with subprocess.Popen(["cat"], stdin=-1) as process:
        made.add(process.pid)
        name, value = SETTINGS[place.controller]
        assert cgroup.values(made.path, [name, "no.such.file"]) == {name: value}
        assert cgroup.of_process(process.pid, TREE) == f"{made.path}/room"
        made.remove()
        assert process.wait() == -signal.SIGKILL
    assert place.children == []


@needs_tree
def test_nobody_can_take_the_limits_away_from_above(place: Place) -> None:
    made = cgroup.Made(place.group, place.settings)
    try:
        with pytest.raises(OSError, match="busy"):
            (place.path / "cgroup.subtree_control").write_text(f"-{place.controller}")
    finally:
        made.remove()


@needs_tree
def test_a_cgroup_that_cannot_be_furnished_is_not_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_ROOM", "no/such/parent")
    with pytest.raises(FileNotFoundError):
        cgroup.Made(place.group, place.settings)
    assert place.children == []


KILLED = """
import json, subprocess, sys
from launcher import cgroup
from launcher.limits import CONTROLLERS, Group, Kind
path, controller, settings = json.loads(sys.argv[1])
CONTROLLERS[Kind.PIDS] = controller
made = cgroup.Made(Group(path, frozenset({controller})), {Kind.PIDS: settings})
process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
made.add(process.pid)
print(made.guardian, process.pid, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def launcher(place: Place) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """One that has made a cgroup and put somebody into it; with holds on its guardian and on that process."""
    request = json.dumps([str(place.path), place.controller, place.settings[Kind.PIDS]])
    words = [sys.executable, "-c", KILLED, request]
    with subprocess.Popen(words, cwd=ROOT, stdin=-1, stdout=-1, text=True) as running:
        guardian, inside = map(os.pidfd_open, map(int, running.stdout.readline().split()))
        try:
            yield running, guardian, inside
        finally:
            running.kill()
            os.close(guardian)
            os.close(inside)


@needs_tree
def test_a_killed_launcher_leaves_no_cgroup_and_nobody_in_it(place: Place) -> None:
    with launcher(place) as (running, guardian, inside):
        assert len(place.children) == 1
        running.kill()
        assert select.select([guardian], [], [], 10)[0]
        assert select.select([inside], [], [], 10)[0]
    assert place.children == []


@needs_tree
def test_what_is_left_when_the_guardian_dies_too_goes_with_a_later_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "_SETTLED", -1.0)
    with launcher(place) as (running, guardian, inside):
        signal.pidfd_send_signal(guardian, signal.SIGKILL)
        running.kill()
        running.wait()
        left = place.children
        made = cgroup.Made(place.group, place.settings)
        made.remove()
        assert select.select([inside], [], [], 10)[0]
    assert len(left) == 1
    assert place.children == []


@needs_tree
def test_a_cgroup_in_use_is_left_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_SETTLED", -1.0)
    with launcher(place) as (_, guardian, inside):
        cgroup.sweep(str(place.path))
        assert not select.select([guardian, inside], [], [], 0)[0]
        assert len(place.children) == 1
        signal.pidfd_send_signal(inside, signal.SIGKILL)
    cgroup.sweep(str(place.path))


@needs_tree
def test_a_cgroup_that_is_just_being_made_is_left_alone(place: Place) -> None:
    (place.path / f"{cgroup.PREFIX}1-0").mkdir()
    cgroup.sweep(str(place.path))
    assert place.children == [f"{cgroup.PREFIX}1-0"]


# A scope of systemd's.

SYSTEMD = "/lib/systemd/systemd"
needs_systemd = pytest.mark.skipif(
    not (IS_ROOT and TREE and os.path.exists(SYSTEMD)), reason="needs root, cgroups of version 2 and systemd"
)
# A machine whose user has a systemd of their own, as far as that systemd can see.
MACHINE = f"""
mount -t tmpfs none /run
mkdir -p /run/systemd/system $XDG_RUNTIME_DIR
chown {NOBODY} $XDG_RUNTIME_DIR
chmod 700 $XDG_RUNTIME_DIR
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
chown -R {NOBODY} /sys/fs/cgroup$GROUP
echo $$ >/sys/fs/cgroup$GROUP/cgroup.procs
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {PYTHON} -c "$STORY" {SYSTEMD}
"""
STORY = """
import json, os, select, socket, subprocess, sys
from launcher import scope
from launcher.cgroup import look, mounted, of_process
from launcher.confine import confine
from launcher.limits import plan_limits
from launcher.options import Resources
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(os.environ["XDG_RUNTIME_DIR"] + "/ready")
ready = {**os.environ, "NOTIFY_SOCKET": notify.getsockname()}
with subprocess.Popen([sys.argv[1], "--user", "--unit=basic.target"], env=ready, stderr=-3) as systemd:
    try:
        while b"READY=1" not in notify.recv(4096):
            pass
        process = subprocess.Popen(["cat"], stdin=-1)
        before, facts = of_process(process.pid, mounted()), look()
        scope.make(facts.manager, process.pid, Resources(1 << 30, 1.5, 100))
        there = of_process(process.pid, mounted())
        names = "-pMemoryMax,MemorySwapMax,TasksMax,CPUQuotaPerSecUSec"
        words = ["systemctl", "--user", "show", os.path.basename(there), names]
        shown = subprocess.run(words, stdout=-1, text=True).stdout.split()
        other = subprocess.Popen(["cat"], stdin=-1)
        enforced = confine(plan_limits(Resources(pids=5000), facts), other.pid).enforced
        events = open(there + "/cgroup.events")
        changes = select.poll()
        changes.register(events, select.POLLPRI)
        process.communicate()
        other.communicate()
        while os.path.isdir(there):
            changes.poll(100)
        told = {"before": before, "there": there, "shown": shown, "applied": enforced.applied}
    finally:
        systemd.kill()
print(json.dumps(told))
"""


@needs_systemd
def test_a_real_systemd_makes_a_scope_with_the_limits_and_removes_it(code: Path) -> None:
    group = f"/test-of-scopes-{os.getpid()}"
    path = Path(TREE.path + group)
    path.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_RUNTIME_DIR": f"/run/user/{NOBODY}", "HOME": "/", "GROUP": group, "STORY": STORY,
    }  # fmt: skip
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-eu", "-c", MACHINE]
    try:
        done = subprocess.run(words, env=environment, cwd="/", stdout=-1, check=True, timeout=50)
    finally:
        (path / "cgroup.kill").write_text("1")
        _remove(path)
    told = json.loads(done.stdout)
    assert "egress-" not in told["before"]
    assert os.path.basename(told["there"]).startswith("egress-")
    assert sorted(told["shown"]) == sorted(
        ["MemoryMax=1073741824", "MemorySwapMax=0", "TasksMax=100", "CPUQuotaPerSecUSec=1.500000s"]
    )
    assert told["applied"] == ["pids: 5000"]


def _remove(path: Path) -> None:
    """All that systemd has made there, when the last process is gone."""
    with open(path / "cgroup.events") as events:
        changes = select.poll()
        changes.register(events, select.POLLPRI)
        while "populated 1" in events.read():
            changes.poll(1000)
            events.seek(0)
    for left in sorted(path.rglob("*/"), reverse=True):
        left.rmdir()
    path.rmdir()
