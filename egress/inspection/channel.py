"""One end of the line between the gate and the engine: whole messages, some with a descriptor.

A `SOCK_SEQPACKET` pair keeps the borders of messages, so a packet is a message and a descriptor arrives with
the very message it belongs to. Whoever sends a descriptor gives it away: it is closed here once it is on its
way, and on every path on which it never will be. Whoever receives one owns it. A packet that cannot be
understood ends the line: both ends are ours, so something is badly wrong, and what is in doubt stays shut.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from egress.inspection.messages import Message

LONGEST = 256 * 1024  # of a message: a header section and a ClientHello of 64 KiB each fit twice
_BUFFER = 1024 * 1024  # asked of the kernel, which may give less; a packet must fit into it whole
_BURST = 64  # messages in a row before others have their turn
_ONE = array.array("i", [0]).itemsize
_LOST = socket.MSG_TRUNC | socket.MSG_CTRUNC

OnMessage = Callable[[Any, int | None], None]
_encoder = msgspec.msgpack.Encoder()


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends, not inherited unless asked."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


class Channel:
    """`heard` gets each message and its descriptor; `ended` is called once, when the line is cut by the other end."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        understood: Any,  # the union of messages that may come
        heard: OnMessage,
        ended: Callable[[], None],
    ) -> None:
        self._sock, self._loop = sock, loop
        self._decoder = msgspec.msgpack.Decoder(understood)
        self._heard, self._ended = heard, ended
        self._waiting: deque[tuple[bytes, int | None]] = deque()
        self._buffer = bytearray(LONGEST)
        self._view = memoryview(self._buffer)
        sock.setblocking(False)
        for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, size, _BUFFER)
        loop.add_reader(sock.fileno(), self._readable)

    @property
    def is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send it now or, if the other end is slow, in its turn. On a closed line it is dropped."""
        packet = _encoder.encode(message)
        if len(packet) > LONGEST or not self.is_open:
            _discard(fd)
            if self.is_open:
                raise ValueError(f"a {type(message).__name__} of {len(packet)} bytes, where {LONGEST} are the most")
        elif self._waiting or not self._sent(packet, fd):
            self._queue(packet, fd)

    def close(self) -> None:
        """Hang up. `ended` is not called: who hangs up knows."""
        if self.is_open:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
        while self._waiting:
            _discard(self._waiting.popleft()[1])

    def _queue(self, packet: bytes, fd: int | None) -> None:
        if not self.is_open:  # the attempt to send found it cut
            _discard(fd)
            return
        if not self._waiting:
            self._loop.add_writer(self._sock.fileno(), self._writable)
        self._waiting.append((packet, fd))

    def _sent(self, packet: bytes, fd: int | None) -> bool:
        try:
            if fd is None:
                self._sock.send(packet)
            else:
                socket.send_fds(self._sock, [packet], [fd])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # cut: the reader finds that out, and says so
            pass
        _discard(fd)
        return True

    def _writable(self) -> None:
        while self._waiting:
            if not self._sent(*self._waiting[0]):
                return
            self._waiting.popleft()
        self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        for _ in range(_BURST):
            if not self.is_open or not self._receive():
                return

    def _receive(self) -> bool:
        """Take one message in, if there is one."""
        try:
            size, ancillary, flags, _ = self._sock.recvmsg_into(
                [self._buffer], socket.CMSG_SPACE(_ONE), socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            size, ancillary, flags = 0, [], 0
        fds = _descriptors(ancillary)
        message = None if flags & _LOST or len(fds) > 1 else self._understood(size)
        if message is None:
            for fd in fds:
                _discard(fd)
            self._cut()
            return False
        self._heard(message, fds[0] if fds else None)
        return True

    def _understood(self, size: int) -> Message | None:
        """No packet of ours is empty, so an empty one is the end, as is one that makes no sense."""
        try:
            return self._decoder.decode(self._view[:size]) if size else None
        except msgspec.DecodeError:
            return None

    def _cut(self) -> None:
        self.close()
        self._ended()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % _ONE])
    return fds.tolist()


def _discard(fd: int | None) -> None:
    if fd is not None:
        with contextlib.suppress(OSError):
            os.close(fd)
