"""Landlock's values, a plan's mounts as its rules, the filter for sockets, and where a connect may lead."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from launcher.backends.landrules import Shown, closed_to_new, rules, sight
from launcher.backends.model import Lack
from launcher.backends.private import Private
from launcher.backends.protected import Protected
from launcher.backends.socketfilter import MACHINES, program
from launcher.backends.usher import Goals, goal
from launcher.landlock import OF_FILES, READ, WRITE, Right, Rule, handled, missing
from launcher.libseccomp import Library
from launcher.mounts import Kind, Mount
from launcher.plan import Placeholder, Plan

ALLOW, ASK, DENY = 0x7FFF0000, 0x7FC00000, 0x0005000D


# Versions


def test_each_version_forbids_all_that_it_can() -> None:
    assert handled(1).files == 0x1FFF
    assert handled(2).files == 0x3FFF
    assert handled(3).files == 0x7FFF
    assert (handled(3).network, handled(4).network) == (0, 3)
    assert handled(5).files == 0xFFFF
    assert (handled(5).scoped, handled(6).scoped, handled(7).scoped) == (0, 3, 3)


@pytest.mark.parametrize(("version", "size"), [(1, 8), (3, 8), (4, 16), (5, 16), (6, 24), (7, 24)])
def test_the_structure_has_the_size_that_its_version_knows(version: int, size: int) -> None:
    assert len(handled(version).packed(version)) == size


def test_what_an_older_version_leaves_open_has_a_name() -> None:
    assert missing(1) == (Lack.TRUNCATE, Lack.DEVICES, Lack.SIGNALS)
    assert missing(4) == (Lack.DEVICES, Lack.SIGNALS)
    assert missing(6) == missing(7) == ()


def test_writing_makes_no_devices_and_files_take_no_rights_of_directories() -> None:
    assert not WRITE & (Right.MAKE_CHAR | Right.MAKE_BLOCK)
    assert OF_FILES & Right.READ_DIR == 0
    assert READ & WRITE == READ


# Rules

TREE = {
    "/": ["/etc", "/home", "/usr", "/proc"],
    "/etc": ["/etc/passwd", "/etc/shadow"],
    "/home": ["/home/me", "/home/you"],
    "/home/me": ["/home/me/project", "/home/me/.ssh"],
    "/home/me/project": ["/home/me/project/src", "/home/me/project/keys"],
}
PROJECT = "/home/me/project"


def made(*mounts: Mount, gone: tuple[str, ...] = ()) -> tuple[dict[str, Shown], set[Rule]]:
    seen = sight(mounts, lambda path: path not in gone)
    return seen, set(rules(seen, lambda path: TREE.get(path, [])))


def test_a_tree_with_nothing_hidden_in_it_is_one_rule() -> None:
    assert made(Mount(Kind.READ, "/usr", ""))[1] == {Rule("/usr", READ)}


def test_what_is_hidden_is_left_out_and_what_is_around_it_given_entry_by_entry() -> None:
    _, found = made(
        Mount(Kind.READ, "/", ""),
        Mount(Kind.CLOSED, "/etc/shadow", ""),
        Mount(Kind.EMPTY, "/home", ""),
        Mount(Kind.WRITE, PROJECT, ""),
    )
    assert found == {
        Rule("/etc/passwd", READ),
        Rule("/usr", READ),
        Rule("/proc", READ),
        Rule(PROJECT, WRITE),
    }


def test_what_is_hidden_in_the_project_costs_new_entries_beside_it() -> None:
    seen, found = made(Mount(Kind.WRITE, PROJECT, ""), Mount(Kind.EMPTY, f"{PROJECT}/keys", ""))
    assert found == {Rule(f"{PROJECT}/src", WRITE)}
    assert closed_to_new(seen) == [PROJECT]


def test_what_is_only_read_in_the_project_by_request_cannot_be_written() -> None:
    _, found = made(Mount(Kind.WRITE, PROJECT, ""), Mount(Kind.READ, f"{PROJECT}/keys", ""))
    assert found == {Rule(f"{PROJECT}/src", WRITE), Rule(f"{PROJECT}/keys", READ)}


def test_a_protected_file_does_not_cost_the_project_its_new_files() -> None:
    seen, found = made(
        Mount(Kind.WRITE, PROJECT, ""),
        Mount(Kind.READ, f"{PROJECT}/keys", "", beneath=PROJECT),
        Mount(Kind.CLOSED, f"{PROJECT}/.env", ""),
        gone=(f"{PROJECT}/.env",),
    )
    assert found == {Rule(PROJECT, WRITE)}
    assert closed_to_new(seen) == []


def test_processes_come_and_go_so_all_of_proc_is_given() -> None:
    _, found = made(Mount(Kind.PROCESSES, "/proc", ""), Mount(Kind.CLOSED, "/proc/kcore", ""))
    assert found == {Rule("/proc", READ)}


# Protected files, and the run's own directory


def test_changes_of_protected_files_are_found_also_new_ones(tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/old").write_text("x")
    (tmp_path / "kept").write_text("x")
    mounts = tuple(Mount(Kind.READ, str(tmp_path / name), "", beneath=str(tmp_path)) for name in ("hooks", "kept"))
    plan = Plan(mounts, {}, frozenset(), "/", ("true",), False, placeholders=(Placeholder(str(tmp_path), ".env"),))
    protected = Protected(plan)
    assert protected.changed() == []
    (tmp_path / "hooks/old").write_text("other")
    (tmp_path / ".env").write_text("A=1")
    assert protected.changed() == [str(tmp_path / name) for name in (".env", "hooks/old")]


def test_a_private_directory_goes_with_what_was_made_in_it(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/sub").mkdir()
    private = Private()
    private.furnish(str(tmp_path), [f"{tmp_path}/.claude/sub", f"{tmp_path}/.claude", str(tmp_path), "/elsewhere"])
    assert (Path(private.home) / ".claude").readlink() == tmp_path / ".claude"
    closed = Path(private.tmp) / "closed"
    closed.mkdir()
    (closed / "below").mkdir()
    (closed / "below/file").write_text("x")
    (closed / "below").chmod(0)
    closed.chmod(0o500)
    above = Path(private.path).parent.stat().st_mode
    private.remove()
    assert not Path(private.path).exists()
    private.remove()
    assert Path(private.path).parent.stat().st_mode == above
    assert (tmp_path / ".claude/sub").is_dir(), "links are not followed"


# Sockets


def execute(code: bytes, arch: int, number: int, args: tuple[int, ...]) -> int:
    """What the filter answers: a machine for the few instructions that it uses."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *(*args, 0, 0, 0, 0, 0, 0)[:6])
    lines = list(struct.iter_unpack("<HBBI", code))
    at = value = 0
    while True:
        kind, yes, no, operand = lines[at]
        at += 1
        if kind == 0x06:
            return int(operand)
        if kind == 0x20:
            value = struct.unpack_from("<I", data, operand)[0]
        elif kind == 0x54:
            value &= operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[kind]
            at += yes if holds else no


