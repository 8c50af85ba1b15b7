"""Whether a program is in a container's own root: looked for as the container would, before it is let run.

Links in a root mean paths of that root, so the kernel is asked to resolve them there (openat2 with RESOLVE_IN_ROOT).
The first process of the engine would say no more than that it failed, with an exit code that means something else.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from contextlib import suppress

from launcher.env import DEFAULT_PATH

_OPENAT2, _IN_ROOT = 437, 0x10  # the call has one number on all machines
_HOW = struct.Struct("=QQQ")  # struct open_how
CANNOT_RUN, NOT_FOUND = 126, 127


def trouble(pid: int, word: str, directory: str, path: str) -> int:
    """The exit code for a command that cannot be run there: 126, 127, or zero if it can, or if nobody can tell."""
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        places = [os.path.join(directory, word)] if "/" in word else [f"{top}/{word}" for top in _folders(path)]
        found = [mode for place in places if (mode := _mode(root, place)) is not None]
    finally:
        os.close(root)
    if any(stat.S_ISREG(mode) and mode & 0o111 for mode in found):
        return 0
    return CANNOT_RUN if found else NOT_FOUND


def _folders(path: str) -> list[str]:
    return (path or DEFAULT_PATH).split(":")


def _mode(root: int, path: str) -> int | None:
    how = _HOW.pack(os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_OPENAT2, root, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    if descriptor < 0:
        return None
    try:
        with suppress(OSError):
            return os.fstat(descriptor).st_mode
        return None
    finally:
        os.close(descriptor)
