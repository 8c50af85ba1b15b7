"""What sessions have sent, counted by two processes in shared memory.

A budget for a session holds for what goes through the engine and for what the gate forwards itself, at the
same time. Each process has a column of its own, which it alone writes, so no lock is needed and nothing is
lost; the sum of a row is what the session has sent. The memory belongs to the gate: an engine that dies takes
no count with it.
"""

from __future__ import annotations

import mmap
import os

_SIZE = 8  # bytes of a count
ENGINE, GATE = 0, 1
SLOTS = 1024  # rules with a budget for the session


class Counts:
    def __init__(self, fd: int, column: int) -> None:
        """Map the descriptor, which stays the caller's."""
        self.fd = fd
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self._cells = memoryview(self._memory).cast("Q")
        self.slots = len(self._cells) // 2
        self._own = column * self.slots

    @classmethod
    def make(cls, slots: int) -> Counts:
        fd = os.memfd_create("egress-counts", os.MFD_CLOEXEC)
        os.ftruncate(fd, 2 * slots * _SIZE)
        return cls(fd, GATE)

    def add(self, slot: int, amount: int) -> None:
        self._cells[self._own + slot] += amount

    def total(self, slot: int) -> int:
        return self._cells[slot] + self._cells[self.slots + slot]

    def close(self) -> None:
        self._cells.release()
        self._memory.close()
