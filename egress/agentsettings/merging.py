"""What should be there, put into what is there, so that it can be taken out again.

A settings file is a person's, and part of what it says is ours. Which part stands in the file itself, under the key
`egress`: `added` has what was not there before, in the shape of the settings; `replaced` has what stood in its
place. So file and record change together or not at all, and the next run, for whatever persona, knows what to take
away: what is in `added`, as long as it is still as it was written.

    a list       keeps its own entries in their order, loses ours that are no longer wanted, gets new ones at its end
    an object    the same, key by key
    a value      is set where there is none. One of the person's own stays, unless it is insisted on: then it is
                 replaced, which is told, and it comes back when ours goes
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

Tree = dict[str, Any]
Path = tuple[str, ...]
KEY = "egress"
_NONE: Any = object()  # null is a value


class Misfit(Exception):
    """Something else stands where settings are expected."""


class Record(NamedTuple):
    persona: str = ""
    added: Mapping[str, Any] = {}
    replaced: Mapping[str, Any] = {}
    created: bool = False  # the file itself

    @classmethod
    def of(cls, settings: Tree) -> Record:
        """What the last run has left."""
        kept = settings.get(KEY, {})
        record = cls(**kept) if isinstance(kept, dict) and kept.keys() <= {*cls._fields} else None
        if record is None or not all(map(isinstance, record, _KINDS)):
            raise Misfit(
                f"{KEY!r} is not the record of an earlier run, expected an object with {', '.join(cls._fields)}"
            )
        return record


_KINDS = (str, dict, dict, bool)


class Replaced(NamedTuple):
    """A value of the person's that ours took the place of."""

    path: Path
    theirs: Any
    ours: Any


class Merged(NamedTuple):
    settings: Tree
    replaced: tuple[Replaced, ...] = ()


def merge(settings: Tree, wanted: Tree, persona: str, insisted: Container[Path], *, created: bool) -> Merged:
    """The settings with our part as it should be; with nothing wanted, without it."""
    record = Record.of(settings)
    theirs = {key: value for key, value in settings.items() if key != KEY}
    weave = _Weave(insisted)
    slot = weave.object((), _Slot(theirs, record.added, record.replaced, wanted))
    merged = slot.now
    if wanted:
        made = Record(persona, slot.added, slot.replaced, created or record.created)
        merged = _placed(settings, merged, {name: value for name, value in made._asdict().items() if value})
    return Merged(merged, tuple(weave.told))


def _placed(settings: Tree, merged: Tree, record: Tree) -> Tree:
    """The record where it was, or at the end."""
    keys = dict.fromkeys([*settings, *merged, KEY])
    whole = {**merged, KEY: record}
    return {key: whole[key] for key in keys if key in whole}


class _Slot(NamedTuple):
    """One place in the settings: what is there, what we had added and replaced, what is wanted."""

    here: Any
    added: Any
    replaced: Any
    wanted: Any

    def child(self, key: str) -> _Slot:
        return _Slot(*(tree.get(key, _NONE) if isinstance(tree, dict) else _NONE for tree in self))


class _Woven(NamedTuple):
    """The same place afterwards."""

    now: Any
    added: Any = _NONE
    replaced: Any = _NONE


class _Weave:
    def __init__(self, insisted: Container[Path]) -> None:
        self._insisted = insisted
        self.told: list[Replaced] = []

    def object(self, path: Path, slot: _Slot) -> _Woven:
        trees = [tree for tree in (slot.here, slot.added, slot.wanted) if isinstance(tree, dict)]
        woven = {key: self._any((*path, key), slot.child(key)) for key in dict.fromkeys(chain(*trees))}
        return _Woven(
            {key: one.now for key, one in woven.items() if one.now is not _NONE},
            {key: one.added for key, one in woven.items() if one.added is not _NONE},
            {key: one.replaced for key, one in woven.items() if one.replaced is not _NONE},
        )

    def _any(self, path: Path, slot: _Slot) -> _Woven:
        ours = slot.added if slot.wanted is _NONE else slot.wanted
        if ours is _NONE:
            return _Woven(slot.here)
        if not isinstance(ours, dict | list):
            return self._value(path, slot)
        _check(path, slot.here, type(ours))
        return _kept(slot, self.object(path, slot) if isinstance(ours, dict) else _list(slot))

    def _value(self, path: Path, slot: _Slot) -> _Woven:
        here, added, replaced, wanted = slot
        is_ours = here is _NONE or (added is not _NONE and _same(here, added))
        if wanted is _NONE:
            return _Woven(here if here is _NONE or not is_ours else replaced)
        if is_ours:
            return _Woven(wanted, wanted, replaced)
        if _same(here, wanted) or path not in self._insisted:
            return _Woven(here)
        self.told.append(Replaced(path, here, wanted))
        return _Woven(wanted, wanted, here)


def _kept(slot: _Slot, woven: _Woven) -> _Woven:
    """An object or a list that was there, though empty, is there again when ours is gone; others go with it."""
    empty = type(woven.now)()
    was_empty = (slot.added is _NONE and slot.here == empty) or slot.replaced == empty
    if slot.wanted is _NONE:
        return _Woven(woven.now if woven.now or was_empty else _NONE)
    replaced = empty if was_empty else _NONE
    return woven._replace(replaced=woven.replaced if isinstance(woven.replaced, dict) and woven.replaced else replaced)


def _list(slot: _Slot) -> _Woven:
    lists = slot.here, slot.added, slot.wanted
    here, added, wanted = (entries if isinstance(entries, list) else [] for entries in lists)
    kept = [entry for entry in here if entry not in added or entry in wanted]
    new = [entry for entry in wanted if entry not in kept]
    return _Woven([*kept, *new], [entry for entry in wanted if entry in added or entry in new])


def _check(path: Path, here: Any, kind: type) -> None:
    if here is not _NONE and not isinstance(here, kind):
        expected = "a list" if kind is list else "an object"
        raise Misfit(f"{'.'.join(path)} is {here!r}, expected {expected}")


def _same(one: Any, other: Any) -> bool:
    """In JSON: 1 is not true."""
    return type(one) is type(other) and bool(one == other)


def own(settings: Tree, path: Iterable[str]) -> list[Any]:
    """The entries of a list that are the person's."""
    here: Any = settings
    added: Any = Record.of(settings).added
    for key in path:
        here, added = (tree.get(key, []) if isinstance(tree, Mapping) else [] for tree in (here, added))
    return [entry for entry in here if entry not in added] if isinstance(here, list) else []
