"""Kernel pipes for splicing, lent and taken back.

A tunnel holds a pipe only while bytes are in it, so thousands of idle tunnels share a handful. A pipe
that comes back with bytes left in it, after an error, is closed: they must not reach another tunnel.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import NamedTuple

from egress.limits import LIMITS

_KEPT = 64


class Pipe(NamedTuple):
    reader: int
    writer: int
    size: int


class Pipes:
    def __init__(self, size: int = LIMITS.pipe) -> None:
        self._size = size
        self._free: list[Pipe] = []

    def borrow(self) -> Pipe:
        """OSError when the process is out of descriptors."""
        return self._free.pop() if self._free else self._make()

    def give_back(self, pipe: Pipe, empty: bool) -> None:
        if empty and len(self._free) < _KEPT:
            self._free.append(pipe)
        else:
            os.close(pipe.reader)
            os.close(pipe.writer)

    def close(self) -> None:
        while self._free:
            self.give_back(self._free.pop(), empty=False)

    def _make(self) -> Pipe:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # over the user's soft limit for pipe pages: the default size does
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, self._size)
        return Pipe(reader, writer, fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
