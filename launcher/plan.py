"""What will be true in the sandbox, as values: from what was asked and what is there, to a list of mounts.

    Request   what the user and the persona ask for (`launcher.request`)
    Facts     what `launcher.survey` found on this machine that matters for it
    Plan      mounts in order, environment, command, placeholders, notes, warnings

The order of mounts is the argument:

    1. the host's root, read-only, with /dev, /proc and /sys of the sandbox's own
    2. what is hidden: homes, /tmp, /run, secrets
    3. what is given back: the project, its git directory, the agent's own files, what was asked for,
       and what PATH needs. Parents before children, so that the more specific word is the last
    4. what is protected inside that, and the gate's own files, however they were reached
    5. sockets that are still visible, and files that we replace

Nothing here touches the machine, so every row of the table can be tested by comparing values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from egress.record import NamedTuple
from launcher import env
from launcher.mounts import PROC_SYS, SYS, SYS_SHOWN, Kind, Mount, PlanError, Row, by_depth, covering, is_within
from launcher.protect import Found
from launcher.request import Request
from launcher.tools import Link

HOSTNAME = "sandbox"


class Grant(NamedTuple):
    """A path outside of the project that the sandbox gets to see."""

    kind: Kind
    path: str  # with no link in it
    why: str
    links: tuple[Link, ...] = ()


class Hidden(NamedTuple):
    row: Row
    is_dir: bool


class Repository(NamedTuple):
    """One of the repositories below the project, by its `.git`."""

    path: str
    device: int
    inode: int


class Repositories(NamedTuple):
    """Those that are known before the run, so that its end can tell what became of them."""

    known: tuple[Repository, ...] = ()
    complete: bool = True  # no other was there where a search looks
    since: int = 0  # when that was, in nanoseconds


class Facts(NamedTuple):
    environ: Mapping[str, str]
    user: str
    home: str  # as $HOME has it
    real_home: str
    project: str
    program: str | None = None  # the file that the command is
    scratch: tuple[Row, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    grants: tuple[Grant, ...] = ()
    lifted: frozenset[str] = frozenset()  # paths that were asked to be writable, so are not protected
    guards: tuple[Found, ...] = ()
    binds: tuple[str, ...] = ()  # what PATH needs
    links: tuple[Link, ...] = ()
    sockets: tuple[str, ...] = ()
    granted_sockets: tuple[str, ...] = ()
    texts: tuple[Mount, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    repositories: Repositories = Repositories()


class Placeholder(NamedTuple):
    """Something to stand at a path on the host while the sandbox runs, if nothing else does, to be mounted over."""

    root: str
    path: str
    is_dir: bool = False
    text: str = ""
    hide: bool = False


class Plan(NamedTuple):
    mounts: tuple[Mount, ...]
    env: Mapping[str, str]
    passed: frozenset[str]  # names of variables whose values are the user's
    directory: str
    command: tuple[str, ...]
    new_session: bool
    placeholders: tuple[Placeholder, ...] = ()  # for what is missing
    notes: tuple[str, ...] = ()  # told when asked
    warnings: tuple[str, ...] = ()  # told always: something that is promised does not hold here
    project: str = ""
    repositories: Repositories = Repositories()
    hostname: str = HOSTNAME


def plan(request: Request, facts: Facts) -> Plan:
    if not request.command:
        raise PlanError("no command was given", "egress-launch [options] -- COMMAND", status=2)
    mounts = _base(facts)
    mounts += _given(mounts, facts)
    links = _links(mounts, facts)
    guarded = _guarded(mounts, facts)
    mounts += [*links, *guarded]
    held = _held(guarded, facts)
    mounts += _sockets(mounts, facts)
    mounts += [*facts.texts, *request.files]
    return Plan(
        mounts=tuple(mounts),
        env=_environment(request, facts),
        passed=env.passed(request.env, request.set_env),
        directory=request.directory if is_within(request.directory, facts.project) else facts.project,
        command=request.command,
        new_session=not request.terminal,
        placeholders=tuple(_placeholder(found) for found in held if found.missing),
        notes=facts.notes,
        warnings=facts.warnings,
        project=facts.project,
        repositories=facts.repositories,
    )


def _base(facts: Facts) -> list[Mount]:
    mounts = [
        Mount(Kind.READ, "/", "programs and libraries of the host"),
        Mount(Kind.DEVICES, "/dev", "null, zero, random, a terminal; no disks"),
        Mount(Kind.PROCESSES, "/proc", "the sandbox's own processes"),
        Mount(Kind.READ, *PROC_SYS),
        Mount(Kind.EMPTY, *SYS),
        Mount(Kind.READ, *SYS_SHOWN),
    ]
    masks = {it.row.path: Mount(Kind.EMPTY if it.is_dir else Kind.CLOSED, *it.row) for it in facts.hidden}
    masks |= {row.path: Mount(Kind.SCRATCH, *row) for row in facts.scratch}
    for mask in by_depth(masks.values()):
        if mask.kind is Kind.SCRATCH or covering(mounts, mask.path).kind not in (Kind.EMPTY, Kind.SCRATCH):
            mounts.append(mask)
    return mounts


def _given(base: Sequence[Mount], facts: Facts) -> list[Mount]:
    given = {grant.path: Mount(grant.kind, grant.path, grant.why) for grant in facts.grants}
    given[facts.project] = Mount(Kind.WRITE, facts.project, "the project")
    asked = by_depth(given.values())
    tools: list[Mount] = []
    for tool in by_depth(Mount(Kind.READ, path, "programs that PATH or the command needs") for path in facts.binds):
        if not covering([*base, *asked, *tools], tool.path).shows_host:
            tools.append(tool)
    return by_depth([*asked, *tools])


def _links(mounts: Sequence[Mount], facts: Facts) -> list[Mount]:
    """Links are made again where they are out of sight, and nothing was bound in their place."""
    wanted = {link.path: link for link in facts.links}
    wanted |= {link.path: link for grant in facts.grants for link in grant.links}
    return [
        Mount(Kind.LINK, link.path, "as on the host", text=link.target)
        for link in wanted.values()
        if not covering(mounts, link.path).shows_host and not _is_parent(link.path, mounts)
    ]


def _guarded(before: Sequence[Mount], facts: Facts) -> list[Mount]:
    found = _wanted(facts)
    pins = {
        pin: Mount(Kind.WRITE, pin, "stays where it is", beneath=it.root) for it in found.values() for pin in it.pins
    }
    wanted = pins | {where: _guard(it) for where, it in found.items()}
    mounts = list(before)
    for mount in by_depth(wanted.values()):
        over = covering(mounts, mount.path)
        is_needed = over.kind is Kind.WRITE and (over.path != mount.path or mount.kind is not Kind.WRITE)
        if is_needed or (over.shows_host and _is_hidden(found.get(mount.path))):
            mounts.append(mount)
    return mounts[len(before) :]


def _wanted(facts: Facts) -> dict[str, Found]:
    """Guards by path; the first one of a path speaks for it."""
    return {found.where: found for found in reversed(facts.guards) if found.where not in facts.lifted}


def _held(mounts: Iterable[Mount], facts: Facts) -> list[Found]:
    """Those that came to a mount in something writable, where names come and go."""
    found = _wanted(facts)
    return [found[mount.path] for mount in mounts if mount.path in found and found[mount.path].root]


def _placeholder(found: Found) -> Placeholder:
    return Placeholder(found.root, found.path, found.is_dir, found.guard.stand_in, found.guard.hide)


def _guard(found: Found) -> Mount:
    guard = found.guard
    why = f"cannot be created: {guard.why}" if found.missing else guard.why
    if guard.hide or (found.missing and not guard.stand_in):
        return _closed(found, why)
    return Mount(Kind.READ, found.where, why, beneath=found.root)


def _closed(found: Found, why: str) -> Mount:
    if found.is_dir:
        return Mount(Kind.EMPTY, found.where, why)
    if found.guard.inside:
        return Mount(Kind.TEXT, found.where, why, text=found.guard.inside)
    return Mount(Kind.CLOSED, found.where, why)


def _is_hidden(found: Found | None) -> bool:
    return found is not None and found.guard.hide and not found.missing


def _sockets(mounts: Sequence[Mount], facts: Facts) -> list[Mount]:
    granted = [Mount(Kind.READ, path, "a socket that was asked for") for path in facts.granted_sockets]
    closed = [
        Mount(Kind.CLOSED, path, "a socket of the host")
        for path in facts.sockets
        if path not in facts.granted_sockets and covering(mounts, path).shows_host
    ]
    return [*closed, *granted]


def _is_parent(path: str, mounts: Iterable[Mount]) -> bool:
    return any(is_within(mount.path, path) for mount in mounts)


def _environment(request: Request, facts: Facts) -> dict[str, str]:
    return env.environment(
        facts.environ,
        identity={"HOME": facts.home, "USER": facts.user, "LOGNAME": facts.user},
        persona=request.env,
        ours=request.variables,
        flags=request.set_env,
        proxy=request.proxy,
        capture=request.capture,
    )
