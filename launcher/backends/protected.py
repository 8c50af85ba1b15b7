"""Protected files, where nothing can keep them as they are: what a run has changed of them is told at its end.

Looked at is what the kernel notes of each (its number, times, size, mode), not what is in it: the time of a change
cannot be set by anybody. Directories are looked into, up to a bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from launcher.mounts import Kind
from launcher.plan import Plan

_MOST = 4096
Mark = tuple[int, ...]


class Protected:
    """Made before the run; `changed` after it."""

    def __init__(self, plan: Plan) -> None:
        kept = [mount.path for mount in plan.mounts if mount.beneath and mount.kind is Kind.READ]
        self._paths = (*kept, *(f"{place.root}/{place.path}" for place in plan.placeholders))
        self._before = self._marks()

    def changed(self) -> list[str]:
        after = self._marks()
        return sorted(path for path in {*self._before, *after} if self._before.get(path) != after.get(path))

    def _marks(self) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        for path in self._paths:
            for each in _with_entries(path):
                if len(found) < _MOST and (mark := _mark(each)) is not None:
                    found[each] = mark
        return found


def _with_entries(path: str) -> Iterator[str]:
    yield path
    for directory, folders, files in os.walk(path):
        yield from (f"{directory}/{name}" for name in (*folders, *files))


def _mark(path: str) -> Mark | None:
    try:
        it = os.lstat(path)
    except OSError:
        return None
    return (it.st_ino, it.st_mode, it.st_size, it.st_mtime_ns, it.st_ctime_ns)
