"""The keeper and its job, with a shell in the place of bwrap."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from launcher import keeper
from launcher.keeper import Order, Report, Stage
from launcher.process import Child

PATIENCE = 20


class Job:
    """`sh -c SCRIPT` on a terminal of its own."""

    def __init__(self, script: str, **different: Any) -> None:
        self.master, slave = os.openpty()
        stage = Stage(slave, (slave, slave, slave), True, True, slave, lambda: None)._replace(**different)

        def run() -> NoReturn:
            os.execv("/bin/sh", ["sh", "-c", script])

        self.child: Child = keeper.start(run, stage, ())
        os.close(slave)

    def next_report(self) -> Report | None:
        assert select.select([self.child.events], [], [], PATIENCE)[0], "nothing was reported"
        return keeper.read_report(self.child)

    def wait_for(self, text: bytes) -> None:
        shown = b""
        while text not in shown:
            assert select.select([self.master], [], [], PATIENCE)[0], f"{text!r} was not shown, but {shown!r}"
            shown += os.read(self.master, 4096)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def close(self) -> None:
        """The end of the orders is the keeper's end."""
        os.close(self.child.orders)
        os.waitpid(self.child.pid, 0)
        os.close(self.child.events)
        os.close(self.master)


@pytest.fixture
def job() -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def make(script: str, **different: Any) -> Job:
        made.append(Job(script, **different))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_exit_code_is_reported(job: Callable[..., Job]) -> None:
    mine = job("read line; exit 7")
    keeper.wait_until_held(mine.child)
    mine.type(b"\n")
    report = mine.next_report()
    assert report
    assert report.stop is None
    assert os.waitstatus_to_exitcode(report.status) == 7


def test_it_is_ready_only_when_bwrap_is_traced(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace, traced = keeper._Tracer.of, tmp_path / "traced"

    def trace_and_tell(pid: int) -> keeper._Tracer | None:
        tracer = trace(pid)
        traced.touch()
        return tracer

    monkeypatch.setattr(keeper._Tracer, "of", trace_and_tell)
    mine = job("read line")
    keeper.wait_until_held(mine.child)
    assert traced.exists()


@pytest.mark.parametrize("key", [b"\x03", b"\x1c"])
def test_no_key_ends_the_process_that_it_keeps(job: Callable[..., Job], key: bytes) -> None:
    mine = job("echo ready; read line; exit 7")
    keeper.wait_until_held(mine.child)
    mine.wait_for(b"ready")
    mine.type(key)
    mine.type(b"\n")
    report = mine.next_report()
    assert report
    assert os.waitstatus_to_exitcode(report.status) == 7


def test_a_signal_that_stops_is_reported_and_does_not(job: Callable[..., Job]) -> None:
    mine = job("echo ready; read line; exit 7")
    keeper.wait_until_held(mine.child)
    mine.wait_for(b"ready")
    mine.type(b"\x1a")
    stop = mine.next_report()
    assert stop
    assert stop.stop == signal.SIGTSTP
    mine.type(b"\n")
    end = mine.next_report()
    assert end
    assert os.waitstatus_to_exitcode(end.status) == 7


def test_a_job_in_the_background_asks_by_reading_and_is_given_the_terminal(job: Callable[..., Job]) -> None:
    mine = job("read line; exit 7", foreground=False)
    keeper.wait_until_held(mine.child)
    asked = mine.next_report()
    assert asked
    assert asked.stop == signal.SIGTTIN
    keeper.order(mine.child, Order.FOREGROUND, 0)
    mine.type(b"\n")
    while (report := mine.next_report()) and report.stop is not None:
        assert report.stop == signal.SIGTTIN  # asked once more, before the order arrived
    assert report
    assert os.waitstatus_to_exitcode(report.status) == 7


@pytest.fixture
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTTIN, before)


@pytest.mark.usefixtures("ignored")
def test_it_can_ask_also_where_a_shell_had_its_children_ignore_that(job: Callable[..., Job]) -> None:
    mine = job("read line", foreground=False)
    keeper.wait_until_held(mine.child)
    asked = mine.next_report()
    assert asked
    assert asked.stop == signal.SIGTTIN


@pytest.mark.usefixtures("ignored")
def test_it_is_refused_where_nobody_could_give_it_the_terminal(job: Callable[..., Job]) -> None:
    mine = job("read line || exit 7", foreground=False, may_ask=False)
    keeper.wait_until_held(mine.child)
    report = mine.next_report()
    assert report
    assert os.waitstatus_to_exitcode(report.status) == 7


def test_the_end_of_the_launcher_ends_the_job_and_gives_the_terminal_back(tmp_path: Path) -> None:
    given_back = tmp_path / "given-back"
    mine = Job("echo ready; sleep 1000", give_back=given_back.touch)
    mine.wait_for(b"ready")
    mine.close()
    assert given_back.exists()
