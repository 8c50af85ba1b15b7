"""All processes that come of one, and their end.

A subreaper (prctl) is given every orphan below it, so whoever has none left has no descendants at all. Until
then its children are killed, their own become its children, and it looks again. A program that forks faster
than it is killed is not outrun for ever: there is a bound, and what is left then is said to be.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # of prctl(2)
_PATIENCE = 5.0


def adopt_orphans() -> None:
    """From now on this process is the parent of all below it that lose their own."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Be killed when `parent` ends, also if it has ended already."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children() -> list[int]:
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def end_all(but: Collection[int] = ()) -> None:
    """Kill and reap every descendant of this process, except those children."""
    deadline = time.monotonic() + _PATIENCE
    while (found := [pid for pid in children() if pid not in but]) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            _reap(pid, deadline)


def _reap(pid: int, deadline: float) -> None:
    """A process in the midst of a system call dies when that is over; one of another user's not at all."""
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.001)
