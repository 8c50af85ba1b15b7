"""A process that stays when the launcher is gone, for the one thing that must be done then.

It is forked before there is anything to take away, and waits for the end of a pipe that only the launcher
holds, so it learns of every death. What stops jobs does not reach it, from its first instruction on, and it
holds nothing of the launcher's: no terminal, no directory, no descriptor.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable
from typing import NoReturn

_DISMISSED = b"x"
_UNHEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTSTP)


class Guardian:
    """Does `last`, unless it is dismissed. It forks: no thread or event loop may exist yet."""

    __slots__ = ("_line", "_pid")

    def __init__(self, last: Callable[[], None]) -> None:
        line, self._line = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _UNHEARD)
        self._pid = os.fork()
        if self._pid == 0:
            _stay(line, last)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(line)

    @property
    def pid(self) -> int:
        return self._pid

    def dismiss(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(self._line, _DISMISSED)
        os.close(self._line)
        os.waitpid(self._pid, 0)


def _stay(line: int, last: Callable[[], None]) -> NoReturn:
    try:
        _withdraw(line)
        if not os.read(line, 1):
            last()
    finally:
        os._exit(0)  # past every `finally` and `atexit` that the launcher had at the fork


def _withdraw(line: int) -> None:
    gc.disable()  # collecting an object of the launcher's would close its descriptor's number, now ours
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, line):
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))