SHARED = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_names(machine: str) -> None:
    calls = MACHINES[machine]
    number = Library(calls.arch).number
    single = {name: getattr(calls, name) for name in ("socket", "socketpair", "connect", "listen", "ioctl")}
    assert {name: number(name) for name in single} == single
    assert number("prlimit64") == calls.prlimit
    assert [number(name) for name in ("sendto", "sendmsg", "sendmmsg")] == [each for each, _ in calls.sends]
    assert {number(name) for name in SHARED} == set(calls.shared)


@pytest.mark.parametrize("machine", MACHINES)
def test_few_kinds_of_socket_are_left(machine: str) -> None:
    calls = MACHINES[machine]
    passing = {
        (family, kind, protocol)
        for family in range(64)
        for kind in range(16)
        for protocol in (0, 1, 2, 4, 6, 17, 132, 262)
        if execute(program(machine), calls.arch, calls.socket, (family, kind | 0o2000000, protocol)) == ALLOW
    }
    unix = {(1, kind, protocol) for kind in (1, 5) for protocol in (0, 1, 2, 4, 6, 17, 132, 262)}
    tcp = {(family, 1, protocol) for family in (2, 10) for protocol in (0, 6)}
    assert passing == unix | tcp | {(16, kind, 0) for kind in range(16)}


