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

from egress.record import NamedTuple
from launcher import gitconfig, sockets
from launcher.aftermath import remember
from launcher.asked import absolute, asked
from launcher.etc import texts
from launcher.mounts import HOMES, PROC, SCRATCH, SECRETS, Kind, PlanError, Row, is_within
from launcher.plan import HOSTNAME, Facts, Grant, Hidden, Repositories
from launcher.project import nested, other_tree, project_directory, read_text, repository
from launcher.protect import CLAUDE, PROJECT, Found, Guard
from launcher.request import Request
from launcher.search import Patterns, Search, is_pattern, locate, search
from launcher.tools import Needs, Places, needs, trace, which

MOST_NESTED = 16  # repositories below the project whose hooks are looked after
MOST_MATCHES = 128  # each costs a bind
MOST_SOCKETS = 64  # in the project
_CODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Of a checkout also what its scripts run and what they read: it may be the project itself.
_OWN_CODE = ("egress/", "launcher/", "policies/", "scripts/", ".venv/", "pyproject.toml")
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
    repo = repository(project, person.real_home)
    wishes = asked(request, project, person.real_home)
    grants = (
        *(Grant(Kind.WRITE, path, "the project's git directory") for path in repo.elsewhere),
        *_home_grants(person.real_home, [grant.path for grant in wishes.grants if grant.kind is Kind.WRITE]),
        *wishes.grants,
    )
    writable = (project, *(grant.path for grant in grants if grant.kind is Kind.WRITE))
    trees = [path for path in writable[1:] if path not in repo.elsewhere]
    guards = (
        *repo.guards,
        *(guard for tree in trees for guard in other_tree(tree, person.real_home)),
        *wishes.guards,
        *_shared_git_guards(person, environ, [project, *trees], writable),
        *_fixed_guards(request, person, environ, writable),
    )
    rows = _rows(request)
    matched = search(project, Patterns(rows))
    others = _others(project, guards, matched)
    inner = [guard for path in others[:MOST_NESTED] for guard in nested(project, path, person.real_home)]
    found = _protected(project, (*guards, *inner), rows, wishes.lifted, matched)
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
        sockets=_sockets(places._replace(readable=(*places.readable, *needed.binds)), project, matched),
        granted_sockets=wishes.sockets,
        texts=tuple(texts(request.nameserver, HOSTNAME, person.name, person.home)),
        notes=(*repo.notes, *wishes.notes, *_notes(person, program, writable)),
        warnings=tuple(_warnings(matched, others)),
        repositories=_repositories(project, found, matched),
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
        for path in filter(_is_usable, _expanded(row.path)):
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                yield Hidden(row._replace(path=real), os.path.isdir(real))


def _is_usable(path: str) -> bool:
    return os.access(path, os.R_OK) or os.access(path, os.W_OK) or (os.path.isdir(path) and os.access(path, os.X_OK))


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


def _sockets(places: Places, project: str, matched: Search) -> tuple[str, ...]:
    met = [f"{project}/{path}" for path in matched.sockets[:MOST_SOCKETS]]
    with open(sockets.TABLE, errors="surrogateescape") as table:
        return sockets.present([*met, *(path for path in sockets.paths(table.read()) if not places.hides(path))])


def _rows(request: Request) -> list[Guard]:
    rows = [Guard(path, "the persona protects it") for path in request.filesystem.protect if path[:1] not in "~/"]
    return [*rows, *PROJECT]


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
    for path in (*(f"{_CODE}/{name}" for name in _OWN_CODE), f"{sys.prefix}/"):
        if os.path.lexists(path):
            yield _placed(path, "the launcher's own code, set-up and policy", writable)
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


def _shared_git_guards(
    person: Person, environ: Mapping[str, str], trees: Iterable[str], writable: Iterable[str]
) -> Iterator[tuple[str, Guard]]:
    """What the user's own configuration of git names, for every repository: where that can be written."""
    base = environ.get("XDG_CONFIG_HOME") or f"{person.real_home}/.config"
    for path in (f"{person.real_home}/.gitconfig", f"{base}/git/config"):
        config = read_text(trace(path).path)
        named = [it for tree in trees for it in gitconfig.named(config, tree, os.path.dirname(path), person.real_home)]
        for it in dict.fromkeys(named):
            if any(gitconfig.inside(it, top) for top in writable):
                yield _placed(it, "git's configuration names it", writable)


def _protected(
    project: str, guards: Guards, rows: list[Guard], lifted: frozenset[str], matched: Search
) -> tuple[Found, ...]:
    exact = [(project, row) for row in rows if not is_pattern(row.path)]
    wanted = [(root, guard) for root, guard in (*guards, *exact) if f"{root}/{guard.path.rstrip('/')}" not in lifted]
    found = [locate(root, guard, lifted) for root, guard in wanted]
    order = {row.path: place for place, row in enumerate(rows)}
    first = sorted(matched.found, key=lambda it: order[it.guard.path])[:MOST_MATCHES]
    return (*(it for it in found if it is not None), *first)


def _others(project: str, guards: Guards, matched: Search) -> list[str]:
    """Repositories further down that the project's own does not know of."""
    known = {guard.path for root, guard in guards if root == project}
    return [path for path in matched.repositories if path not in known]


def _repositories(project: str, found: Iterable[Found], matched: Search) -> Repositories:
    held = (it.path for it in found if it.root == project and it.path.endswith("/.git") and not it.missing)
    return remember(project, dict.fromkeys((*matched.repositories, *held)), matched.complete)


def _warnings(matched: Search, others: list[str]) -> Iterator[str]:
    """An earlier run may have made so many files that others are not looked after: never without a word."""
    if not matched.complete:
        yield "the project is large: files deep in it that match a protected name may be writable"
    if (more := len(matched.found) - MOST_MATCHES) > 0:
        yield f"{more} more files match a protected name, and are writable"
    if (more := len(others) - MOST_NESTED) > 0:
        yield f"{more} more repositories lie in the project, and their hooks are writable"
    if (more := len(matched.sockets) - MOST_SOCKETS) > 0:
        yield f"{more} more sockets lie in the project, and can be connected to"


def _notes(person: Person, program: str | None, writable: Iterable[str]) -> Iterator[str]:
    if person.real_home == "/tmp":  # noqa: S108
        yield "there is no home directory: it is /tmp inside"
    if program and os.path.basename(program) == "claude":
        for name in (".claude", ".claude.json"):
            if not os.path.lexists(f"{person.real_home}/{name}"):
                yield f"~/{name} does not exist: what the agent writes there ends with the sandbox"
    if any(is_within(sys.prefix, top) for top in writable):
        yield f"the launcher runs from {sys.prefix!r}, which the sandbox can write"
