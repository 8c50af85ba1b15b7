"""What PATH and the command need of the directories that are hidden.

Version managers and installers put programs below $HOME: `claude` is a link in ~/.local/bin to a file in
~/.local/share, `node` is in ~/.nvm/versions/node/v22/bin with its packages in the lib beside it, a venv's
`python` is a link to pyenv's. What is found here is bound read-only, so that all of it just works:

    a directory in PATH      itself, or the installation that it is the `bin` of
    a link in it             what it leads to: an installation, a node_modules, a dot directory, or that file
    the command              the same, and the interpreter that its first line names
    a link on the way        made again, so that paths read as they do outside

Never bound: the home directory, its parents, the directories below it in which credentials lie beside
programs, and other projects. And what is found in a writable place may have been planted there by an
earlier run, to have something bound that it could not see: from there, only Pythons are followed to, since
a venv is nothing without one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from egress.record import NamedTuple
from launcher.mounts import is_within

MOST_LINKS = 200  # followed, of one directory in PATH
_MOST_HOPS = 40  # as the kernel
_MOST_INTERPRETERS = 3
_SHEBANG = 256

_BIN = ("bin", "sbin", "shims", "libexec")
_INSTALLED = ("lib", "libexec", "versions", "installs", "install", "pyvenv.cfg")
_PROJECT = (".git", "package.json", "pyproject.toml", "Gemfile")
_WITH = {".local/bin": (".local/lib",), ".cargo/bin": (".rustup",)}
_SECRET = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".mozilla", ".pki"})
_MIXED = frozenset({".local", ".local/share", ".local/state", ".config", ".cache", ".cargo", ".claude"})


class Link(NamedTuple):
    path: str
    target: str


class Trace(NamedTuple):
    path: str  # with no link left in it
    links: tuple[Link, ...]


class Needs(NamedTuple):
    binds: tuple[str, ...]
    links: tuple[Link, ...]


class Places(NamedTuple):
    """What is out of sight: below `hidden`, unless below `writable` or `readable` too."""

    home: str
    hidden: tuple[str, ...]
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def hides(self, path: str) -> bool:
        return _is_in(path, self.hidden) and not _is_in(path, (*self.writable, *self.readable))

    def may_bind(self, path: str) -> bool:
        if any(is_within(top, path) for top in (*self.hidden, self.home)):
            return False
        return not self.is_secret(path) and path.removeprefix(self.home + "/") not in _MIXED

    def is_secret(self, path: str) -> bool:
        return self._first(path) in _SECRET

    def is_dotted(self, path: str) -> bool:
        """Where programs keep themselves, other than where people keep their work."""
        return self._first(path)[:1] in ("", ".")

    def _first(self, path: str) -> str:
        return path.removeprefix(self.home + "/").partition("/")[0] if is_within(path, self.home) else ""


def which(command: str, path: str, directory: str) -> str | None:
    """The file that the command is, or None; execvp's rules."""
    if "/" in command:
        candidates = [os.path.join(directory, command)]
    else:
        candidates = [os.path.join(directory, entry, command) for entry in path.split(":")]
    return next((found for found in candidates if os.path.isfile(found) and os.access(found, os.X_OK)), None)


def needs(program: str | None, path: str, places: Places) -> Needs:
    finder = _Finder(path, places)
    for entry in dict.fromkeys(path.split(":")):
        if entry.startswith("/"):
            finder.directory(entry)
    if program is not None:
        finder.program(program)
    return Needs(tuple(finder.binds), tuple(finder.links))


