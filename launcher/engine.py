"""The engine of a sandbox whose persona looks into requests: started before all else, and awaited last.

The command must find the session's certificate in place, so the engine makes that first, and writes what
programs trust into pipes that bwrap mounts the contents of. bwrap waits for their end in the midst of its
mounts, while the network is being made; after that only `wait_until_ready` is left, and it is what fails
closed: an engine that died has closed the pipes too, on a bundle that is not whole.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
from contextlib import suppress

from egress import enginestart
from egress.counts import SLOTS, Counts
from egress.enginestart import Config, Started
from egress.record import NamedTuple
from launcher import trust
from launcher.mounts import Kind, Mount, PlanError

_PATIENCE_MS = 20_000
_WHOLE = 1 << 20  # what a pipe may hold without an administrator's leave; a bundle is a quarter of it


class Engine(NamedTuple):
    config: Config  # for another, should it end
    started: Started
    counts: Counts
    given: dict[str, int]  # by path: where bwrap reads the files from


def mounts() -> tuple[Mount, ...]:
    """What is put into the sandbox; bwrap reads them in this order."""
    files = (Mount(Kind.GIVEN, file.path, file.why) for file in trust.given())
    return (Mount(Kind.EMPTY, trust.DIRECTORY, "what vouches for inspected hosts"), *files)


def start(names: tuple[str, ...], upstream_roots: tuple[str, ...], files: tuple[trust.Given, ...]) -> Engine:
    pipes = [_pipe() for _ in files]
    counts = Counts.make(SLOTS)
    config = Config(names=names, upstream_roots=upstream_roots, fill=tuple(str(file.content) for file in files))
    try:
        started = enginestart.start(config, counts.fd, tuple(write for _, write in pipes))
    finally:
        for _, write in pipes:
            os.close(write)
    return Engine(
        config._replace(fill=()),
        started,
        counts,
        {file.path: read for file, (read, _) in zip(files, pipes, strict=True)},
    )


def wait_until_ready(engine: Engine) -> None:
    """Its first word; what it says is for the gate to read."""
    line = select.poll()
    line.register(engine.started.line, select.POLLIN)
    if not line.poll(_PATIENCE_MS):
        raise PlanError("the engine that looks into requests did not start in time", "egress doctor")
    if not _has_spoken(engine.started.line):
        raise PlanError("the engine that looks into requests ended at once", "egress doctor")


def _has_spoken(line: socket.socket) -> bool:
    """A line whose other end is closed can be read, too: to its end."""
    with suppress(ConnectionError):
        return bool(line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


def end(engine: Engine) -> None:
    """For a command that was over before the gate took the engine on; otherwise the gate has ended it."""
    pid = engine.started.pid
    with suppress(ChildProcessError):  # and then its number may be another's
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    with suppress(OSError):  # then it takes turns with bwrap, which reads in the same order
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _WHOLE)
    return read, write
