"""The life of a command that shares the user's terminal and our process group, seen from the event loop.

What the terminal sends it sends to all of a job, so to the command as well: handing it on would tell the command
twice, and two Ctrl-C mean something else than one. What another process sends to us is for the command, and
handed on. The kernel tells the two apart (`si_code`), to whoever reads signals from a descriptor.

The command may stop: by Ctrl-Z, or by itself, as editors and agents do that catch Ctrl-Z first. Then so do we, and
our shell sees a stopped job. When the shell continues it, it continues all of it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from launcher import interrupts, process
from launcher.watch import CANNOT_RUN, TIMED_OUT

if TYPE_CHECKING:
    from launcher.backends.hostroom import HostRoom

_BY_KERNEL = 0x80  # SI_KERNEL
_RECORD = 128  # bytes of a struct signalfd_siginfo
_NUMBER_AND_CODE = struct.Struct("=IiiI")
_GRACE = 5.0
_CLOSE_ON_EXEC, _NON_BLOCKING = 0o2000000, 0o4000
_WORDS = 16  # unsigned longs of a sigset_t


class JobWatch:
    """`ended` has the exit code. The signals are blocked already, and stay so."""

    def __init__(self, room: HostRoom, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[int] = loop.create_future()
        self.timed_out = self.could_not_run = False
        self._room, self._loop = room, loop
        self._signals = _descriptor_of((*interrupts.FORWARDED, signal.SIGTSTP))
        loop.add_reader(self._signals, self._heed)
        loop.add_reader(room.minded.events, self._hear)
        if room.has_news:
            loop.call_soon(self._hear)

    def is_running(self) -> bool:
        return not self.ended.done() and self._room.has_started()

    def end_in(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        self.timed_out = True
        self._room.send(signal.SIGTERM)
        self._loop.call_later(_GRACE, self._room.kill)

    def _heed(self) -> None:
        with suppress(BlockingIOError):
            while record := os.read(self._signals, _RECORD):
                number, _, code, _ = _NUMBER_AND_CODE.unpack_from(record)
                if (code != _BY_KERNEL or not self._room.shares_keys) and not interrupts.is_ignored(number):
                    self._room.send(number)

    def _hear(self) -> None:
        status = self._room.hear()
        if status is not None and os.WIFSTOPPED(status):
            self._stop()
        else:
            self._finish(128 + signal.SIGKILL if status is None else process.exit_code(status))

    def _stop(self) -> None:
        """Unless it was continued meanwhile, as when all of the job was stopped, we too, and are told of it late."""
        if self._has_stopped():
            os.kill(os.getpid(), signal.SIGSTOP)
            if self._has_stopped():  # somebody continued us alone
                self._room.send(signal.SIGCONT)

    def _has_stopped(self) -> bool:
        with suppress(OSError), open(f"/proc/{self._room.minded.command}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2][:1] == b"T"
        return False

    def _finish(self, code: int) -> None:
        self._loop.remove_reader(self._room.minded.events)
        self._loop.remove_reader(self._signals)
        os.close(self._signals)
        if not self._room.has_run():
            self.could_not_run, code = True, CANNOT_RUN
        self.ended.set_result(TIMED_OUT if self.timed_out else code)


def _descriptor_of(numbers: tuple[signal.Signals, ...]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = (ctypes.c_ulong * _WORDS)()
    libc.sigemptyset(ctypes.byref(wanted))
    for number in numbers:
        libc.sigaddset(ctypes.byref(wanted), int(number))
    descriptor = int(libc.signalfd(-1, ctypes.byref(wanted), _CLOSE_ON_EXEC | _NON_BLOCKING))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor
