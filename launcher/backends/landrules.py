"""A plan's mounts as Landlock's rules: the same sight of the host's files, as far as rules can give it. Pure.

Mounts hide widely and give back by name, and the last word on a path counts. Rules can only give, to a path and all
that is below it. So a tree with something in it that must not be given is not given itself: its entries are, one by
one, down to what is left out. Such a directory can then be passed through, but neither be listed nor have new entries.

For a writable tree that is a high price, and is paid only for what must be hidden. A protected file cannot be kept at
all: who may make files in a directory may replace those in it. That is left to `protected`, and said to be lacking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum

from launcher.landlock import DEVICE, READ, TERMINAL, WRITE, Rule
from launcher.mounts import Kind, Mount, is_within

PROC = "/proc"
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TTY = "/dev/tty"

Entries = Callable[[str], Iterable[str]]  # the paths in a directory, without links
Stands = Callable[[str], bool]  # whether there is something at a path that can be opened


class Shown(IntEnum):
    """How much of a path is to be had; each more than the last."""

    NOTHING = 0
    READ = 1
    WRITE = 2


_RIGHTS = {Shown.READ: READ, Shown.WRITE: WRITE}
_SHOWN = {
    Kind.READ: Shown.READ,
    Kind.WRITE: Shown.WRITE,
    Kind.SCRATCH: Shown.NOTHING,
    Kind.EMPTY: Shown.NOTHING,
    Kind.CLOSED: Shown.NOTHING,
    Kind.DEVICES: Shown.NOTHING,  # but for those below
    Kind.PROCESSES: Shown.READ,  # all of them: entries come and go, and cannot be given one by one
}


def sight(mounts: Iterable[Mount], stands: Stands) -> dict[str, Shown]:
    """What each mount says of its path, where that can be said with rules; the last word counts."""
    found: dict[str, Shown] = {}
    for mount in mounts:
        shown = _SHOWN.get(mount.kind)
        is_left_out = mount.beneath or (mount.path != PROC and is_within(mount.path, PROC))
        if shown is not None and not is_left_out and stands(mount.path):
            found[mount.path] = shown
    return found


def rules(seen: Mapping[str, Shown], entries: Entries) -> Iterator[Rule]:
    for path, shown in seen.items():
        if shown is not Shown.NOTHING:
            yield from _below(path, shown, seen, entries)


def devices() -> Iterator[Rule]:
    """A terminal can be asked about itself; of the others nobody needs that."""
    yield from (Rule(path, DEVICE) for path in DEVICES)
    yield Rule(TTY, TERMINAL)


def closed_to_new(seen: Mapping[str, Shown]) -> list[str]:
    """Writable directories in which nothing can be made, for what is hidden in them."""
    writable = [path for path, shown in seen.items() if shown is Shown.WRITE]
    return [path for path in writable if _has_less(path, Shown.WRITE, seen)]


def _below(path: str, shown: Shown, seen: Mapping[str, Shown], entries: Entries) -> Iterator[Rule]:
    if not _has_less(path, shown, seen):
        yield Rule(path, _RIGHTS[shown])
        return
    for entry in entries(path):
        if entry not in seen:
            yield from _below(entry, shown, seen, entries)


def _has_less(path: str, shown: Shown, seen: Mapping[str, Shown]) -> bool:
    return any(other != path and is_within(other, path) and less < shown for other, less in seen.items())
