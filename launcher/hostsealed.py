"""The program that the host's process runs, where nobody can write to it.

A process that has joined a sandbox's mounts is, up to its exec, the host's Python. If what it execs leads to
`/proc/self/exe`, by a link or by a script's first line, that Python runs inside, and a program inside has a way
to its file by the host's own mount, which is writable; once nobody runs it, its owner may write to it. (Known
from runc: CVE-2019-5736.) Where the owner is whom the sandbox runs as, that is a way out.

So where we could write our own interpreter, a copy of it in sealed memory is run instead. It takes itself for
the original by its first word; only libraries that it finds beside itself must be named.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import sys

from launcher.mounts import PlanError

_EXEC = 0x10  # MFD_EXEC, since Linux 6.3: to be asked for, where not all memory may be executed
_FOR_GOOD = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_PIECE = 1 << 24


def program() -> str:
    """What to exec as this Python."""
    path = os.path.realpath(sys.executable)
    if not sys.executable or not os.path.isfile(path):
        raise PlanError(f"the Python that runs this is not a file: {sys.executable!r}", "run it with python3")
    return f"/proc/{os.getpid()}/fd/{_sealed(path)}" if _is_ours(path) else path


def libraries() -> str | None:
    """Where this Python's own library is, if it has one; a copy in memory has nothing beside it."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = (line.rstrip("\n").partition("/")[2] for line in maps)
        return next((f"/{os.path.dirname(path)}" for path in paths if "/libpython" in path), None)


def _is_ours(path: str) -> bool:
    return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)


@functools.cache
def _sealed(path: str) -> int:
    copy = _memory()
    original = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while os.sendfile(copy, original, None, _PIECE):
            pass
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _FOR_GOOD)
        return copy
    finally:
        os.close(original)


def _memory() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("egress-host", flags | _EXEC)
    except OSError as error:
        if error.errno == errno.EINVAL:  # an older kernel, where it goes without saying
            return os.memfd_create("egress-host", flags)
        raise PlanError("no program can be run from memory here", "sysctl vm.memfd_noexec=1") from None
