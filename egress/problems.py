"""What is wrong with a policy, and where it stands.

A person mends a file once, not once per error: readers raise `PolicyError` for the one thing they
looked at, `Problems` gathers what several of them raised, and whoever finishes a whole raises them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from egress.model import Source

MAX_PROBLEMS = 100  # past that a file is not mistaken but something else
_MAX_CANDIDATES = 1000


class Problem(NamedTuple):
    source: Source
    message: str

    def __str__(self) -> str:
        return f"{self.source}: {self.message}"


class PolicyError(ValueError):
    """A policy that must not be used."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class UnknownPersona(PolicyError):
    """The policy is sound, and has no persona of the name that was asked for."""


class Problems:
    """Gathers problems until `settle`, or until there are too many to read."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, source: Source, message: str) -> None:
        if len(self.found) >= MAX_PROBLEMS:
            self.found.append(Problem(source, f"more than {MAX_PROBLEMS} problems; the rest was not read"))
            self.settle()
        self.found.append(Problem(source, message))

    def absorb(self, error: PolicyError) -> None:
        for problem in error.problems:
            self.add(*problem)

    def settle(self) -> None:
        if self.found:
            raise PolicyError(self.found)


def wrong(source: Source, message: str) -> PolicyError:
    return PolicyError((Problem(source, message),))


def near(word: str, known: Collection[str]) -> str:
    """`; did you mean 'allow'?` where one of the known words is close, else nothing."""
    if len(known) > _MAX_CANDIDATES:
        return ""
    from difflib import get_close_matches  # only on the way to an error

    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
