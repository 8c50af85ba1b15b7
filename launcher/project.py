"""The project: a directory that may be given away, and the git directories that belong to it.

A linked worktree or a submodule has its git directory elsewhere, named by a `.git` file, and git needs to
write there. But that file lies in the project, where a run may have written it: it could as well name
~/.ssh. So a git directory elsewhere is only believed when it names the project in return, which takes
having written there. Git keeps such names: a worktree's in `gitdir`, a submodule's in its `config`.

The same names, read the other way, say where in the project git will look for its submodules and worktrees.
Whoever could put another repository there would have its programs run by a `git status` at the top, so the
`.git` in each is guarded, wherever it is: in a directory that the search passes over, or too deep for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Iterator

from egress.record import NamedTuple
from launcher import gitconfig
from launcher.mounts import PlanError, is_within
from launcher.protect import GIT, GIT_COMMONDIR, GIT_FILE, GIT_PER_WORKTREE, NO_GIT, Guard

MOST_MODULES = 32
_DEEPEST_NAME = 4
_MOST_TEXT = 64 * 1024

# Whole trees that no project is in, and directories that are too much to give though one may be below.
_SYSTEM = (
    *("/proc", "/sys", "/dev", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix"),
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share", "/usr/include"),
)
_TOO_WIDE = (
    *("/", "/usr", "/usr/local", "/usr/src", "/var", "/var/lib", "/var/tmp", "/run", "/opt", "/srv"),  # noqa: S108
    *("/tmp", "/home", "/root", "/mnt", "/media"),  # noqa: S108
)
_PRIVATE = (".ssh", ".gnupg", ".aws", ".kube", ".docker", ".config", ".local", ".local/share", ".claude")


def project_directory(given: str, home: str) -> str:
    """The real path of a project that may be written to."""
    path = os.path.realpath(given)
    if not os.path.isdir(path):
        raise PlanError(f"the project {given!r} is not a directory", "--project DIR names one that exists")
    private = "where credentials are kept" if path in (f"{home}/{name}" for name in _PRIVATE) else ""
    if reason := too_wide(path, home) or private:
        raise PlanError(f"the project {given!r} is {path!r}, {reason}", "--project DIR names a directory of its own")
    return path


def too_wide(path: str, home: str) -> str:
    """Why a directory must not be writable; nothing if it may."""
    if home and is_within(home, path):
        return "which holds the whole home directory"
    if path in _TOO_WIDE or any(is_within(path, top) for top in _SYSTEM):
        return "a directory of the system"
    return ""


class _Place(NamedTuple):
    """Where a git directory is found, and whose it is."""

    root: str  # the writable directory that it is in
    project: str
    home: str


class Repository(NamedTuple):
    guards: tuple[tuple[str, Guard], ...] = ()  # with the directory that each is for
    elsewhere: tuple[str, ...] = ()  # git directories outside of the project, to be writable
    notes: tuple[str, ...] = ()


def repository(project: str, home: str = "") -> Repository:
    """The project's own repository, or the note that it has none."""
    path = f"{project}/.git"
    mode = _mode(path)
    if mode is not None and stat.S_ISLNK(mode):
        raise PlanError(f"{path!r} is a symbolic link: expected a directory, or a file that names one")
    if mode is not None and stat.S_ISREG(mode):
        return _linked(project, home)
    if not os.path.exists(f"{path}/HEAD"):
        return Repository(((project, NO_GIT),), notes=_without_repository(project))
    return Repository(tuple(_git_guards(_Place(project, project, home), path, project)))


def other_tree(tree: str, home: str) -> Iterator[tuple[str, Guard]]:
    """The guards of another writable directory, if it is a repository or a git directory itself."""
    mode = _mode(f"{tree}/.git")
    if mode is not None and not stat.S_ISDIR(mode):
        yield tree, GIT_FILE
    for directory in (f"{tree}/.git", tree):
        if os.path.isfile(f"{directory}/HEAD") and os.path.isdir(f"{directory}/objects"):
            yield from _git_guards(_Place(tree, tree, home), directory, tree)


def nested(project: str, path: str, home: str) -> Iterator[tuple[str, Guard]]:
    """The guards of a repository further down, whose `.git` is at a path in the project."""
    git, place = f"{project}/{path}", _Place(project, project, home)
    mode = _mode(git)
    if mode is not None and stat.S_ISREG(mode):
        yield project, GIT_FILE._replace(path=path)
        yield from _apart(place, git)
    elif mode is not None and stat.S_ISDIR(mode):
        yield from _git_guards(place, git, os.path.dirname(git))


def _apart(place: _Place, git_file: str) -> Iterator[tuple[str, Guard]]:
    """The guards of a git directory that lies elsewhere in the project, and not in the project's own."""
    directory = os.path.realpath(_target(git_file))
    is_here = gitconfig.inside(directory, place.project) and not is_within(directory, f"{place.project}/.git")
    if is_here and os.path.isfile(f"{directory}/HEAD"):
        yield from _git_guards(place, directory, os.path.dirname(git_file))


def _target(git_file: str) -> str:
    said = read_text(git_file).removeprefix("gitdir:").strip()
    return os.path.join(os.path.dirname(git_file), said)


