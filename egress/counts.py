"""What sessions have sent, counted by several processes in shared memory.

A budget for a session holds for what goes through the engine and for what the gate forwards itself, at the
same time, in each of its workers. Each process has a column of its own, which it alone writes, so no lock is
needed and nothing is lost; the sum of a row is what the session has sent. The memory belongs to the gate: an
engine or a worker that dies takes no count with it, and the one in its place goes on in the same column.

    engine of worker 0 │ worker 0 │ engine of worker 1 │ worker 1 │ … │ whose row it is

The last column says which rule each row counts for. Who meets a rule first takes a row for it, under a lock
that the kernel gives back when its holder dies; the others find it there.
"""

from __future__ import annotations

import fcntl
import mmap
import os

_SIZE = 8  # bytes of a count
ENGINE, GATE = 0, 1
EACH = 2  # columns of a worker
SLOTS = 1024  # rules with a budget for the session


class Counts:
    def __init__(self, fd: int, column: int, columns: int = EACH) -> None:
        """Map the descriptor, which stays the caller's."""
        self.fd, self.column, self.columns = fd, column, columns
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self._cells = memoryview(self._memory).cast("Q")
        self.slots = len(self._cells) // (columns + 1)
        self._own, self._keys = column * self.slots, columns * self.slots

    @classmethod
    def make(cls, slots: int, workers: int = 1) -> Counts:
        """The first worker's."""
        fd = os.memfd_create("egress-counts", os.MFD_CLOEXEC)
        os.ftruncate(fd, (EACH * workers + 1) * slots * _SIZE)
        return cls(fd, GATE, EACH * workers)

    def of_worker(self, number: int) -> Counts:
        """The same counts, as another worker has them."""
        return Counts(self.fd, EACH * number + GATE, self.columns)

    def slot(self, whose: str) -> int | None:
        """The row that counts for it, in every process; None if there is none left."""
        from hashlib import blake2b  # not on the way to a command

        key = int.from_bytes(blake2b(whose.encode(), digest_size=_SIZE).digest(), "little") or 1
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            return self._claim(key)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def add(self, slot: int, amount: int) -> None:
        self._cells[self._own + slot] += amount

    def total(self, slot: int) -> int:
        return sum(self._cells[slot : self._keys : self.slots])

    def close(self) -> None:
        self._cells.release()
        self._memory.close()

    def _claim(self, key: int) -> int | None:
        for slot in range(self.slots):
            held = self._cells[self._keys + slot]
            if not held:
                self._cells[self._keys + slot] = key
            if held in (0, key):
                return slot
        return None
