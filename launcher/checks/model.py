"""The words of an examination."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"  # something will be missing
    FAIL = "fail"  # it will not work


class Finding(NamedTuple):
    status: Status
    what: str
    hint: str = ""  # the commands that mend it


class Check(NamedTuple):
    """A check that is not `needed` warns where it fails: sandboxes can run without."""

    name: str
    examine: Callable[[], Finding]
    needed: bool = True


def ok(what: str) -> Finding:
    return Finding(Status.OK, what)


def warn(what: str, hint: str) -> Finding:
    return Finding(Status.WARN, what, hint)


def fail(what: str, hint: str) -> Finding:
    return Finding(Status.FAIL, what, hint)
