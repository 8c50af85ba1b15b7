"""The processes of one command among those of its sandbox.

They are those that descend from it, and those of its session, which stays together when parents end. Who has
left both (a daemon, in the old sense) is nobody's and lives until the sandbox ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from egress import proctables
from egress.processes import Sandbox

_MOST = 4096  # processes that are looked at
_EXITING = 4  # PF_EXITING, of the flags in proc(5)


class Kin(NamedTuple):
    parent: int
    session: int


def _tick() -> None:
    """Nothing hurries us: there are few processes, and each is two small files."""


def census(inside: Sandbox) -> dict[int, Kin]:
    """Everybody inside, by the host's numbers."""
    found: dict[int, Kin] = {}
    for pid in inside.pids(_tick):
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b") ")[2].split()
            found[pid] = Kin(int(fields[1]), int(fields[3]))
        if len(found) >= _MOST:
            break
    return found


def ancestry(pid: int, everybody: dict[int, Kin]) -> Iterator[int]:
    """The process, its session's first and all that it descends from."""
    if pid in everybody:
        yield everybody[pid].session
    for _ in range(len(everybody)):
        if pid not in everybody:
            return
        yield pid
        pid = everybody[pid].parent


def members(command: int, inside: Sandbox) -> list[int]:
    everybody = census(inside)
    return [pid for pid in everybody if command in ancestry(pid, everybody)]


def owners(number: int, inside: Sandbox) -> frozenset[int]:
    """Whom a process belongs to that is known by its number inside; nobody, if it has ended."""
    everybody = census(inside)
    return frozenset(who for pid in everybody if _number_inside(pid) == number for who in ancestry(pid, everybody))


def is_exiting(pid: int) -> bool:
    """A first process kills all others before it is gone itself, and waits until they were waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return bool(int(stat.read().rpartition(b") ")[2].split()[6]) & _EXITING)
    except OSError:
        return True


def _number_inside(pid: int) -> int | None:
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:
        return proctables.pids(status.read())[-1]
    return None


class Family:
    """Held by descriptors, so that a number that has passed to another harms nobody."""

    def __init__(self, command: int, inside: Sandbox) -> None:
        self._lives: list[int] = []
        for pid in members(command, inside):
            with suppress(OSError):
                self._lives.append(os.pidfd_open(pid))

    def end(self) -> None:
        for life in self._lives:
            with suppress(OSError):
                signal.pidfd_send_signal(life, signal.SIGKILL)
            os.close(life)
        self._lives = []
