"""Where a running gate can be asked: a Unix socket, named by its session, that only its user can reach.

The directory is one that no sandbox shows: in the user's runtime directory, or beside the audit log. A gate that was
killed leaves its socket behind; whoever looks next takes it away.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from egress import places

_LONGEST = 107  # bytes, of the 108 in struct sockaddr_un
_NAME = re.compile(r"([a-z0-9]{1,32})\.sock")


class Running(NamedTuple):
    """A gate that answers."""

    session: str
    path: str


def directory(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base) and os.access(base, os.W_OK):
        return os.path.join(base, "egress")
    return os.path.join(os.path.dirname(places.audit_log(environ)), "run")


def make_path(session: str, environ: Mapping[str, str]) -> str:
    """The path for a session's socket, its directory there and free of dead ones."""
    folder = directory(environ)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for _ in running(environ):
        pass
    path = os.path.join(folder, f"{session}.sock")
    if len(os.fsencode(path)) > _LONGEST:
        raise OSError(errno.ENAMETOOLONG, "too long for the path of a socket", path)
    return path


def running(environ: Mapping[str, str]) -> list[Running]:
    """The gates that answer, the youngest first."""
    folder = directory(environ)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = (Running(match[1], os.path.join(folder, match[0])) for match in map(_NAME.fullmatch, names) if match)
    return [gate for _, gate in sorted(_living(found), reverse=True)]


def connect(path: str, seconds: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def _living(gates: Iterator[Running]) -> Iterator[tuple[int, Running]]:
    for gate in gates:
        try:
            began = os.lstat(gate.path).st_mtime_ns
            connect(gate.path, 1).close()
            yield began, gate
        except ConnectionRefusedError:
            with suppress(OSError):
                os.unlink(gate.path)
        except OSError:
            pass  # it went away meanwhile
