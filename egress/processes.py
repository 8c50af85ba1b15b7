"""Looks through /proc for the process that has one end of a TCP connection.

    its address → the socket with that address, in the table of its network → its inode
                → the process that has `socket:[inode]` among its descriptors

Where to look is a `Place`: the host, where only processes of our own user show their descriptors, or a
sandbox, whose first process is known and whose others all descend from it.

Processes end while they are looked at, and numbers come to mean others: whatever is not there any more is
passed over. The caller's `tick` is called all along, and what it raises ends a search that takes too long.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from ipaddress import ip_address
from itertools import islice
from typing import Protocol

from msgspec import UNSET

from egress import commandline, proctables
from egress.auditrecords import Process
from egress.proctables import End

Tick = Callable[[], None]

_MOST_TABLE = 1 << 22  # bytes: about 28,000 sockets, also those that only wait for their time to pass
_MOST_TEXT = 64 * 1024
_MOST_PROCESSES = 2048
_MOST_FORKED = 16  # processes in a row that share one socket
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)  # or it is not ours to look at


class Place(Protocol):
    @property
    def level(self) -> int:
        """Of the numbers that a process has, the one by which it is known there."""

    def may_have(self, near: End, far: End) -> bool:
        """Whether the socket with the end `near` can be there at all."""

    def table(self, name: str) -> str: ...
    def pids(self, tick: Tick) -> Iterator[int]: ...


class Host:
    level = 0

    def may_have(self, near: End, far: End) -> bool:
        """Clients on other machines need not be looked for."""
        return near[0] == far[0] or ip_address(near[0].partition("%")[0]).is_loopback

    def table(self, name: str) -> str:
        return f"/proc/self/net/{name}"

    def pids(self, _: Tick) -> Iterator[int]:
        """The newest first: most of those who ask for something have only just begun."""
        return iter(sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True))


class Sandbox:
    """By its first process, whose child becomes whoever loses a parent there, and by those that entered later,
    whose parent is not there."""

    def __init__(self, root: int, entered: Collection[int] = ()) -> None:
        self._root, self._entered = root, entered
        self._born = _started(root)
        self.level = len(_numbers(root)) - 1

    def may_have(self, _near: End, _far: End) -> bool:
        """Not once it has ended: its number may be another's by now."""
        return self._born is not None and _started(self._root) == self._born

    def table(self, name: str) -> str:
        return f"/proc/{self._root}/net/{name}"

    def pids(self, tick: Tick) -> Iterator[int]:
        waiting = [self._root, *self._entered]
        while waiting:
            pid = waiting.pop()
            yield pid
            waiting += _children(pid, tick)


def find(place: Place, near: End, far: End, tick: Tick) -> Process | None:
    """The process there whose connection goes from `near` to `far`, or was on its way there redirected."""
    inode = _inode(place, near, far, tick) if place.may_have(near, far) else None
    if inode is None:
        return None
    link = f"socket:[{inode}]"
    holders = (pid for pid in islice(place.pids(tick), _MOST_PROCESSES) if _has(pid, link, tick))
    found = next(holders, None)
    return None if found is None else _describe(_eldest(found, link, tick), place.level)


def _inode(place: Place, near: End, far: End, tick: Tick) -> int | None:
    for name in proctables.tables(near[0]):
        try:
            table = _read(place.table(name), _MOST_TABLE, tick)
        except FileNotFoundError:  # a kernel without IPv6
            continue
        if (inode := proctables.owner(table, name, near, far)) is not None:
            return inode
    return None


def _has(pid: int, link: str, tick: Tick) -> bool:
    """Whether a process has this among its descriptors."""
    folder = f"/proc/{pid}/fd"
    try:
        for count, name in enumerate(os.listdir(folder)):
            if not count % 64:
                tick()
            if _leads_to(f"{folder}/{name}") == link:
                return True
    except _GONE:
        pass
    return False


def _leads_to(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # closed since it was listed
        return ""


def _eldest(pid: int, link: str, tick: Tick) -> int:
    """Who forks hands its sockets on: of those in one line that have it, the first has made it."""
    for _ in range(_MOST_FORKED):
        parent = proctables.parent(_read(f"/proc/{pid}/status"))
        if not parent or not _has(parent, link, tick):
            break
        pid = parent
    return pid


def _describe(pid: int, level: int) -> Process | None:
    numbers = _numbers(pid)
    if len(numbers) <= level:  # it is not of that sandbox
        return None
    exe, command = commandline.fit(_leads_to(f"/proc/{pid}/exe")), commandline.shown(_command(pid))
    return Process(pid=numbers[level], exe=exe or UNSET, command=command or UNSET)


def _children(pid: int, tick: Tick) -> Iterator[int]:
    """Each thread has its own."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            tick()
            yield from proctables.children(_read(f"/proc/{pid}/task/{thread}/children"))
    except _GONE:
        return


def _numbers(pid: int) -> tuple[int, ...]:
    try:
        return proctables.pids(_read(f"/proc/{pid}/status"))
    except _GONE:
        return ()


def _started(pid: int) -> int | None:
    try:
        return proctables.started(_read(f"/proc/{pid}/stat"))
    except _GONE:
        return None


def _command(pid: int) -> bytes:
    try:
        return _read(f"/proc/{pid}/cmdline", commandline.MOST_BYTES)
    except _GONE:
        return b""


def _read(path: str, most: int = _MOST_TEXT, tick: Tick = lambda: None) -> bytes:
    """A file of the kernel's, which gives a page of it at a time."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces, room = [], most
        while room > 0 and (piece := os.read(fd, room)):
            pieces.append(piece)
            room -= len(piece)
            tick()
        return b"".join(pieces)
    finally:
        os.close(fd)
