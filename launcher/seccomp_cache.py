"""Compiled profiles, kept under the user's cache directory by what they were made of.

A cached program is as good as the filter itself, so it is taken only from a regular file of our own
that nobody else may write, and of a length that a program can have; anything else is as if it were
not there. The directory must stay out of sight of sandboxes: who can write it chooses the next filter.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat

from egress import __version__
from launcher.seccomp import MAX_PROGRAM, is_program, read_all


def key(text: bytes, machine: str, release: str) -> str:
    """A name for all that a program depends on. Kernels count by version, as minKernel does."""
    kernel = ".".join(release.split(".")[:2])
    return hashlib.sha256(f"{__version__} {machine} {kernel} ".encode() + text).hexdigest()


def directory() -> str | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):  # the specification: a relative path is to be ignored
        home = os.environ.get("HOME", "")
        base = f"{home}/.cache" if home.startswith("/") else ""
    return f"{base}/egress/seccomp" if base else None


def lookup(name: str) -> bytes | None:
    where = directory()
    if where is None:
        return None
    try:
        fd = os.open(f"{where}/{name}.bpf", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        code = read_all(fd, MAX_PROGRAM) if _is_ours(os.fstat(fd)) else b""
    finally:
        os.close(fd)
    return code if is_program(code) else None


def store(name: str, code: bytes) -> None:
    """Whole or not at all. A cache that cannot be written costs some milliseconds, not the sandbox."""
    where = directory()
    if where is None:
        return
    unfinished = f"{where}/.{name}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(where, mode=0o700, exist_ok=True)
        try:
            _write(unfinished, code)
            os.rename(unfinished, f"{where}/{name}.bpf")
        except OSError:
            os.unlink(unfinished)
            raise


def _write(path: str, code: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.write(fd, code) != len(code):
            raise OSError("short write")
    finally:
        os.close(fd)


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
