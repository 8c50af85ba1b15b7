"""The machine that a tool is set up on: its environment, its files, and where a sandbox can write.

Who may write a tool's configuration chooses hosts, and who may write the tool itself is run outside of all
walls. So nothing below `writable` is read or run, however it was named: not a project's `.npmrc`, not the
`npm` of a project that stands in PATH, not a `PIP_CONFIG_FILE` that leads there by a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterator, Mapping

from egress.record import NamedTuple

MAX_BYTES = 1024 * 1024
TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})  # as pip and uv read a variable


class Machine(NamedTuple):
    environ: Mapping[str, str]
    writable: tuple[str, ...] = ()
    root: str = "/"  # what paths such as /etc/pip.conf stand below

    def __repr__(self) -> str:
        return f"Machine(writable={self.writable!r}, root={self.root!r})"  # there are credentials in the environment

    @property
    def home(self) -> str | None:
        home = self.environ.get("HOME", "")
        return home if os.path.isabs(home) else None

    def below_home(self, path: str) -> tuple[str, ...]:
        return () if self.home is None else (os.path.join(self.home, path),)

    def system(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def config(self, path: str) -> tuple[str, ...]:
        """A file of the user's configuration directory. A relative directory is none, says its specification."""
        base = self.environ.get("XDG_CONFIG_HOME", "")
        return (os.path.join(base, path),) if os.path.isabs(base) else self.below_home(f".config/{path}")

    def system_config(self) -> tuple[str, ...]:
        """Directories of configuration for all users, the most important first."""
        named = self.environ.get("XDG_CONFIG_DIRS", "").split(":")
        return tuple(filter(os.path.isabs, named)) or (self.system("/etc/xdg"),)

    def trusts(self, path: str) -> bool:
        """Absolute, and neither it nor what it leads to is where a sandbox writes."""
        places = (os.path.normpath(path), os.path.realpath(path))
        tops = {form for top in self.writable for form in (top, os.path.realpath(top))}
        return os.path.isabs(path) and not any(_is_within(place, top) for place in places for top in tops)

    def program(self, name: str) -> str | None:
        """Where PATH has a program, in directories that are trusted."""
        paths = (os.path.join(directory, name) for directory in self.search_path())
        return next((path for path in paths if self.trusts(path) and os.access(path, os.X_OK)), None)

    def search_path(self) -> Iterator[str]:
        return filter(self.trusts, self.environ.get("PATH", os.defpath).split(":"))


def this_machine() -> Machine:
    """This one, with the working directory as the place where a sandbox writes: it is the usual project."""
    home = os.path.realpath(os.environ.get("HOME", "/"))
    here = _working_directory()
    return Machine(os.environ, () if _is_within(home, here) else (here,))


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is gone, and what was in it too
        return "/"


def read_text(path: str) -> str:
    """The text of a regular file of decent size, or OSError; a FIFO would hold us at its pleasure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise OSError(f"is larger than {MAX_BYTES} bytes")
    return data.decode(errors="replace")


def identity(path: str) -> Hashable:
    """Differs when what is at a path has changed."""
    try:
        at = os.stat(path)
    except OSError as error:
        return error.errno
    return at.st_dev, at.st_ino, at.st_mtime_ns, at.st_ctime_ns, at.st_size


def _is_within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
