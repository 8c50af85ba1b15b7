"""The sandbox's life, seen from the event loop: when it stops, when it ends, and what is sent to it.

Signals go to the command, not to bwrap: bwrap would die of them, and take the sandbox with it before the
command could act on them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from launcher import process
from launcher.room import Room
from launcher.terminal import Terminal

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
TIMED_OUT = 124  # as timeout(1) says it
_GRACE = 5.0


class Watch:
    """`ended` has the exit code."""

    def __init__(self, room: Room, terminal: Terminal | None, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[int] = loop.create_future()
        self.timed_out = False
        assert room.child is not None  # noqa: S101  # it was started
        self._room, self._child, self._terminal, self._loop = room, room.child, terminal, loop
        if terminal is None:
            self._life = os.pidfd_open(self._child.pid)
            loop.add_reader(self._life, self._reap)
        else:
            self._life = self._child.events
            loop.add_reader(self._life, self._report)
            loop.add_signal_handler(signal.SIGWINCH, terminal.resize)
        for number in FORWARDED:
            loop.add_signal_handler(number, self.send, number)

    def send(self, number: int) -> None:
        """To the command, wherever in the sandbox it is."""
        with suppress(ProcessLookupError):
            os.kill(self._command(), number)

    def end_in(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._time_out)

    def kill(self) -> None:
        """Everything inside dies with its first process."""
        with suppress(ProcessLookupError):
            os.kill(self._room.sandbox, signal.SIGKILL)

    def _time_out(self) -> None:
        self.timed_out = True
        self.send(signal.SIGTERM)
        self._loop.call_later(_GRACE, self.kill)

    def _command(self) -> int:
        """The child of the sandbox's pid 1; until there is one, pid 1 itself, which is still bwrap."""
        first = self._room.sandbox
        with suppress(OSError), open(f"/proc/{first}/task/{first}/children", encoding="ascii") as children:
            return int((children.read().split() or [str(first)])[0])
        return first

    def _reap(self) -> None:
        _, status = os.waitpid(self._child.pid, 0)
        os.close(self._forget())
        self._finish(process.exit_code(status))

    def _report(self) -> None:
        report = process.read_report(self._child)
        if report is not None and report.stopped:
            self._stop_too()
            return
        self._forget()
        os.waitpid(self._child.pid, 0)
        self._finish(128 + signal.SIGKILL if report is None else report.code)

    def _stop_too(self) -> None:
        if self._terminal is not None:
            self._terminal.suspend()
        process.resume(self._child)

    def _forget(self) -> int:
        self._loop.remove_reader(self._life)
        return self._life

    def _finish(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(TIMED_OUT if self.timed_out else code)
