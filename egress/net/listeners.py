"""Listening sockets: where clients come in.

A listener accepts and hands over; it decides nothing. Out of descriptors it pauses, so that the
connections already inside can finish and free some, and goes on by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import struct
from collections.abc import Callable

from egress.net import readiness

BACKLOG = 4096
_AT_ONCE = 64  # connections taken before other work gets its turn
_PAUSE = 0.2
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Calls `accepted(sock)` for each connection, until closed. The socket may come from elsewhere."""

    def __init__(
        self, sock: socket.socket, accepted: Callable[[socket.socket], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.sock = sock
        self._accepted, self._loop = accepted, loop
        self._ready = readiness.of(loop)
        self._pause: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._watch()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self.sock.fileno() >= 0:
            self._ready.remove(self.sock.fileno())  # another process may have it too, and keep it open
            close_listening(self.sock)

    def _watch(self) -> None:
        self._pause = None
        self._ready.when_readable(self.sock.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _ = self.sock.accept()
            except OSError as error:
                self._rest(error)
                return
            sock.setblocking(False)
            self._accepted(sock)

    def _rest(self, error: OSError) -> None:
        if error.errno in _EXHAUSTED:
            self._ready.ignore_input(self.sock.fileno())
            self._pause = self._loop.call_later(_PAUSE, self._watch)


def open_tcp(host: str, port: int) -> socket.socket:
    """A listening TCP socket on a literal address."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def open_unix(path: str, mode: int = 0o600) -> socket.socket:
    """A listening Unix socket; a dead one in its place is replaced, anything else is an error."""
    _remove_dead(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


def close_listening(sock: socket.socket) -> None:
    """Close it, if it is not; the path of a Unix socket would outlive it."""
    if sock.fileno() >= 0:
        _unlink_unix(sock)
        sock.close()


def peer_uid(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel says."""
    return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def _remove_dead(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return  # bind will say that the path is taken
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _unlink_unix(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX and (path := sock.getsockname()):
        with contextlib.suppress(OSError):
            os.unlink(path)
