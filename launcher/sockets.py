"""Unix sockets of the host that could be reached from the sandbox.

A read-only mount does not stop connect(2): whoever can name a socket's file and has permission may talk
to its owner, and behind docker.sock, an ssh-agent or D-Bus is the whole host. Most are in /run, /tmp and
the home directory, which are hidden. Any other that is bound now is listed in /proc/net/unix by its path,
and its file is closed. Abstract names belong to the network namespace and need nothing. In the project
the table is not believed: a server that was started there may have bound a relative path, which tells
nothing, so every socket that the search of the project meets is closed.

Not seen: a socket that the host binds later, below a directory that is visible; outside of the project,
one that was bound with a relative path, or that belongs to another network namespace of the host.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

TABLE = "/proc/net/unix"
_PATH_FIELD = 7  # Num RefCount Protocol Flags Type St Inode Path


def paths(table: str) -> Iterator[str]:
    """The absolute paths in the kernel's table; abstract names begin with @."""
    for line in table.splitlines()[1:]:
        fields = line.split(None, _PATH_FIELD)
        if len(fields) > _PATH_FIELD and fields[_PATH_FIELD].startswith("/"):
            yield fields[_PATH_FIELD]


def present(candidates: Iterable[str]) -> tuple[str, ...]:
    """Those that are there, by their real paths: names of another root or of the past are not."""
    found = {os.path.realpath(path) for path in set(candidates)}
    return tuple(sorted(path for path in found if is_socket(path)))


def is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
