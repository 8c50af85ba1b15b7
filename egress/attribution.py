"""Which program made a connection, for the record.

It is a courtesy to whoever reads the log, and nothing is decided by it. A process that has ended by now, or
has given its socket away, is not found, and what a command line says is its process's own choice. So a search
does not fail, it comes to nothing.

And it must not cost much. To go through its table of sockets takes the kernel milliseconds, however few of
them there are, and all that time the gate does nothing else: so a search has a time limit, all of them
together have a small share of the time, and of one connection it is asked once. The words of a command come
out of its process's own memory. To make us wait for them would take userfaultfd or a file system of one's own,
and a sandbox has neither.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection
from enum import StrEnum
from weakref import WeakKeyDictionary

from egress import processes
from egress.auditrecords import Process
from egress.model import Decision
from egress.proctables import End

_LONGEST = 0.05  # seconds that one search may take
_SHARE = 0.1  # of the time, where one search follows another
_SAVED = 0.25  # seconds of searching that a quiet time saves up


class Attribute(StrEnum):
    """Of which connections the program is looked for."""

    REFUSED = "refused"
    ALL = "all"
    NONE = "none"


def attributing(choice: str, root: int | None = None, entered: Collection[int] = ()) -> Attribution | None:
    """As `--attribute` has it. `root` is the first process of a sandbox; without one, clients are on the host.
    `entered` are those that came into it from outside, at any time."""
    return None if choice == Attribute.NONE else Attribution(root, choice == Attribute.ALL, entered=entered)


Ends = tuple[End, End]  # of a connection: the client's, and ours


def ends_of(sock: socket.socket) -> Ends | None:
    """Both, unless it is none of TCP or is gone."""
    try:
        return None if sock.family == socket.AF_UNIX else (sock.getpeername()[:2], sock.getsockname()[:2])
    except OSError:
        return None


class Attribution:
    def __init__(
        self,
        root: int | None = None,
        everything: bool = False,
        clock: Callable[[], float] = time.monotonic,
        entered: Collection[int] = (),
    ) -> None:
        self.everything = everything  # also what is allowed
        self._clock = clock
        self._place: processes.Place = processes.Host() if root is None else processes.Sandbox(root, entered)
        self._known: WeakKeyDictionary[socket.socket, Process | None] = WeakKeyDictionary()
        self._purse, self._counted = _SAVED, clock()

    def wants(self, decision: Decision) -> bool:
        """Whether it is looked for: behind a refusal, also one that was only observed, or behind all."""
        return self.everything or not decision.allowed or decision.would_deny is not None

    def process(self, sock: socket.socket) -> Process | None:
        """Who made the connection that was accepted here, if that can be told."""
        if sock not in self._known and (ends := ends_of(sock)) is not None and self._can_afford():
            self._known[sock] = self._search(ends)
        return self._known.get(sock)

    def behind(self, ends: Ends) -> Process | None:
        """The same, of a connection whose socket somebody else has."""
        return self._search(ends) if self._can_afford() else None

    def _search(self, ends: Ends) -> Process | None:
        began = self._clock()
        try:
            return self._find(ends, began + _LONGEST)
        finally:
            self._purse -= self._clock() - began

    def _can_afford(self) -> bool:
        now = self._clock()
        self._purse = min(_SAVED, self._purse + (now - self._counted) * _SHARE)
        self._counted = now
        return self._purse > 0

    def _find(self, ends: Ends, until: float) -> Process | None:
        def tick() -> None:
            if self._clock() > until:
                raise TimeoutError

        try:
            return processes.find(self._place, *ends, tick)
        except (OSError, ValueError):  # out of time, out of descriptors, or something that nobody foresaw of /proc
            return None
