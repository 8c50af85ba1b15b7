"""A file of a project, read and replaced on behalf of a person while others may be at work there.

The project may be written by whom the file is about, so no link is followed out of it: where a path leads is
found out first, must be below the project, and is then walked without following anything. The new text stands
complete beside the old before it takes its place by a rename, with the same mode and owner; if somebody has written
the file since it was read, theirs stays.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

MAX_BYTES = 4 * 1024 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Unusable(Exception):
    """The file cannot be had, and why."""


class ProjectFile(NamedTuple):
    """As it was read; `text` is None where there is none."""

    top: str
    name: str
    text: str | None = None
    status: os.stat_result | None = None

    @property
    def path(self) -> str:
        return self.name if self.top == "." else os.path.join(self.top, self.name)

    def replace(self, text: str) -> None:
        with _at(self, make=True) as (directory, base):
            draft = f".{base}.{secrets.token_hex(8)}"
            try:
                self._write(directory, draft, text.encode())
                self._check_unchanged(directory, base)
                os.rename(draft, base, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=directory)
                raise
            os.fsync(directory)

    def remove(self) -> None:
        """And its directory, if that is then empty."""
        with _at(self) as (directory, base):
            self._check_unchanged(directory, base)
            os.unlink(base, dir_fd=directory)
        if os.path.dirname(self.name):
            with suppress(OSError):  # where something else is in it
                os.rmdir(os.path.dirname(self.path))

    def _write(self, directory: int, name: str, data: bytes) -> None:
        with os.fdopen(os.open(name, _CREATE, 0o666, dir_fd=directory), "wb") as file:
            file.write(data)
            file.flush()
            if self.status is not None:
                with suppress(PermissionError):  # of somebody else's, in a group that is not ours
                    os.fchown(file.fileno(), self.status.st_uid, self.status.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(self.status.st_mode))
            os.fsync(file.fileno())

    def _check_unchanged(self, directory: int, base: str) -> None:
        try:
            now = _identity(os.stat(base, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            now = None
        if now != (self.status and _identity(self.status)):
            raise Unusable(f"{self.path}: was changed by somebody else just now")


def read(top: str, name: str) -> ProjectFile:
    wanted = ProjectFile(top, name)
    try:
        with _at(wanted) as (directory, base), os.fdopen(os.open(base, _READ, dir_fd=directory), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unusable(f"{wanted.path}: is not a regular file")
            return wanted._replace(text=_decoded(file.read(MAX_BYTES + 1), wanted.path), status=status)
    except FileNotFoundError:
        return wanted


@contextmanager
def _at(file: ProjectFile, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The directory that a file is in, held open, and its name there. What goes wrong with it is told by its path."""
    opened: list[int] = []
    try:
        *parents, base = _parts(file)
        opened.append(os.open(os.path.realpath(file.top), _DIRECTORY))
        for part in parents:
            opened.append(_enter(opened[-1], part, make=make))
        yield opened[-1], base
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(f"{file.path}: {error.strerror or error}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _parts(file: ProjectFile) -> list[str]:
    top, real = os.path.realpath(file.top), os.path.realpath(file.path)
    if os.path.commonpath([top, real]) != top or real == top:
        raise Unusable(f"{file.path}: leads out of the directory, to {real}")
    return os.path.relpath(real, top).split("/")


def _enter(directory: int, name: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def _decoded(data: bytes, path: str) -> str:
    if len(data) > MAX_BYTES:
        raise Unusable(f"{path}: is larger than {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unusable(f"{path}:{line}: not UTF-8: byte 0x{data[error.start]:02x}") from None


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
