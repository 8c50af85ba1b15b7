"""Which program asked: real processes, a real gate, and what a search may cost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from gatekit import PATIENCE, Kit, gate, rule, tcp_pair
from test_audit import SCHEMA

from egress import processes
from egress.attribution import Attribution, attributing
from egress.auditrecords import Process
from egress.limits import LIMITS
from egress.model import Decision, Verdict, Via
from egress.net.stream import Stream
from egress.refusals import Reason, Refused

# A client that says its piece, waits for the answer, and stays until it may go.
CLIENT = """
import socket, sys
sock = socket.socket(getattr(socket, sys.argv[1]))
sock.connect((sys.argv[2], int(sys.argv[3])))
for request in sys.argv[4:]:
    sock.sendall(request.encode())
    print(sock.recv(65536).decode().partition("\\r\\n")[0], flush=True)
sys.stdin.read()
"""
DENIED = "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"


class Clock:
    """Goes on by `step` each time that it is looked at."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step, self.looks = 0.0, step, 0

    def __call__(self) -> float:
        self.looks += 1
        self.now += self.step
        return self.now


def patient(root: int | None = None) -> Attribution:
    """One that no time passes for: this machine may be busy."""
    return Attribution(root, clock=Clock())


@pytest.fixture(autouse=True)
def a_table_as_long_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests, or whoever else is on this machine, may have left more sockets than a search looks at."""
    monkeypatch.setattr(processes, "_MOST_TABLE", 1 << 28)


@contextlib.contextmanager
def server(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as sock:
        sock.settimeout(PATIENCE)
        yield sock


@contextlib.contextmanager
def client(to: socket.socket, family: str = "AF_INET", host: str = "127.0.0.1") -> Iterator[tuple[int, socket.socket]]:
    """A process that connects there, and the accepted end."""
    words = [sys.executable, "-c", CLIENT, family, host, str(to.getsockname()[1])]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        accepted, _ = to.accept()
        with accepted:
            yield process.pid, accepted
        process.communicate()


@pytest.mark.parametrize(
    ("listening", "family", "host"),
    [
        ("127.0.0.1", "AF_INET", "127.0.0.1"),
        ("127.0.0.1", "AF_INET6", "::ffff:127.0.0.1"),
        ("::1", "AF_INET6", "::1"),
    ],
)
def test_the_process_at_the_other_end_is_found(listening: str, family: str, host: str) -> None:
    with server(listening) as listener, client(listener, family, host) as (pid, accepted):
        found = patient().process(accepted)
    assert found is not None
    assert found.pid == pid
    assert found.exe == os.path.realpath(sys.executable)
    assert isinstance(found.command, str)
    assert found.command.startswith(f"{sys.executable} -c \\nimport socket, sys\\n")
    assert len(found.command) == 200


def test_who_made_a_socket_is_named_and_not_who_inherited_it() -> None:
    with server() as listener, socket.create_connection(listener.getsockname()) as near:
        accepted, _ = listener.accept()
        words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        with accepted, subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[near.fileno()]) as heir:
            found = patient().process(accepted)
            heir.communicate()
    assert found is not None
    assert found.pid == os.getpid()


def test_a_client_that_has_gone_is_not_found() -> None:
    with server() as listener:
        near = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        near.close()
        with accepted:
            assert patient().process(accepted) is None


def test_a_socket_that_is_closed_or_not_tcp_comes_to_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert patient().process(ours) is None
    with tcp_pair() as (near, _):
        near.close()
        assert patient().process(near) is None


def test_a_client_on_another_machine_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_inode", lambda *_: pytest.fail("the table was read"))
    assert processes.find(processes.Host(), ("192.0.2.7", 1), ("192.0.2.1", 3128), lambda: None) is None


def test_a_process_outside_of_the_sandbox_is_not_found() -> None:
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with server() as listener, subprocess.Popen(words, stdin=subprocess.PIPE) as first:
        with client(listener) as (_, accepted):
            assert patient(first.pid).process(accepted) is None
        first.communicate()


def test_what_descends_from_the_first_process_is_found_however_far() -> None:
    with server() as listener:
        inner = [sys.executable, "-c", CLIENT, "AF_INET", "127.0.0.1", str(listener.getsockname()[1])]
        script = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
        outer = [sys.executable, "-c", script, sys.executable, "-c", script, *inner]
        with subprocess.Popen(outer, stdin=subprocess.PIPE) as first:
            accepted, _ = listener.accept()
            with accepted:
                found = patient(first.pid).process(accepted)
            first.communicate()
    assert found is not None
    assert found.pid != first.pid


def test_what_a_thread_has_started_is_found() -> None:
    script = """
