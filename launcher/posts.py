"""Placeholders in the directories of the host: making, knowing and removing them.

Directories are opened part by part without following links, and kept open: whatever a run renames or
plants, these descriptors stay in the directories that were looked at.

Removing a placeholder under another sandbox would take its mount away too, in its namespace. So every
sandbox holds a shared lock on each directory that it has placeholders in, and they go with the one that
gets the lock alone. It is a flock on the directory itself: no file for it, nothing stale, and the kernel
gives it up with the last process that holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable

from launcher.mounts import PlanError
from launcher.plan import Placeholder
from launcher.protect import DIRECTORY_MODE, FILE_MODE, SOCKET_MODE, is_placeholder

Posts = dict[int, list[Placeholder]]  # by the descriptor of the directory that they are in

_LOCK_WAIT = 1.0
_LOCK_POLL = 0.002
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_posts(wanted: Iterable[Placeholder]) -> Posts:
    groups: dict[tuple[str, str], list[Placeholder]] = {}
    for place in wanted:
        groups.setdefault((place.root, os.path.dirname(place.path)), []).append(place)
    posts: Posts = {}
    try:
        for (root, directory), group in groups.items():
            fd = open_beneath(root, directory)
            posts[fd] = group
            _lock(fd, f"{root}/{directory}")
    except BaseException:
        close(posts)
        raise
    return posts


def open_beneath(root: str, path: str, flags: int = _DIRECTORY) -> int:
    """Open what is at a path below a directory, with no link followed on the way or at the end."""
    fd = os.open(root or "/", _DIRECTORY)
    parts = [part for part in path.split("/") if part]
    for place, part in enumerate(parts, 1):
        try:
            inner = os.open(part, flags if place == len(parts) else _DIRECTORY, dir_fd=fd)
        except OSError as error:
            raise PlanError(f"{path!r} in {root!r} cannot be opened: {error.strerror}") from None
        finally:
            os.close(fd)
        fd = inner
    return fd


def close(posts: Posts) -> None:
    for fd in posts:
        os.close(fd)


def mode_at(fd: int, place: Placeholder) -> int | None:
    try:
        return os.stat(_name(place), dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def make(fd: int, place: Placeholder) -> None:
    """Each way of making it is one step, so that it is never there without its mark."""
    name = _name(place)
    try:
        if place.is_dir:
            os.mkdir(name, DIRECTORY_MODE, dir_fd=fd)
        elif place.text:
            _write(fd, name, place.text)
        else:
            os.mknod(name, stat.S_IFSOCK | SOCKET_MODE, dir_fd=fd)
    except FileExistsError:
        mode = mode_at(fd, place)
        if mode is not None and not is_placeholder(mode):
            raise PlanError(f"{place.root}/{place.path} appeared while the sandbox was starting", "try again") from None


def sweep(posts: Posts) -> None:
    """Remove them where no other sandbox needs them."""
    for fd, group in posts.items():
        if _is_alone(fd):
            for place in group:
                with contextlib.suppress(OSError):  # the others still have to go
                    _remove(fd, place)


def _name(place: Placeholder) -> str:
    return os.path.basename(place.path)


def _write(fd: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE, dir_fd=fd)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _remove(fd: int, place: Placeholder) -> None:
    """Only what is a placeholder still. A directory that the host has put something in becomes an ordinary one."""
    mode = mode_at(fd, place)
    if mode is None or not is_placeholder(mode):
        return
    if not stat.S_ISDIR(mode):
        os.unlink(_name(place), dir_fd=fd)
        return
    try:
        os.rmdir(_name(place), dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        os.chmod(_name(place), stat.S_IMODE(mode) & ~stat.S_ISVTX, dir_fd=fd)


def _lock(fd: int, name: str) -> None:
    """Share the directory. Only a sandbox that is leaving has it alone, and for a moment."""
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise PlanError(f"the directory {name!r} is locked by another program") from None
            time.sleep(_LOCK_POLL)
        except OSError:  # a file system without locks: sandboxes there do not know of each other
            return
        else:
            return


def _is_alone(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here
        return True
    return True
