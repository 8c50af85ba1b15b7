"""The paths that a persona and its user ask for, read as what they mean for this project.

Outside of the project a path is a grant: seen or not, writable or not. Inside it everything is writable
already, so asking for `write` there only lifts a protection, while `read` and `hide` are protections.

A persona's paths are relative to the project and a missing one is skipped with a note, since personas are
written for many machines; a flag is relative to where the user is, and must name something.

Links are followed, but none that an earlier run could have made: below a writable directory, a path that
leads out of it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from egress.record import NamedTuple
from launcher.mounts import Kind, PlanError, is_within
from launcher.plan import Grant
from launcher.project import too_wide
from launcher.protect import Guard
from launcher.request import Request
from launcher.sockets import is_socket
from launcher.tools import Link, Trace, trace


class Wish(NamedTuple):
    kind: Kind
    path: str  # absolute
    why: str
    is_flag: bool = False


class Asked(NamedTuple):
    grants: tuple[Grant, ...]
    guards: tuple[tuple[str, Guard], ...]  # with the directory that each is for
    lifted: frozenset[str]
    sockets: tuple[str, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...]


def absolute(path: str, base: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(os.path.join(base, path))


def asked(request: Request, project: str, home: str) -> Asked:
    wishes = _wishes(request, project, home)
    kinds = {path: Kind.WRITE for path in (project, f"{home}/.claude") if os.path.isdir(path)}
    kinds |= {wish.path: wish.kind for wish in wishes}
    writable = [path for path, kind in kinds.items() if kind is Kind.WRITE]
    inside = [wish for wish in wishes if is_within(wish.path, project)]
    outside = [(wish, _follow(wish.path, writable)) for wish in wishes if not is_within(wish.path, project)]
    new = [(wish, found) for wish, found in outside if wish.kind is not _kind_around(wish, kinds)]
    here = request.directory or project
    usual = [absolute(path, project, home) for path in request.usual_sockets]
    places = [*(absolute(path, here, home) for path in request.sockets), *filter(os.path.lexists, usual)]
    sockets = [_socket(path, writable) for path in dict.fromkeys(places)]
    missing = [*_missing(new), *(path for path in usual if not os.path.lexists(path))]
    return Asked(
        grants=tuple(_grant(wish, found, home) for wish, found in new if _is_there(wish, found)),
        guards=tuple((project, _guard(wish, project)) for wish in inside if wish.kind is not Kind.WRITE),
        lifted=_lifted(inside, outside),
        sockets=tuple(found.path for found in sockets),
        links=tuple(link for found in sockets for link in found.links),
        notes=tuple(f"{path!r} is not here" for path in missing),
    )


def _missing(wishes: Iterable[tuple[Wish, Trace]]) -> Iterator[str]:
    return (wish.path for wish, found in wishes if not os.path.lexists(found.path))


def _kind_around(wish: Wish, kinds: Mapping[str, Kind]) -> Kind | None:
    """What the innermost directory around it was asked to be: if the same, there is nothing more to mount."""
    around = [path for path in kinds if path != wish.path and is_within(wish.path, path)]
    return kinds[max(around, key=len)] if around else None


def _follow(path: str, writable: Iterable[str]) -> Trace:
    found = trace(path)
    for top in writable:
        if path != top and is_within(path, top) and not is_within(found.path, trace(top).path):
            raise PlanError(
                f"{path!r} leads to {found.path!r}: a sandbox that can write {top!r} may have made that link"
            )
    return found


def _wishes(request: Request, project: str, home: str) -> list[Wish]:
    here = request.directory or project
    by_persona = (
        (Kind.READ, request.filesystem.read, "the persona may read it"),
        (Kind.WRITE, request.filesystem.write, "the persona may write it"),
        (Kind.EMPTY, request.filesystem.hide, "the persona may not see it"),
    )
    by_flag = ((Kind.READ, request.read, "--ro"), (Kind.WRITE, request.write, "--rw"))
    found = [Wish(kind, absolute(path, project, home), why) for kind, paths, why in by_persona for path in paths]
    found += [Wish(kind, absolute(path, here, home), why, True) for kind, paths, why in by_flag for path in paths]
    return found


def _is_there(wish: Wish, found: Trace) -> bool:
    if os.path.lexists(found.path):
        return True
    if wish.is_flag:
        raise PlanError(f"{wish.why} {wish.path!r}: there is no such file or directory", f"mkdir -p {wish.path}")
    return False


def _grant(wish: Wish, found: Trace, home: str) -> Grant:
    path, kind = found.path, wish.kind
    if kind is Kind.EMPTY:
        kind = Kind.EMPTY if os.path.isdir(path) else Kind.CLOSED
    elif is_within(home, path):
        raise PlanError(f"{wish.path!r} holds the whole home directory", "name the directories in it that are needed")
    if kind is Kind.WRITE and (reason := too_wide(path, home)):
        raise PlanError(f"{wish.path!r} is {path!r}, {reason}: it cannot be writable", "name a directory below it")
    return Grant(kind, path, wish.why, found.links)


def _guard(wish: Wish, project: str) -> Guard:
    if wish.path == project:
        raise PlanError(f"the project {project!r} is what the sandbox is for: it can be neither read-only nor hidden")
    return Guard(wish.path[len(project) + 1 :], wish.why, hold=False, hide=wish.kind is Kind.EMPTY)


def _lifted(inside: Iterable[Wish], outside: Iterable[tuple[Wish, Trace]]) -> frozenset[str]:
    paths = [wish.path for wish in inside if wish.kind is Kind.WRITE]
    return frozenset(paths) | {found.path for wish, found in outside if wish.kind is Kind.WRITE}


def _socket(path: str, writable: Iterable[str]) -> Trace:
    found = _follow(path, writable)
    if not is_socket(found.path):
        raise PlanError(f"--socket {path!r} is not a socket")
    return found