import subprocess, sys, threading
thread = threading.Thread(target=subprocess.call, args=(sys.argv[1:],))
thread.start()
thread.join()
"""
    with server() as listener:
        inner = [sys.executable, "-c", CLIENT, "AF_INET", "127.0.0.1", str(listener.getsockname()[1])]
        with subprocess.Popen([sys.executable, "-c", script, *inner], stdin=subprocess.PIPE) as first:
            accepted, _ = listener.accept()
            with accepted:
                found = patient(first.pid).process(accepted)
            first.communicate()
    assert found is not None
    assert found.pid != first.pid


def test_a_process_that_is_in_no_sandbox_so_deep_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as listener, client(listener) as (_, accepted):
        monkeypatch.setattr(processes.Host, "level", 40)
        assert patient().process(accepted) is None


def test_a_sandbox_that_has_ended_has_no_processes() -> None:
    with server() as listener:
        with client(listener) as (pid, accepted):
            attribution = patient(pid)
            kept = accepted.dup()
        with kept:
            assert attribution.process(kept) is None


def test_a_number_that_has_come_to_mean_another_process_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as listener, client(listener) as (pid, accepted):
        place = processes.Sandbox(pid)
        ends = accepted.getpeername(), accepted.getsockname()
        assert processes.find(place, *ends, lambda: None) is not None
        monkeypatch.setattr(place, "_born", 1)
        assert processes.find(place, *ends, lambda: None) is None


def test_out_of_descriptors_it_comes_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(24, "too many open files")

    with server() as listener, client(listener) as (_, accepted):
        monkeypatch.setattr(os, "open", fail)
        assert patient().process(accepted) is None


def test_a_search_that_takes_too_long_is_given_up() -> None:
    with server() as listener, client(listener) as (_, accepted):
        assert patient().process(accepted) is not None
        clock = Clock(step=0.03)
        assert Attribution(clock=clock).process(accepted) is None
    assert clock.looks < 10


def test_no_more_of_a_table_is_read_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(processes.proctables, "owner", lambda table, *_: read.append(len(table)))
    monkeypatch.setattr(processes, "_MOST_TABLE", 100)
    with tcp_pair() as (near, _):
        assert patient().process(near) is None
    assert read == [100, 100]  # tcp and tcp6


class Searches:
    """Counts them, and makes each take its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock, each: float = 0.0) -> None:
        self.count, self._clock, self._each = 0, clock, each
        monkeypatch.setattr(processes, "find", self._find)

    def _find(self, *_: Any) -> Process:
        self.count += 1
        self._clock.now += self._each
        return Process(pid=self.count)


def test_searches_have_only_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    searches = Searches(monkeypatch, clock, each=0.05)
    attribution = Attribution(clock=clock)
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(tcp_pair())[0] for _ in range(40)]
        burst = [attribution.process(sock) for sock in ends]
        assert 5 <= searches.count <= 6
        assert burst[searches.count :] == [None] * (40 - searches.count)
        clock.now += 1.0
        before = searches.count
        assert attribution.process(ends[-1]) is not None
        for sock in ends:
            attribution.process(sock)
        assert searches.count - before <= 3


def test_of_one_connection_it_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch, clock := Clock())
    attribution = Attribution(clock=clock)
    with tcp_pair() as (near, far):
        assert [attribution.process(near) for _ in range(3)] == [Process(pid=1)] * 3
        assert attribution.process(far) == Process(pid=2)
    assert searches.count == 2


@pytest.mark.parametrize(("choice", "allowed", "observed"), [("refused", False, True), ("all", True, True)])
def test_the_choice_says_of_which_decisions_it_is_told(choice: str, allowed: bool, observed: bool) -> None:
    attribution = attributing(choice)
    assert attribution is not None
    assert attribution.wants(Decision(Verdict.DENY, Reason.NOT_LISTED))
    assert attribution.wants(Decision(Verdict.ALLOW, Reason.LISTED)) is allowed
    lifted = Decision(Verdict.ALLOW, Reason.OBSERVED, would_deny=Reason.NOT_LISTED)
    assert attribution.wants(lifted) is observed
    assert attributing("none") is None


