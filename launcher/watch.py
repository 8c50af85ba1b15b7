"""The sandbox's life, seen from the event loop: when it stops, when it ends, and what is sent to it.

Signals go to the command, not to bwrap: without a terminal bwrap would die of them, and take the sandbox
with it before the command could act. Those that a terminal sends to all of a job go to all of the command's
process group; the others to the command alone.

Only the command's parent is told when it stops, and that is bwrap's pid 1, which does not listen. So we look:
at once when the keeper tells of a signal that stops, and now and then without. When the command has stopped,
we do, and our shell sees a stopped job; when we are continued, so is the command.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from launcher import interrupts, keeper, process
from launcher.keeper import Order
from launcher.room import Room
from launcher.terminal import Terminal

TIMED_OUT = 124  # as timeout(1) says it
CANNOT_RUN = 126
_FOR_ALL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGSTOP, signal.SIGCONT)
_FOR_THE_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)  # a background job's read and change of its terminal
_GRACE = 5.0
_SOON, _LOOKS = 0.02, 50
_NOW_AND_THEN = 1.0


class Watch:
    """`ended` has the exit code."""

    def __init__(self, room: Room, terminal: Terminal | None, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[int] = loop.create_future()
        self.timed_out = self.could_not_run = False
        assert room.child is not None  # noqa: S101  # it was started
        self._room, self._child, self._terminal, self._loop = room, room.child, terminal, loop
        if terminal is None:
            self._life = os.pidfd_open(self._child.pid)
            loop.add_reader(self._life, self._reap)
        else:
            self._life = self._child.events
            loop.add_reader(self._life, self._hear)
            self._heed(signal.SIGWINCH, terminal.resize)
            terminal.resize()
            self._glance()
        self._heed(signal.SIGTSTP, self._asked_to_stop)
        self._heed(signal.SIGCONT, self._go_on)
        for number in interrupts.FORWARDED:
            self._heed(number, partial(self.send, number))
        interrupts.heed()

    def send(self, number: int) -> None:
        """To the command, as soon as there is one."""
        if self.ended.done():
            return
        command = self._command()
        if command is None:
            self._loop.call_later(_SOON, self.send, number)
            return
        with suppress(ProcessLookupError):
            if number in _FOR_ALL:
                os.killpg(os.getpgid(command), number)
            else:
                os.kill(command, number)

    def is_running(self) -> bool:
        return self._command() is not None

    def end_in(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._time_out)

    def kill(self) -> None:
        """Everything inside dies with its first process."""
        if not self.ended.done():
            with suppress(ProcessLookupError):
                os.kill(self._room.sandbox, signal.SIGKILL)

    def _heed(self, number: int, act: Callable[[], None]) -> None:
        if not interrupts.is_ignored(number):
            self._loop.add_signal_handler(number, act)

    def _time_out(self) -> None:
        self.timed_out = True
        self.send(signal.SIGTERM)
        self._loop.call_later(_GRACE, self.kill)

    def _command(self) -> int | None:
        """The first child of the sandbox's pid 1."""
        first = self._room.sandbox
        with suppress(OSError), open(f"/proc/{first}/task/{first}/children", encoding="ascii") as children:
            return next(map(int, children.read().split()), None)
        return None

    def _reap(self) -> None:
        self._loop.remove_reader(self._life)
        os.close(self._life)
        self._finish(process.exit_code(self._room.reap()))

    def _hear(self) -> None:
        report = keeper.read_report(self._child)
        if report is not None and report.stop is not None:
            self._told_to_stop(report.stop)
            return
        self._loop.remove_reader(self._life)
        self._room.joiner.end()
        self._finish(128 + signal.SIGKILL if report is None else process.exit_code(report.status))

    def _told_to_stop(self, number: int) -> None:
        assert self._terminal is not None  # noqa: S101  # only a keeper tells
        if number in _FOR_THE_TERMINAL and self._terminal.take(asked=True):
            self._order(Order.FOREGROUND)
        elif number in _FOR_THE_TERMINAL and interrupts.is_ignored(number):
            self._loop.call_later(_NOW_AND_THEN, self._go_on)  # nobody would stop us: it waits, and asks again
        else:
            self._look(number, _LOOKS)

    def _glance(self) -> None:
        """A program may stop by itself, without its group; but one without the terminal may be waiting for it."""
        if self._terminal is not None and not self._terminal.is_restored:
            self._look(signal.SIGTSTP, 0)
        self._loop.call_later(_NOW_AND_THEN, self._glance)

    def _look(self, number: int, more: int) -> None:
        """A program may do something first, or not stop at all."""
        if self._has_stopped():
            self._stop(number)
        elif more:
            self._loop.call_later(_SOON, self._look, number, more - 1)

    def _has_stopped(self) -> bool:
        command = self._command()
        with suppress(OSError), open(f"/proc/{command}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2][:1] == b"T"
        return False

    def _asked_to_stop(self) -> None:
        """Ctrl-Z on a terminal that was not taken, or on none that we know of."""
        if self._terminal is not None:
            self.send(signal.SIGTSTP)
        else:
            self.send(signal.SIGSTOP)  # the other is for jobs only, and ignored outside of one
            self._stop(signal.SIGTSTP)

    def _stop(self, number: int) -> None:
        """All of our own job, as the terminal would; what is after the kill runs when somebody has continued us."""
        if self._terminal is not None:
            self._terminal.show_all()
            self._terminal.restore()
        for own in (signal.SIGTSTP, signal.SIGCONT):
            self._loop.remove_signal_handler(own)
        os.kill(0, number)
        self._heed(signal.SIGTSTP, self._asked_to_stop)
        self._heed(signal.SIGCONT, self._go_on)
        self._go_on()

    def _go_on(self) -> None:
        if self._terminal is None:
            self.send(signal.SIGCONT)
            return
        taken = self._terminal.take()
        self._terminal.resize()
        self._order(Order.FOREGROUND if taken else Order.BACKGROUND)

    def _order(self, what: Order) -> None:
        command, group = self._command(), 0
        with suppress(ProcessLookupError):
            group = os.getpgid(command) if command is not None else 0
        keeper.order(self._child, what, group)

    def _finish(self, code: int) -> None:
        interrupts.hold()
        self._room.child = None
        if code == 1 and not self._room.has_run():  # it was bwrap that failed, to start it
            self.could_not_run, code = True, CANNOT_RUN
        self.ended.set_result(TIMED_OUT if self.timed_out else code)
