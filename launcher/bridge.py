"""The other way out, for a sandbox whose network nobody can join: a Unix socket bound into it.

`launcher.relay` listens on 127.0.0.1 inside and copies to the socket, which the gate serves on the host. It is
the one thing of ours that runs inside. There is no capture: programs must honour their proxy variables, and
whoever kills the relay has no network at all.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress

from launcher import relay
from launcher.mounts import PlanError

PORT = 3128
_BACKLOG = 4096


class RelaySocket:
    """The gate's end, in a directory of its own that only its owner can enter."""

    def __init__(self) -> None:
        self.directory = _private_directory()
        self.path = f"{self.directory}/gate.sock"
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.bind(self.path)
        self.sock.listen(_BACKLOG)

    @property
    def program(self) -> str:
        return relay.__file__

    def command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The relay, which starts the command as its child."""
        return (sys.executable, "-I", self.program, self.path, str(PORT), "--", *command)

    def vanish(self) -> None:
        """Once the sandbox has it, its place on the host is not needed, and cannot be left behind."""
        with suppress(OSError):
            os.unlink(self.path)
            os.rmdir(self.directory)

    def close(self) -> None:
        self.sock.close()
        self.vanish()


def _private_directory() -> str:
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(base) or not os.access(base, os.W_OK):
        base = "/tmp"  # noqa: S108  # mkdir below fails rather than share
    path = f"{base}/egress-{os.getpid()}-{os.urandom(6).hex()}"
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise PlanError(f"no directory for the gate's socket: {path!r}: {error.strerror}") from None
    return path