def _linked(project: str, home: str) -> Repository:
    """A worktree or a submodule: its `.git` is a file."""
    git_file = (project, GIT_FILE)
    target = read_text(f"{project}/.git").removeprefix("gitdir:").strip()
    directory = os.path.realpath(os.path.join(project, target))
    if not target or not os.path.isfile(f"{directory}/HEAD"):
        return Repository((git_file,), notes=(f"'.git' names {target!r}, which is no git directory",))
    if is_within(directory, project):
        return Repository((git_file, *_git_guards(_Place(project, project, home), directory, project)))
    common = _common_directory(directory)
    if not _names_in_return(directory, common, project):
        return Repository((git_file,), notes=(f"'.git' names {directory!r}, which does not name this project",))
    return Repository((git_file, *_git_guards(_Place(common, project, home), common, project)), elsewhere=(common,))


def _common_directory(directory: str) -> str:
    """Where a worktree's repository is: two levels up, if its `commondir` says the same."""
    said = read_text(f"{directory}/commondir").strip()
    common = os.path.realpath(os.path.join(directory, said)) if said else directory
    return common if common == os.path.dirname(os.path.dirname(directory)) else directory


def _names_in_return(directory: str, common: str, project: str) -> bool:
    if common != directory:
        named = os.path.join(directory, read_text(f"{directory}/gitdir").strip())
        return os.path.realpath(named) == f"{project}/.git"
    worktrees = gitconfig.values(read_text(f"{directory}/config"), "worktree")
    return any(os.path.realpath(os.path.join(directory, path)) == project for path in worktrees)


def _git_guards(place: _Place, directory: str, top: str) -> Iterator[tuple[str, Guard]]:
    """Guards for the git directory of a working tree, and for its submodules and worktrees."""
    per_worktree = yield from _own_guards(place, directory, top)
    yield from _module_guards(place, directory)
    for worktree in _directories(f"{directory}/worktrees"):
        yield from _below(place.root, worktree, (GIT_COMMONDIR._replace(hold=False), *per_worktree))
        yield from _pointer(place, os.path.join(worktree, read_text(f"{worktree}/gitdir").strip()))
        yield from _module_guards(place, worktree)


def _own_guards(place: _Place, directory: str, top: str) -> Generator[tuple[str, Guard], None, tuple[Guard, ...]]:
    """Guards for one git directory; returns those that each of its worktrees needs as well."""
    config = read_text(f"{directory}/config")
    per_worktree = (GIT_PER_WORKTREE,) if gitconfig.is_on(config, "worktreeconfig") else ()
    yield from _below(place.root, directory, (*GIT, *per_worktree))
    for path in gitconfig.named(config, top, directory, place.home):
        if gitconfig.inside(path, place.project):
            yield place.project, Guard(path[len(place.project) + 1 :], "git's configuration names it")
    return per_worktree


def _module_guards(place: _Place, directory: str) -> Iterator[tuple[str, Guard]]:
    for module in _modules(f"{directory}/modules"):
        tree = gitconfig.values(read_text(f"{module}/config"), "worktree")
        top = os.path.normpath(os.path.join(module, tree[-1])) if tree else module
        yield from _own_guards(place, module, top)
        yield from _pointer(place, f"{top}/.git")


def _pointer(place: _Place, path: str) -> Iterator[tuple[str, Guard]]:
    """The `.git` file of a submodule or a worktree. A missing one may be made: `git submodule update` does."""
    path = os.path.normpath(path)
    inside = path[len(place.project) + 1 :]
    is_below = gitconfig.inside(path, place.project) and inside != ".git"
    if is_below and os.path.isfile(path) and _is_straight(place.project, inside):
        yield place.project, GIT_FILE._replace(path=inside)


def _is_straight(project: str, path: str) -> bool:
    """No link on the way: an earlier run may have made it, and what is behind it is no place of git's."""
    parts = path.split("/")
    return not any(os.path.islink(f"{project}/{'/'.join(parts[:count])}") for count in range(1, len(parts) + 1))


def _below(root: str, directory: str, guards: Iterable[Guard]) -> Iterator[tuple[str, Guard]]:
    inside = "" if directory == root else directory.removeprefix(root + "/") + "/"
    return ((root, guard._replace(path=inside + guard.path)) for guard in guards)


def _modules(directory: str) -> list[str]:
    """Git directories of submodules, whose names may have slashes."""
    found: list[str] = []
    waiting = _directories(directory)
    while waiting and len(found) < MOST_MODULES:
        path = waiting.pop()
        if os.path.exists(f"{path}/HEAD"):
            found.append(path)
            waiting += _directories(f"{path}/modules")
        elif path.count("/") - directory.count("/") < _DEEPEST_NAME:
            waiting += _directories(path)
    return found


def _without_repository(project: str) -> tuple[str, ...]:
    above = os.path.dirname(project)
    while above != "/" and not os.path.exists(f"{above}/.git"):
        above = os.path.dirname(above)
    if above == "/":
        return ()
    return (f"the repository is {above!r}, outside of the project: --project {above} for git to work",)


def _directories(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))[:MOST_MODULES]
    except OSError:
        return []


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def read_text(path: str) -> str:
    """The text of a regular file, or nothing; nor what no path can have in it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        data = os.read(fd, _MOST_TEXT) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
    return "" if b"\0" in data else os.fsdecode(data)
