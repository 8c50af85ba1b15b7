"""Layers of files → one book of definitions.

The shipped files lie below the user's, and those below each `--policy` file in its order. Within a
layer a name is defined once. A definition in a later layer replaces the one of the same name whole;
where it names itself (`extends: reviewer` in persona reviewer, `"@github"` in group github) it means
the one it replaced, and so adds to it. Everybody else who uses the name sees the latest.

Names that lead nowhere or round in a circle are found here, in all files at once, whether or not the
persona that is about to run would have met them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from egress.model import Host, Source
from egress.policy import Fixed
from egress.policybook import Book, Tools, no_tools
from egress.policyfile import Document, Entries, Group, Profile, Ref
from egress.problems import Problems, near

Layer = Sequence[Document]
Definition = TypeVar("Definition", Group, Profile)
_MAX_LISTED = 50


def bind(layers: Iterable[Layer], tools: Tools = no_tools) -> Book:
    """Put layers over each other, the lowest first; raises `PolicyError` for all that does not fit."""
    problems = Problems()
    book = Book({}, {}, {}, tools)
    for layer in layers:
        book = Book(
            _overlay(book.groups, [document.groups for document in layer], "group", problems),
            _overlay(book.personas, [document.personas for document in layer], "persona", problems),
            {**book.hosts, **_hosts(layer, problems)},
            tools,
            (*book.remarks, *(remark for document in layer for remark in document.remarks)),
        )
    groups, profiles = list(_all(book.groups.values())), list(_all(book.personas.values()))
    _check_groups(book, groups, profiles, problems)
    _check_parents(book, profiles, problems)
    problems.settle()
    return book


def _overlay(
    below: Mapping[str, Definition], layer: Sequence[Mapping[str, Definition]], noun: str, problems: Problems
) -> dict[str, Definition]:
    added: dict[str, Definition] = {}
    for name, definition in chain.from_iterable(names.items() for names in layer):
        if name in added:
            problems.add(definition.source, f"{noun} {name!r} is already defined in {added[name].source}")
        else:
            added[name] = definition._replace(below=below.get(name))
    return {**below, **added}


def _hosts(layer: Layer, problems: Problems) -> dict[Host, tuple[Fixed, Source]]:
    added: dict[Host, tuple[Fixed, Source]] = {}
    for host, (fixed, source) in chain.from_iterable(document.hosts.items() for document in layer):
        if host in added:
            problems.add(source, f"host {host!r} already has an address in {added[host][1]}")
        added.setdefault(host, (fixed, source))
    return added


def _all(definitions: Iterable[Definition]) -> Iterator[Definition]:
    """The definitions, and those that they replaced."""
    for definition in definitions:
        layer: Definition | None = definition
        while layer is not None:
            yield layer
            layer = layer.below


def _refs(entries: Iterable[Entries]) -> Iterator[Ref]:
    return (entry for entry in chain.from_iterable(entries) if isinstance(entry, Ref))


def _check_groups(book: Book, groups: list[Group], profiles: list[Profile], problems: Problems) -> None:
    for group in groups:
        for ref in _refs([group.entries]):
            if not book.group(ref, group):
                problems.add(ref.source, _no_group(book, ref, group))
    for ref in _refs(chain.from_iterable((profile.allow, profile.deny) for profile in profiles)):
        if not book.group(ref, None):
            problems.add(ref.source, _no_group(book, ref, None))
    _check_circles("group", groups, lambda group: [book.group(ref, group) for ref in _refs([group.entries])], problems)


def _check_parents(book: Book, profiles: list[Profile], problems: Problems) -> None:
    for profile in profiles:
        if profile.extends and not book.parent(profile):
            problems.add(profile.extends.source, _no_parent(book, profile, profile.extends.name))
    _check_circles("persona", profiles, lambda profile: [book.parent(profile)], problems)


def _no_group(book: Book, ref: Ref, inside: Group | None) -> str:
    if inside and ref.name == inside.name:
        return f"group {ref.name!r} contains itself, and no layer below defines it"
    return f"unknown group '@{ref.name[:80]}'{near(ref.name, book.groups)} (groups: {_list(book.groups)})"


def _no_parent(book: Book, profile: Profile, name: str) -> str:
    if name == profile.name:
        return f"persona {name!r} extends itself, and no layer below defines it"
    return f"unknown persona {name[:80]!r}{near(name, book.personas)} (personas: {_list(book.personas)})"


def _list(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)[:_MAX_LISTED]) or "none"


def _check_circles(
    noun: str,
    definitions: Sequence[Definition],
    uses: Callable[[Definition], Iterable[Definition | None]],
    problems: Problems,
) -> None:
    from graphlib import CycleError, TopologicalSorter

    by_id = {id(definition): definition for definition in definitions}
    try:
        TopologicalSorter({key: [id(used) for used in uses(one) if used] for key, one in by_id.items()}).prepare()
    except CycleError as error:
        circle = [by_id[key] for key in reversed(error.args[1])]
        path = " → ".join(definition.name for definition in circle)
        problems.add(circle[0].source, f"{noun} {circle[0].name!r} leads back to itself: {path}")