def test_what_is_not_known_of_a_process_is_left_out() -> None:
    assert msgspec.to_builtins(Process(pid=7)) == {"pid": 7}


# In a gate.


@contextlib.asynccontextmanager
async def asking(g: Kit, *requests: str) -> AsyncIterator[tuple[int, list[str]]]:
    """A process that sends these one after another, and the first line of each answer."""
    words = ["-c", CLIENT, "AF_INET", "127.0.0.1", str(g.port), *requests]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=pipe, stdout=pipe)
    assert process.stdout
    try:
        async with asyncio.timeout(PATIENCE):
            lines = [(await process.stdout.readline()).decode().strip() for _ in requests]
        yield process.pid, lines
    finally:
        await process.communicate()


async def test_a_refusal_names_the_program_that_asked(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        g.gateway.attribution = patient()
        async with asking(g, DENIED) as (pid, (answer,)):
            (record,) = g.records()
    assert answer.startswith("HTTP/1.1 403")
    assert record["process"]["pid"] == pid
    assert record["process"]["exe"] == os.path.realpath(sys.executable)
    jsonschema.validate(record, SCHEMA)


async def test_without_attribution_no_program_is_named(tmp_path: Path) -> None:
    async with gate(tmp_path) as g, asking(g, DENIED):
        (record,) = g.records()
    assert "process" not in record


async def test_an_allowed_connection_is_not_looked_into_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = Searches(monkeypatch, clock := Clock())
    tunnel = "CONNECT allowed.test:22 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
    with server() as listener:
        hosts = {"allowed.test": listener.getsockname()[1]}
        async with gate(tmp_path, (rule("allowed.test:22"),), hosts=hosts) as g:
            g.gateway.attribution = Attribution(clock=clock)
            async with asking(g, tunnel) as (_, (answer,)):
                assert answer.startswith("HTTP/1.1 200")
            assert searches.count == 0
            g.gateway.attribution = Attribution(everything=True, clock=clock)
            async with asking(g, tunnel):
                pass
            first, second = g.records(event="decision")
    assert "process" not in first
    assert second["process"] == {"pid": 1}


async def test_what_was_allowed_by_name_and_then_refused_names_its_program(tmp_path: Path) -> None:
    private = rule("allowed.test:22", private=False)
    with server() as listener:
        async with gate(tmp_path, (private,), hosts={"allowed.test": listener.getsockname()[1]}) as g:
            g.gateway.attribution = patient()
            async with asking(g, "CONNECT allowed.test:22 HTTP/1.1\r\nHost: allowed.test\r\n\r\n") as (pid, _):
                allow, deny = g.records(event="decision")
    assert "process" not in allow
    assert (deny["verdict"], deny["process"]["pid"]) == ("deny", pid)


async def test_a_connection_that_only_failed_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = Searches(monkeypatch, clock := Clock())
    with server() as listener:
        port = listener.getsockname()[1]
    async with gate(tmp_path, (rule("allowed.test:22"),), hosts={"allowed.test": port}) as g:
        g.gateway.attribution = Attribution(clock=clock)
        async with asking(g, "CONNECT allowed.test:22 HTTP/1.1\r\nHost: allowed.test\r\n\r\n") as (_, (answer,)):
            assert answer.startswith("HTTP/1.1 502")
    assert searches.count == 0


async def test_refusals_on_one_connection_are_one_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch, clock := Clock())
    async with gate(tmp_path) as g:
        g.gateway.attribution = Attribution(clock=clock)
        async with asking(g, DENIED, DENIED, DENIED):
            records = g.records()
    assert [record["process"] for record in records] == [{"pid": 1}] * 3
    assert searches.count == 1


async def test_a_refusal_that_never_became_a_passage_names_its_program(tmp_path: Path) -> None:
    async with gate(tmp_path, limits=LIMITS) as g:
        g.gateway.attribution = patient()
        with server() as listener, client(listener) as (pid, accepted):
            stream = Stream(accepted, asyncio.get_running_loop())
            g.gateway.note(Refused(Reason.MALFORMED_HOST, asked="a b"), "p", Via.HTTP, stream)
            g.gateway.note(Refused(Reason.MALFORMED_HOST, asked="a b"), "p", Via.HTTP)
        named, unnamed = g.records()
    assert named["process"]["pid"] == pid
    assert "process" not in unnamed
