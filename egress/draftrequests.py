"""Requests that were seen → methods with the paths that they were seen on.

A rule with two methods and two paths allows all four of their pairs. So paths are put together only with those
that were asked for by the very same methods, and each such set is a rule of its own. Three paths side by side
are `/dir/*`, as three hosts are `*.parent`; below the root nothing is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from egress.sightings import Request
from egress.urlpath import Ambiguous, canonical

SIBLINGS = 3
_LONGEST = 1900  # past that the log may have cut it
_METHOD = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_LITERAL = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()+,=:@-]|%[0-9A-F]{2})*)+")  # no star: that would stand for others


class Group(NamedTuple):
    methods: frozenset[str]
    paths: Mapping[str, int]  # with how many requests each was seen


def grouped(requests: Mapping[Request, int]) -> tuple[list[Group], list[Request]]:
    """Rules for the requests, and those requests that no rule can be written for."""
    counts: dict[str, Counter[str]] = {}
    strange = []
    for request, count in requests.items():
        path = _written(request)
        if count > 0 and path is None:
            strange.append(request)
        elif count > 0 and path is not None:
            counts.setdefault(path, Counter())[request.method] += count
    return _groups(counts), strange


def _written(request: Request) -> str | None:
    """The path as a rule has it, if it can."""
    if not _METHOD.fullmatch(request.method) or len(request.path) > _LONGEST:
        return None
    try:
        path = canonical(request.path)
    except Ambiguous:
        return None
    return path if _LITERAL.fullmatch(path) else None


def _groups(counts: Mapping[str, Counter[str]]) -> list[Group]:
    by_methods: dict[frozenset[str], dict[str, int]] = {}
    for path, methods in counts.items():
        by_methods.setdefault(frozenset(methods), {})[path] = methods.total()
    groups = [Group(methods, _narrowed(paths)) for methods, paths in by_methods.items()]
    return sorted(groups, key=lambda group: sorted(group.methods))


def _narrowed(paths: Mapping[str, int]) -> dict[str, int]:
    """With one glob in place of each three that stand side by side."""
    families: dict[str, list[str]] = {}
    for path in paths:
        directory, _, last = path.rpartition("/")
        families.setdefault(directory if last else path, []).append(path)
    found: dict[str, int] = {}
    for directory, members in families.items():
        if directory and len(members) >= SIBLINGS:
            found[f"{directory}/*"] = sum(paths[path] for path in members)
        else:
            found |= {path: paths[path] for path in members}
    return found
