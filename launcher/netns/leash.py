"""A hold on a process, so that it can be ended even when its number may have passed to another."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator


class Leash:
    __slots__ = ("_descriptor",)

    def __init__(self, pid: int) -> None:
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:  # nobody to end any more
            self._descriptor = -1

    def end(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_orphan(pid: int, ancestor: int) -> bool:
    """Whether somebody between the two is gone, or the first itself."""
    while pid > 1:
        if pid == ancestor:
            return False
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                pid = int(stat.read().rpartition(b") ")[2].split()[1])
        except OSError:
            return True
    return True


def end_untold(pipe: int) -> None:
    """Kill a sandbox whose bwrap was killed between making it and telling of it.

    It waits for a word that never comes, and nobody knows its number; but it holds this pipe, as bwrap did.
    """
    name = os.readlink(f"/proc/self/fd/{pipe}")
    for pid in _first_processes():
        with contextlib.suppress(OSError):  # it is gone, or somebody else's
            if name in map(os.readlink, (f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))):
                os.kill(pid, signal.SIGKILL)


def _first_processes() -> Iterator[int]:
    """Those that are number one of a pid namespace within ours."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/status", encoding="ascii", errors="replace") as status:
            numbers = next((line.split()[1:] for line in status if line.startswith("NSpid:")), [])
            if len(numbers) > 1 and numbers[-1] == "1":
                yield int(name)