class _Finder:
    def __init__(self, path: str, places: Places) -> None:
        self._path = path
        self._places = places
        self.binds: dict[str, None] = {}
        self.links: dict[Link, None] = {}

    def directory(self, entry: str) -> None:
        """An entry of PATH."""
        places = self._places
        real = self._follow(entry)
        if places.hides(real) and os.path.isdir(real):
            self._bind(self._installation(real))
            for beside in _WITH.get(real.removeprefix(places.home + "/"), ()):
                if os.path.isdir(f"{places.home}/{beside}"):
                    self._bind(f"{places.home}/{beside}")
            for link in _links_in(real):
                self._target(link, trusted=True)
        elif _is_in(real, places.writable):
            self._interpreter_of_venv(os.path.dirname(real))

    def program(self, path: str, trusted: bool = True, depth: int = 0) -> None:
        """The command, or an interpreter that it names."""
        trusted = trusted and not any(_is_in(it, self._places.writable) for it in (path, trace(path).path))
        self._target(path, trusted)
        words = _first_line(path)
        if not words or depth >= _MOST_INTERPRETERS:
            return
        if os.path.basename(words[0]) != "env":
            self.program(words[0], trusted, depth + 1)
        elif found := which(words[-1], self._path, "/"):
            self.program(found, trusted or "/" not in words[-1], depth + 1)

    def _target(self, path: str, trusted: bool) -> None:
        """A program, by whatever name: what must be visible for it to run."""
        real = self._follow(path)
        if self._places.hides(real) and os.path.isfile(real) and not self._is_bound(real):
            prefix = self._installation(os.path.dirname(real))
            if trusted:
                self._bind(_packages(real) or (prefix if self._is_room(prefix, real) else real))
            elif _is_python(prefix) and self._places.may_bind(prefix):
                self._bind(prefix)

    def _is_room(self, directory: str, program: str) -> bool:
        """A directory that holds a program and what belongs to it, and nothing else."""
        if directory != os.path.dirname(program):
            return True
        is_setting = is_within(directory, f"{self._places.home}/.config")
        return self._places.may_bind(directory) and self._places.is_dotted(directory) and not is_setting

    def _follow(self, path: str) -> str:
        traced = trace(path)
        if not self._places.is_secret(traced.path):
            self.links |= dict.fromkeys(link for link in traced.links if self._places.hides(link.path))
        return traced.path

    def _installation(self, directory: str) -> str:
        """The directory, or the prefix that it is the bin of."""
        prefix, name = os.path.split(directory)
        return prefix if name in _BIN and self._is_installation(prefix) else directory

    def _is_installation(self, prefix: str) -> bool:
        if not self._places.may_bind(prefix) or not _has(prefix, _INSTALLED):
            return False
        return self._places.is_dotted(prefix) or not _has(prefix, _PROJECT)

    def _bind(self, path: str) -> None:
        if self._is_bound(path) or self._places.is_secret(path):
            return
        if self._places.may_bind(path) or os.path.isfile(path):
            self.binds[path] = None
            self._interpreter_of_venv(path)

    def _is_bound(self, path: str) -> bool:
        return any(is_within(path, bound) for bound in self.binds)

    def _interpreter_of_venv(self, prefix: str) -> None:
        if os.path.exists(f"{prefix}/pyvenv.cfg"):
            self._target(f"{prefix}/bin/python", trusted=not _is_in(prefix, self._places.writable))


def trace(path: str) -> Trace:
    """Follow a path as the kernel would, and tell the links on the way."""
    links: list[Link] = []
    waiting = path.split("/")[::-1]
    done = ""
    while waiting:
        part = waiting.pop()
        if part == "..":
            done = done.rpartition("/")[0]
        elif part not in ("", "."):
            done = f"{done}/{part}"
            target = _readlink(done) if len(links) < _MOST_HOPS else ""
            if target:
                links.append(Link(done, target))
                done = "" if target.startswith("/") else done.rpartition("/")[0]
                waiting += target.split("/")[::-1]
    return Trace(done or "/", tuple(links))


def _readlink(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing at all
        return ""


def _links_in(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_symlink()][:MOST_LINKS]
    except OSError:
        return []


def _has(directory: str, names: Iterable[str]) -> bool:
    return any(os.path.exists(f"{directory}/{name}") for name in names)


def _is_python(prefix: str) -> bool:
    try:
        libraries = os.listdir(f"{prefix}/lib")
    except OSError:
        return False
    return os.path.isfile(f"{prefix}/bin/python3") and any(name.startswith("python3") for name in libraries)


def _packages(path: str) -> str | None:
    """The outermost node_modules that a program is in."""
    before, found, _ = path.partition("/node_modules/")
    return f"{before}/node_modules" if found else None


def _first_line(path: str) -> list[str]:
    """The words of a script's first line, without `#!`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        start = os.read(fd, _SHEBANG)
    finally:
        os.close(fd)
    line = start[2:].split(b"\n", 1)[0] if start.startswith(b"#!") else b""
    return [] if b"\0" in line else os.fsdecode(line).split()


def _is_in(path: str, tops: Iterable[str]) -> bool:
    return any(is_within(path, top) for top in tops)
