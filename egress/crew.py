"""What the workers of one gate have in common. It is made before they are forked, and each finds itself in it.

Worker 0 leads. It alone reads the files of the policy, answers DNS, and has what people look at; the others carry
connections as it does. What holds for the session holds over all of them: its name and numbers and how many
connections there may be (`ledger`), what it may upload (`counts`), its policy (`bulletin`).
"""

from __future__ import annotations

import os
import socket
from itertools import chain
from typing import NamedTuple

from egress.bulletin import Bulletin
from egress.colleagues import pair
from egress.counts import SLOTS, Counts
from egress.ledger import Ledger, Row
from egress.sessions import new_session_id

LEAD = 0


class Crew(NamedTuple):
    session: str
    ledger: Ledger
    bulletin: Bulletin
    counts: Counts
    lines: tuple[tuple[socket.socket, socket.socket], ...]  # of each but the first: the lead's end, its own

    @classmethod
    def make(cls, workers: int, most: int) -> Crew:
        """For so many, who may have `most` connections open between them."""
        lines = tuple(pair() for _ in range(1, workers))
        return cls(new_session_id(), Ledger(workers, most), Bulletin(), Counts.make(SLOTS, workers), lines)

    def close(self) -> None:
        self.bulletin.close()
        self.counts.close()
        os.close(self.counts.fd)
        for sock in chain.from_iterable(self.lines):
            sock.close()


class Worker(NamedTuple):
    """One of a crew; `again`: in the place of one that died."""

    crew: Crew
    number: int
    again: bool = False

    @property
    def leads(self) -> bool:
        return self.number == LEAD

    @property
    def line(self) -> socket.socket:
        """To the one that leads."""
        return self.crew.lines[self.number - 1][1]

    @property
    def row(self) -> Row:
        return Row(self.crew.ledger, self.number)
