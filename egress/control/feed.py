"""The newest records of the log, for whoever watches.

There is one table and any number of readers, and nothing waits for a reader: each has a number, that of the last
record it was sent, and asks for what comes after it. One that is slow, or was away, finds what is still there, and
is told what is not. So a watcher costs the gate nothing but its own connection, and a lost connection is
taken up again where it broke.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice

from egress.auditrecords import Record

KEPT = 10_000


class Feed:
    def __init__(self, kept: int = KEPT) -> None:
        self._records: deque[Record] = deque(maxlen=kept)
        self._waiting: set[asyncio.Future[None]] = set()
        self.newest = 0  # the number of the last record; the first is 1
        self.closed = False

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._records))

    @property
    def oldest(self) -> int:
        """The number of the first record that is still there."""
        return self.newest - len(self._records) + 1

    def add(self, record: Record) -> None:
        self._records.append(record)
        self.newest += 1
        self.wake()

    def after(self, number: int, most: int) -> tuple[int, list[Record]]:
        """Up to `most` records after that number, and the number of the last of them."""
        start = min(max(number + 1, self.oldest), self.newest + 1)
        found = list(islice(self._records, start - self.oldest, start - self.oldest + most))
        return start + len(found) - 1, found

    def wake(self) -> None:
        """Something has changed: all who wait have a look."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    async def changed(self, seconds: float) -> None:
        """Returns when something has changed, and after so many seconds in any case."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            self._waiting.discard(waiter)

    def close(self) -> None:
        self.closed = True
        self.wake()
