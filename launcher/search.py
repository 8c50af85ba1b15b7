"""Finding what is to be protected: the guards' paths one by one, and their patterns by a walk.

The walk is bounded, in breadth first order, so that what lies high up is found in any project; directories
that hold other people's packages are passed over. Nothing here follows a link: the last run may have
planted it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable, Iterator

from egress.record import NamedTuple
from launcher.mounts import PlanError
from launcher.protect import Found, Guard, is_placeholder

MOST_ENTRIES = 4000  # looked at for matches; then the plan says that it stopped
DEEPEST = 24
PASSED_OVER = frozenset(
    {".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache"}
    | {"target", ".gradle", ".terraform", ".next", ".cache"}
)


def is_pattern(path: str) -> bool:
    return "*" in path or "?" in path


def matches(text: str, pattern: str) -> bool:
    """`*` stands for any characters but a slash, `?` for one of them."""
    place = at = mark = 0
    star = -1
    while place < len(text):
        wanted = pattern[at : at + 1]
        if wanted == "*":
            star, mark = at, place
            at += 1
        elif wanted and (wanted == text[place] or (wanted == "?" and text[place] != "/")):
            place, at = place + 1, at + 1
        elif star >= 0 and text[mark] != "/":
            mark += 1
            place, at = mark, star + 1
        else:
            return False
    return not pattern[at:].strip("*")


class Patterns:
    """Guards whose matches are looked for: asked once for every file, so mostly answered in C."""

    __slots__ = ("_guards", "_names", "_paths", "_prefixes", "_suffixes", "_wild")

    def __init__(self, guards: Iterable[Guard]) -> None:
        self._guards = {guard.path.rstrip("/"): guard for guard in guards if is_sought(guard)}
        names = [path for path in self._guards if "/" not in path]
        self._names = frozenset(name for name in names if not is_pattern(name))
        self._suffixes = {name[1:]: name for name in names if name[0] == "*" and not is_pattern(name[1:])}
        self._prefixes = {name[:-1]: name for name in names if name[-1] == "*" and not is_pattern(name[:-1])}
        rest = set(names) - self._names - {*self._suffixes.values(), *self._prefixes.values()}
        self._wild = tuple(sorted(rest))
        self._paths = tuple(path for path in self._guards if "/" in path)

    def find(self, name: str, path: str) -> Guard | None:
        key = self._by_name(name) or next((wild for wild in self._paths if matches(path, wild)), None)
        return self._guards[key] if key else None

    def _by_name(self, name: str) -> str | None:
        if name in self._names:
            return name
        if name.endswith(tuple(self._suffixes)):
            return next(full for suffix, full in self._suffixes.items() if name.endswith(suffix))
        if name.startswith(tuple(self._prefixes)):
            return next(full for prefix, full in self._prefixes.items() if name.startswith(prefix))
        return next((wild for wild in self._wild if matches(name, wild)), None)


def is_sought(guard: Guard) -> bool:
    return is_pattern(guard.path) or "/" not in guard.path.rstrip("/")


class Search(NamedTuple):
    found: tuple[Found, ...]
    repositories: tuple[str, ...]  # below the project: paths of other .git entries
    complete: bool
    sockets: tuple[str, ...] = ()  # other than placeholders


def search(root: str, patterns: Patterns) -> Search:
    """Walk the project, the upper levels first, and never through a link."""
    found: list[Found] = []
    repositories: list[str] = []
    sockets: list[str] = []
    level, looked = [""], 0
    for _ in range(DEEPEST):
        below: list[str] = []
        for entry, path in entries(root, level):
            looked += 1
            guard = patterns.find(entry.name, path)
            if guard is not None and not entry.is_symlink():
                found.append(Found(root, path, guard, missing=False, is_dir=entry.is_dir(), loose=path.count("/")))
            elif entry.name == ".git" and path != ".git":
                repositories.append(path)
            elif entry.is_dir(follow_symlinks=False) and entry.name not in PASSED_OVER:
                below.append(f"{path}/")
            if _is_socket(entry):
                sockets.append(path)
            if looked >= MOST_ENTRIES:
                return Search(tuple(found), tuple(repositories), False, tuple(sockets))
        level = below
    return Search(tuple(found), tuple(repositories), not level, tuple(sockets))


def _is_socket(entry: os.DirEntry[str]) -> bool:
    """Asked of every file: the directory tells what most of them are."""
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
        return False
    mode = _mode(entry.path) or 0
    return stat.S_ISSOCK(mode) and not is_placeholder(mode)


def entries(root: str, level: list[str]) -> Iterator[tuple[os.DirEntry[str], str]]:
    for directory in level:
        try:
            with os.scandir(f"{root}/{directory}") as listed:
                for entry in listed:
                    yield entry, directory + entry.name
        except OSError:  # not ours to read, or gone
            continue


def locate(root: str, guard: Guard, lifted: Container[str] = ()) -> Found | None:
    """What is at a guard's path now, part by part. None: nothing to hold, and nothing can come there; or given up."""
    parts = guard.path.rstrip("/").split("/")
    for count in range(1, len(parts) + 1):
        path = "/".join(parts[:count])
        is_last = count == len(parts)
        mode = _mode(f"{root}/{path}")
        if mode is None or is_placeholder(mode):
            return _absent(root, path, guard, is_dir=not is_last or guard.path.endswith("/"))
        if stat.S_ISLNK(mode):
            if f"{root}/{path}" in lifted:
                return None
            raise PlanError(
                f"{path!r} in {root!r} is a symbolic link: it is to be protected, and a link can be replaced",
                f"put what it points to in its place, or give it up with --rw {path}",
            )
        if is_last or not stat.S_ISDIR(mode):
            return Found(root, path, guard, missing=False, is_dir=stat.S_ISDIR(mode))
    return None


def _absent(root: str, path: str, guard: Guard, is_dir: bool) -> Found | None:
    if not guard.hold or not os.access(os.path.dirname(f"{root}/{path}"), os.W_OK):
        return None
    return Found(root, path, guard, missing=True, is_dir=is_dir)


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
