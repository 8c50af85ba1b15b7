"""What a run has left in the project that has power on the host, to be told at its end.

A repository has hooks and a configuration, and git on the host runs what they name. Nothing can forbid a new
one (git itself makes them, for submodules and clones), but whoever runs git next should know that it is there.
Those that were there before are known by device and inode, and held where they are by mounts; where a mount
was lost, or one more than can be looked after was changed, that is told too.

    new         where the search at the start had looked, whatever is not known. Elsewhere (in packages of
                others, or too deep) some may have been there before, so only what the run itself wrote
    replaced    another inode at the path of a known one
    gone        nothing at the path of a known one
    changed     a configuration or a hook in a known one is younger than the run

What is younger is told by the time of the last change of the inode, which no program can set. The search is
bounded, in entries and in time, and it says when it has met a bound.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator

from egress.record import NamedTuple
from launcher.plan import Repositories, Repository
from launcher.project import read_text
from launcher.protect import GIT, GIT_COMMONDIR, GIT_PER_WORKTREE
from launcher.search import PASSED_OVER, entries

MOST_ENTRIES = 300_000
LONGEST = 3.0  # seconds; a cold disk is slower than these entries would be
MOST_TOLD = 16
_MOST_HOOKS = 256
_POWERS = tuple(guard.path.rstrip("/") for guard in (*GIT, GIT_PER_WORKTREE))
_POWERLESS = (GIT_COMMONDIR.stand_in, GIT_PER_WORKTREE.stand_in)
_HINT = "hint: read its config and hooks before running git there; `git status --ignore-submodules=all` leaves it alone"


class Looked(NamedTuple):
    repositories: tuple[str, ...]
    complete: bool


def remember(project: str, paths: Iterable[str], complete: bool) -> Repositories:
    """The repositories of a project, before a run."""
    found = ((path, _status(f"{project}/{path}")) for path in paths)
    known = (Repository(path, status.st_dev, status.st_ino) for path, status in found if status is not None)
    return Repositories(tuple(known), complete, time.time_ns())


def report(before: Repositories, project: str) -> list[str]:
    """What to say of them after it, in lines."""
    looked = look(project)
    lines = [f"warning: {line}" for line in (*_fates(before, project), *_new(before, project, looked.repositories))]
    told = lines[:MOST_TOLD]
    if more := len(lines) - len(told):
        told.append(f"warning: and {more} more repositories")
    if told:
        told.append(_HINT)
    if not looked.complete:
        told.append("warning: the project is too large to look for repositories that were made deep in it")
    return told


def look(project: str) -> Looked:
    """Every repository below the project; packages of others come last, where a bound is met first."""
    found: list[str] = []
    waiting, packages, count = deque([""]), deque[str](), 0
    until = time.monotonic() + LONGEST
    while waiting or packages:
        for entry, path in entries(project, [(waiting or packages).popleft()]):
            count += 1
            if entry.name == ".git":
                found.append(path)
            elif entry.is_dir(follow_symlinks=False):
                (packages if entry.name in PASSED_OVER else waiting).append(f"{path}/")
        if count > MOST_ENTRIES or time.monotonic() > until:
            return Looked(tuple(found), complete=False)
    return Looked(tuple(found), complete=True)


def _fates(before: Repositories, project: str) -> Iterator[str]:
    for known in before.known:
        status = _status(f"{project}/{known.path}")
        if status is None:
            yield f"the repository {known.path!r} is gone, which was there before the run"
        elif (status.st_dev, status.st_ino) != (known.device, known.inode):
            yield f"the repository {known.path!r} was replaced: git on the host would run what its configuration names"
        elif _is_younger(f"{project}/{known.path}", before.since):
            yield f"the repository {known.path!r} was changed: git on the host would run what its configuration names"


def _new(before: Repositories, project: str, found: Iterable[str]) -> Iterator[str]:
    known = {repository.path for repository in before.known}
    for path in sorted(set(found) - known - {".git"}):
        if _was_searched(before, path) or _is_younger(f"{project}/{path}", before.since):
            yield f"a repository was made in {path!r}: git on the host would run what its configuration names"


def _was_searched(before: Repositories, path: str) -> bool:
    return before.complete and PASSED_OVER.isdisjoint(path.split("/")[:-1])


def _is_younger(path: str, since: int) -> bool:
    """Whether what makes git run programs was written since."""
    status = _status(path)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return status is not None and status.st_ctime_ns > since
    powers = (f"{path}/{name}" for name in (*_POWERS, *_hooks(path)))
    return any(_has_power(power, since) for power in powers)


def _hooks(path: str) -> list[str]:
    try:
        return [f"hooks/{name}" for name in os.listdir(f"{path}/hooks")[:_MOST_HOOKS]]
    except OSError:
        return []


def _has_power(path: str, since: int) -> bool:
    """Young, and neither a placeholder nor anything else that does nothing; by what it is, as a mode can be copied."""
    status = _status(path)
    if status is None or status.st_ctime_ns <= since or stat.S_ISSOCK(status.st_mode):
        return False
    if stat.S_ISDIR(status.st_mode):
        return bool(os.listdir(path))
    return read_text(path) not in _POWERLESS


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
