"""What is on this machine that a plan must know: paths, links, sockets, repositories.

This is the only part of planning that looks. It reads and never writes, asks no other program, and stays
within a few milliseconds. Every path that it hands on is free of links: bwrap mounts by path and would
follow them.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from launcher import sockets
from launcher.asked import absolute, asked
from launcher.etc import texts
from launcher.mounts import HOMES, PROC, SCRATCH, SECRETS, Kind, PlanError, Row, is_within
from launcher.plan import HOSTNAME, Facts, Grant, Hidden, Request
from launcher.project import nested, project_directory, repository
from launcher.protect import CLAUDE, PROJECT, Found, Guard
from launcher.search import Patterns, is_pattern, locate, search
from launcher.tools import Needs, Places, needs, trace, which

MOST_NESTED = 8  # repositories below the project whose hooks are looked after
MOST_MATCHES = 32  # each costs a bind
_CODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Guards = Iterable[tuple[str, Guard]]  # with the directory that each is for

# What of the home directory is there without being asked for, if it exists. A missing ~/.claude.json can
# be written inside, but only to the sandbox's own home: on the host no file is made for it.
HOME = (
    (Kind.WRITE, ".claude", "the agent's sessions and login"),
    (Kind.WRITE, ".claude.json", "the agent's sessions and login"),
    (Kind.READ, ".gitconfig", "who commits"),
    (Kind.READ, ".config/git/config", "who commits"),
    (Kind.READ, ".config/git/ignore", "what git ignores"),
    (Kind.READ, ".config/git/attributes", "how git shows files"),
)
# The gate's own directories, by the variable that moves them.
GATE = (("XDG_STATE_HOME", ".local/state"), ("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))


class Person(NamedTuple):
    name: str
    home: str
    real_home: str


def survey(request: Request, environ: Mapping[str, str]) -> Facts:
    person = _person(environ)
    project = project_directory(request.project, person.real_home)
    repo = repository(project)
    wishes = asked(request, project, person.real_home)
    grants = (
        *(Grant(Kind.WRITE, path, "the project's git directory") for path in repo.elsewhere),
        *_home_grants(person.real_home, [grant.path for grant in wishes.grants if grant.kind is Kind.WRITE]),
        *wishes.grants,
    )
    writable = (project, *(grant.path for grant in grants if grant.kind is Kind.WRITE))
    guards = (*repo.guards, *wishes.guards, *_fixed_guards(request, person, environ, writable))
    found, complaints = _protected(project, guards, _rows(request), wishes.lifted)
    scratch, hidden = tuple(_scratch(person.real_home)), tuple(_hidden())
    places = _places(person.real_home, scratch, writable, grants)
    program, needed = _tools(request, environ, places, project)
    return Facts(
        environ=environ,
        user=person.name,
        home=person.home,
        real_home=person.real_home,
        project=project,
        program=program,
        scratch=scratch,
        hidden=hidden,
        grants=grants,
        lifted=wishes.lifted,
        guards=found,
        binds=needed.binds,
        links=(*needed.links, *wishes.links, *trace(person.home).links),
        sockets=_sockets(places._replace(readable=(*places.readable, *needed.binds))),
        granted_sockets=wishes.sockets,
        texts=tuple(texts(request.nameserver, HOSTNAME, person.name, person.home)),
        notes=(*repo.notes, *wishes.notes, *complaints, *_notes(person, program, writable)),
    )


def _person(environ: Mapping[str, str]) -> Person:
    try:
        entry = pwd.getpwuid(os.getuid())
        name, home = entry.pw_name, environ.get("HOME") or entry.pw_dir
    except KeyError:  # containers run as any number
        name, home = environ.get("USER") or str(os.getuid()), environ.get("HOME", "")
    real = os.path.realpath(home) if home.startswith("/") else ""
    if real == "/":
        raise PlanError("the home directory is '/', which cannot be hidden", "HOME=/some/directory names another")
    if not os.path.isdir(real):
        return Person(name, "/tmp", "/tmp")  # noqa: S108  # the sandbox's own
    return Person(name, home, real)


def _home_grants(home: str, writable: Iterable[str]) -> Iterator[Grant]:
    """What is writable anyway is passed over: a link there may lead anywhere."""
    for kind, name, why in HOME:
        path = f"{home}/{name}"
        found = trace(path)
        is_given = any(is_within(path, top) for top in writable)
        if not is_given and os.path.lexists(found.path) and not is_within(home, found.path):
            yield Grant(kind, found.path, why, found.links)


def _scratch(home: str) -> Iterator[Row]:
    seen = set()
    for row in (*SCRATCH, Row(home, "the home directory, with nothing in it")):
        path = os.path.realpath(row.path)
        if path not in seen and os.path.isdir(path):
            seen.add(path)
            yield row._replace(path=path)


def _hidden() -> Iterator[Hidden]:
    """Rows that exist and that this user could use at all."""
    seen = set()
    for row in (*HOMES, *SECRETS, *PROC):
        for path in _expanded(row.path):
            real = os.path.realpath(path)
            is_dir = os.path.isdir(real)
            usable = os.access(real, os.R_OK) or os.access(real, os.W_OK) or (is_dir and os.access(real, os.X_OK))
            if usable and real not in seen:
                seen.add(real)
                yield Hidden(row._replace(path=real), is_dir)


def _expanded(path: str) -> list[str]:
    if not is_pattern(path):
        return [path]
    directory, _, name = path.rpartition("/")
    guard = Guard(name, "")
    return [found.where for found in search(directory, Patterns([guard])).found]


def _places(home: str, scratch: Iterable[Row], writable: tuple[str, ...], grants: Iterable[Grant]) -> Places:
    hidden = (*(os.path.realpath(row.path) for row in HOMES), *(row.path for row in scratch))
    readable = tuple(grant.path for grant in grants if grant.kind is Kind.READ)
    return Places(home, hidden, writable, readable)


def _tools(request: Request, environ: Mapping[str, str], places: Places, project: str) -> tuple[str | None, Needs]:
    path = environ.get("PATH", "")
    program = which(request.command[0], path, request.directory or project) if request.command else None
    return program, needs(program, path, places)


def _sockets(places: Places) -> tuple[str, ...]:
    with open(sockets.TABLE, errors="surrogateescape") as table:
        return sockets.present(path for path in sockets.paths(table.read()) if not places.hides(path))


def _rows(request: Request) -> list[Guard]:
    rows = [Guard(path, "the persona protects it") for path in request.filesystem.protect if path[:1] not in "~/"]
    return [*PROJECT, *rows]


def _fixed_guards(
    request: Request, person: Person, environ: Mapping[str, str], writable: tuple[str, ...]
) -> Iterator[tuple[str, Guard]]:
    """Guards that are not the project's: the agent's settings, the gate's files, paths that the persona names."""
    home = person.real_home
    claude = trace(f"{home}/.claude").path
    if claude in writable:
        yield from ((claude, guard) for guard in CLAUDE)
    for variable, default in GATE:
        base = environ.get(variable, "")
        base = base if base.startswith("/") else f"{home}/{default}"
        yield _placed(f"{base}/egress/", "the gate's own files", writable, hide=True)
    for own in request.own:
        yield _placed(absolute(own.path, request.directory or "/", home), own.why, writable, hide=own.hide)
    for package in ("egress", "launcher"):
        yield _placed(f"{_CODE}/{package}/", "the launcher's own code", writable)
    for path in request.filesystem.protect:
        if path[:1] in "~/":
            yield _placed(absolute(path, "/", home), "the persona protects it", writable)


