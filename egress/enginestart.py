"""Starts the engine that looks into TLS, as a process of its own.

What it needs to know reaches it on its standard input, and never as an argument or in a file: a key may be
among it. Its other descriptors have fixed numbers:

    0  its configuration      3  the line to the gate      4  the shared counts
"""

from __future__ import annotations

import fcntl
import marshal
import os
import sys

from egress.counts import EACH, ENGINE
from egress.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import socket

LINE, COUNTS = 3, 4
_MAIN = "egress.inspection.engine"


class Config(NamedTuple):
    """An authority's key and certificate (PEM), or the names that a new one is made for."""

    key: bytes = b""
    certificate: bytes = b""
    names: tuple[str, ...] = ()
    upstream_roots: tuple[str, ...] = ()  # files with certificates that upstreams may be signed by, too
    column: int = ENGINE  # of the shared counts, which is the engine's own
    columns: int = EACH  # that there are


class Started(NamedTuple):
    pid: int
    line: socket.socket


def start(config: Config, counts: int) -> Started:
    import socket  # 2 ms: who only needs a `Config` does not pay for it

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    told = os.memfd_create("egress-engine", os.MFD_CLOEXEC)
    os.write(told, marshal.dumps(tuple(config)))
    os.lseek(told, 0, os.SEEK_SET)
    try:
        return Started(_spawn({0: told, LINE: theirs.fileno(), COUNTS: counts}), ours)
    finally:
        os.close(told)
        theirs.close()


def read_config(fd: int = 0) -> Config:
    with open(fd, "rb", closefd=False) as file:
        return Config(*marshal.loads(file.read()))  # noqa: S302  # from our own parent


def _spawn(wanted: dict[int, int]) -> int:
    """The copies stand out of the way: a descriptor may have the very number that another is wanted at."""
    code = f"import sys; sys.path[:] = sys.argv[1:]; from {_MAIN} import main; main()"
    above = max(wanted) + 1
    copies = {place: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for place, fd in wanted.items()}
    try:
        actions = [(os.POSIX_SPAWN_DUP2, copy, place) for place, copy in copies.items()]
        line = [sys.executable, "-I", "-S", "-c", code, *_import_path()]
        return os.posix_spawn(sys.executable, line, _environment(), file_actions=actions, setsid=True)
    finally:
        for copy in copies.values():
            os.close(copy)


def _import_path() -> list[str]:
    """Ours, but never the working directory, where a sandbox may write; unless that is where we are ourselves."""
    here, ours = os.path.realpath("."), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [ours, *(entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != here)]


def _environment() -> dict[str, str]:
    """Only what finds certificates and shapes errors: credentials reach it one by one, when they are put in."""
    kept = ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ", "HOME", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ}
