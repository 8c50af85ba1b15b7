"""What the workers of one gate keep count of together: the numbers in its log, and the connections that are open.

It lies in memory that they share from before they were forked. A worker writes its own row and reads all of
them, so no lock is needed, and a row outlives its worker: the one that is started in its place goes on from there.

Numbers must be unique in a session, since they tie the records of one connection together. So worker 2 of 3 takes
2, 5, 8 …: each worker's go up, no two workers have one in common, and a gate without others counts 1, 2, 3.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

_SIZE = 8  # bytes of a cell
_LAST, _OPEN = 0, 1
_CELLS = 2  # of a worker


class Ledger:
    """Of so many workers, who may have `most` connections open between them."""

    def __init__(self, workers: int, most: int) -> None:
        self.workers, self.most = workers, most
        self.cells = memoryview(mmap.mmap(-1, workers * _CELLS * _SIZE)).cast("Q")

    def open(self) -> int:
        """Connections that are open, of all workers."""
        return sum(self.cells[_OPEN::_CELLS])

    def clear(self, number: int) -> None:
        """A worker is gone, and its connections with it."""
        self.cells[number * _CELLS + _OPEN] = 0


class Row(NamedTuple):
    """One worker's, counted from 0."""

    ledger: Ledger
    number: int = 0

    def next_id(self) -> int:
        place = self.number * _CELLS + _LAST
        self.ledger.cells[place] += 1
        return (self.ledger.cells[place] - 1) * self.ledger.workers + self.number + 1

    def note_open(self, connections: int) -> None:
        self.ledger.cells[self.number * _CELLS + _OPEN] = connections

    def is_full(self) -> bool:
        return self.ledger.open() >= self.ledger.most


def alone(most: int) -> Row:
    """Of a gate that is one process."""
    return Row(Ledger(1, most))
