"""A hold on a process, so that it can be ended even when its number may have passed to another."""

from __future__ import annotations

import contextlib
import os
import signal


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