@pytest.mark.parametrize("machine", MACHINES)
def test_ways_to_a_peer_are_asked_about_or_closed(machine: str) -> None:
    calls, code = MACHINES[machine], program(machine)
    assert {execute(code, calls.arch, number, (3,)) for number in (calls.connect, calls.listen)} == {ASK}
    for number, place in calls.sends:
        flags = [0] * place
        assert execute(code, calls.arch, number, (*flags, 0x4000)) == ALLOW
        assert execute(code, calls.arch, number, (*flags, 0x20004000)) == DENY
    assert {execute(code, calls.arch, number, ()) for number in (425, 426, 427, *calls.shared)} == {DENY}
    assert execute(code, calls.arch, calls.prlimit, (0, 7)) == ALLOW
    assert execute(code, calls.arch, calls.prlimit, (1, 7)) == DENY


@pytest.mark.parametrize("machine", MACHINES)
def test_words_for_the_terminal_and_other_ways_to_count_are_closed(machine: str) -> None:
    calls, code = MACHINES[machine], program(machine)
    high = 0xABC << 32
    assert {execute(code, calls.arch, calls.ioctl, (0, high | word)) for word in (0x5412, 0x541C)} == {DENY}
    assert execute(code, calls.arch, calls.ioctl, (0, 0x5413)) == ALLOW
    assert execute(code, 0x40000003, calls.connect, ()) == DENY
    assert execute(code, calls.arch, 0x40000000 | calls.socket, ()) == DENY


# Where a connect leads

GOALS = Goals(3128, frozenset({"/run/let-in.sock"}))


def inet(host: str, port: int) -> bytes:
    return struct.pack("<H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)


def inet6(host: str, port: int) -> bytes:
    head = struct.pack("<H", socket.AF_INET6) + struct.pack(">HI", port, 0)
    return head + socket.inet_pton(socket.AF_INET6, host) + bytes(4)


def unix(path: bytes) -> bytes:
    return struct.pack("<H", socket.AF_UNIX) + path


@pytest.mark.parametrize(
    "address",
    [inet("127.0.0.1", 3128), inet6("::ffff:127.0.0.1", 3128)],
)
def test_the_gate_may_be_connected_to(address: bytes) -> None:
    assert goal(address, GOALS) == ("127.0.0.1", 3128)


@pytest.mark.parametrize(
    "address",
    [
        inet("127.0.0.1", 3129),
        inet("127.0.0.2", 3128),
        inet("0.0.0.0", 3128),
        inet("192.0.2.1", 3128),
        inet6("::1", 3128),
        inet6("::ffff:192.0.2.1", 3128),
        inet6("2001:db8::7f00:1", 3128),
        inet("127.0.0.1", 3128)[:7],
        inet6("::ffff:127.0.0.1", 3128)[:23],
        unix(b"/run/other.sock\0"),
        unix(b"\0/run/let-in.sock"),
        unix(b""),
        b"",
        b"\0\0" + inet("127.0.0.1", 3128)[2:],
    ],
)
def test_nothing_else_may(address: bytes) -> None:
    assert goal(address, GOALS) is None


def test_a_socket_that_was_let_in_may_be_connected_to() -> None:
    assert goal(unix(b"/run/let-in.sock\0rest"), GOALS) == "/run/let-in.sock"