def _placed(path: str, why: str, writable: Iterable[str], hide: bool = False) -> tuple[str, Guard]:
    """The guard of an absolute path, for the innermost writable directory around it if there is one."""
    slash = "/" if path.endswith("/") else ""
    for plain in (os.path.normpath(path), os.path.realpath(path)):
        around = [top for top in writable if plain != top and is_within(plain, top)]
        if around:
            root = max(around, key=len)
            return root, Guard(plain[len(root) + 1 :] + slash, why, hide=hide)
    return "", Guard(os.path.realpath(path)[1:] + slash, why, hold=False, hide=hide)


def _protected(
    project: str, guards: Guards, rows: list[Guard], lifted: frozenset[str]
) -> tuple[tuple[Found, ...], list[str]]:
    matched = search(project, Patterns(rows))
    exact = [(project, row) for row in rows if not is_pattern(row.path)]
    wanted = [(root, guard) for root, guard in (*guards, *exact) if f"{root}/{guard.path.rstrip('/')}" not in lifted]
    found = [locate(root, guard) for root, guard in wanted]
    for path in matched.repositories[:MOST_NESTED]:
        found += [_loosened(locate(root, guard), path.count("/")) for root, guard in nested(project, path)]
    complaints = []
    if not matched.complete:
        complaints.append("the project is large: files deep in it that match a pattern may be writable")
    if len(matched.found) > MOST_MATCHES:
        complaints.append(f"{len(matched.found) - MOST_MATCHES} more files match a pattern, and are writable")
    return (*(it for it in found if it is not None), *matched.found[:MOST_MATCHES]), complaints


def _loosened(found: Found | None, parents: int) -> Found | None:
    return found and found._replace(loose=parents)


def _notes(person: Person, program: str | None, writable: Iterable[str]) -> Iterator[str]:
    if person.real_home == "/tmp":  # noqa: S108
        yield "there is no home directory: it is /tmp inside"
    if program and os.path.basename(program) == "claude":
        for name in (".claude", ".claude.json"):
            if not os.path.lexists(f"{person.real_home}/{name}"):
                yield f"~/{name} does not exist: what the agent writes there ends with the sandbox"
    if any(is_within(sys.prefix, top) for top in writable):
        yield f"the launcher runs from {sys.prefix!r}, which the sandbox can write"
