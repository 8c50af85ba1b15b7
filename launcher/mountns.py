"""Changing a sandbox's mounts from outside, while it runs.

Who started a sandbox may enter its mount namespace as its owner, by way of the user namespace that the
kernel says owns it. That is for a process that does nothing else, since paths then mean what they mean
inside. Two things need it, for which bwrap has no option:

    cut_off        bwrap makes its mounts slaves of the host's. Where those are shared, as systemd sets them
                   up, whatever the host mounts later below a visible directory appears inside too, and is
                   writable there. So all of them are made private. It does not matter when: what bwrap binds
                   after that are copies of private mounts.
    cover_again    a mount goes with the file that it is on, and that is gone when the host replaces it: an
                   editor that saves by renaming, or `git config`. So the new file gets a mount of its own.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher.mounts import DEV_NULL, Kind
from launcher.netns.joining import setns

if TYPE_CHECKING:
    import ctypes

_GET_USER_NAMESPACE = 0xB701  # ioctl_ns(2)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x1, 0x2, 0x4, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR = 442  # on every machine
_AT_FDCWD, _ATTRIBUTES = -100, 32  # bytes of struct mount_attr


def cut_off(pid: int) -> bool:
    """Let no mount of the host into the namespace of this process any more."""
    return _inside(pid, _make_private)


def cover_again(pid: int, kind: Kind, path: str) -> bool:
    """Mount what the plan had mounted on a path."""
    return _inside(pid, lambda: _COVERS[kind](path.encode(errors="surrogateescape")))


def _inside(pid: int, act: Callable[[], None]) -> bool:
    """Do this in the namespace of a process; whether it could be done. It forks: no thread may exist."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _enter(pid)
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def _enter(pid: int) -> None:
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(namespace, _GET_USER_NAMESPACE)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        setns(owner)
    setns(namespace)


def _make_private() -> None:
    _mount(None, b"/", None, _MS_REC | _MS_PRIVATE)


def _read_only(path: bytes) -> None:
    _bind(path, path)


def _closed(path: bytes) -> None:
    _bind(DEV_NULL.encode(), path)


def _empty(path: bytes) -> None:
    _mount(b"tmpfs", path, b"tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, b"mode=0555")


_COVERS = {Kind.READ: _read_only, Kind.CLOSED: _closed, Kind.EMPTY: _empty}


def _bind(source: bytes, path: bytes) -> None:
    """Read-only, without devices. Attributes are added: a remount would have to repeat those it may not drop."""
    import struct

    _mount(source, path, None, _MS_BIND)
    wanted = struct.pack("QQQQ", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, 0, 0, 0)
    _check(_libc().syscall(_MOUNT_SETATTR, _AT_FDCWD, path, 0, wanted, _ATTRIBUTES))


def _mount(source: bytes | None, path: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    _check(_libc().mount(source, path, kind, flags, data))


def _check(result: int) -> None:
    import ctypes

    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _libc() -> ctypes.CDLL:
    import ctypes  # costs some milliseconds, and is for the process that has them

    return ctypes.CDLL(None, use_errno=True)
