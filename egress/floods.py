"""Many new names below one parent: how data leaves by DNS, and how a log is drowned. Pure.

A name that is new is worth a record; a name that is not has had its own. But a tunnel makes a new name
for every packet, so in each interval only so many new names below a parent count as such, and the rest
is excess: a number. Parents are the last two labels, which is close enough to who owns a name; they too
are bounded in each interval, and those above the bound share one place.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

EVERYTHING = ""  # the parent that stands for those above the bound


class Sort(Enum):
    NEW = "new"
    KNOWN = "known"
    EXCESS = "excess"


class Floods:
    __slots__ = ("_excess", "_known", "_names", "_new", "_parents", "_remembered")

    def __init__(self, names: int, parents: int, remembered: int) -> None:
        self._names, self._parents, self._remembered = names, parents, remembered
        self._known: dict[str, None] = {}  # the oldest first
        self._new: Counter[str] = Counter()  # by parent, in this interval
        self._excess: Counter[str] = Counter()

    def sort(self, name: str, parent: str) -> Sort:
        """What sort of name this is, from now on known unless it is too much."""
        if name in self._known:
            return Sort.KNOWN
        if parent not in self._new and len(self._new) >= self._parents:
            parent = EVERYTHING
        if self._new[parent] >= self._names:
            self._excess[parent] += 1
            return Sort.EXCESS
        self._new[parent] += 1
        self._remember(name)
        return Sort.NEW

    def turn(self) -> dict[str, int]:
        """The excess of the interval that ends now, by parent."""
        ended = dict(self._excess)
        self._new.clear()
        self._excess.clear()
        return ended

    def forget(self) -> None:
        """Every name is new again, as when the policy is another."""
        self._known.clear()

    def _remember(self, name: str) -> None:
        self._known[name] = None
        if len(self._known) > self._remembered:
            del self._known[next(iter(self._known))]


def parent_of(name: str) -> str:
    return ".".join(name.rsplit(".", 2)[-2:])
