"""A socket of an inspected connection: the client's, or one to its server.

Closing is not simple. A close with unread input resets the connection, and the last words (the refusal of an
upload that is still coming) may never arrive. So what is sent is flushed, the sending side shut, and what
still comes is thrown away for a while.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol, cast

from mitmproxy.connection import Connection, ConnectionState

_HIGH = 512 * 1024  # bytes that wait to be sent, from which on the other side is not read
_MOST = 16 * 1024 * 1024  # that only one who never reads comes to
_PARTING = 2.0  # seconds without progress


class Owner(Protocol):
    def received(self, peer: Peer, data: bytes) -> None: ...
    def ended(self, peer: Peer) -> None: ...
    def lost(self, peer: Peer) -> None: ...
    def balance(self) -> None: ...
    def relieved(self) -> None: ...


class Peer(asyncio.Protocol):
    def __init__(self, connection: Connection, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self.is_full = False  # of bytes that its socket does not take
        self.is_closing = False
        self.received = self.sent = 0
        self.deadline: float | None = None  # until its TLS handshake must be over
        self._owner, self._loop = owner, loop
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._left = 0
        self._parting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._transport.set_write_buffer_limits(high=_HIGH)

    def data_received(self, data: bytes) -> None:
        if not self.is_closing:
            self.received += len(data)
            self._owner.received(self, data)

    def eof_received(self) -> bool:
        if self.is_closing:
            return False
        self.connection.state &= ~ConnectionState.CAN_READ
        self._owner.ended(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._parting is not None:
            self._parting.cancel()
        self.connection.state = ConnectionState.CLOSED
        self.is_full = False
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self.is_full = True
        self._owner.balance()

    def resume_writing(self) -> None:
        self.is_full = False
        self._owner.relieved()

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self.is_closing:
            self.sent += len(data)
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > _MOST:  # who asks for answers and never takes them
                self.abort()

    def read(self, wanted: bool) -> None:
        """Take what it sends, or leave it in the kernel, where it slows the sender down."""
        if self._transport is None or self.is_closing or self._is_paused is not wanted:
            return
        self._is_paused = not wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def finish_sending(self) -> None:
        self.connection.state &= ~ConnectionState.CAN_WRITE
        if self._transport is not None and not self.is_closing:
            self._transport.write_eof()

    def close(self, *, gently: bool) -> None:
        """What was sent goes out first. Gently: and is also heard."""
        self.connection.state = ConnectionState.CLOSED
        if self._transport is None or self.is_closing:
            return
        if not gently:
            self.is_closing = True
            self._transport.close()
            return
        self.read(True)
        self.is_closing = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._left = self._transport.get_write_buffer_size()
        self._parting = self._loop.call_later(_PARTING, self._part)

    def abort(self) -> None:
        self.connection.state = ConnectionState.CLOSED
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def _part(self) -> None:
        if self._transport is None:
            return
        left = self._transport.get_write_buffer_size()
        if left and left < self._left:
            self._left = left
            self._parting = self._loop.call_later(_PARTING, self._part)
        else:
            self.abort()


async def attach(sock: socket.socket, peer: Peer, loop: asyncio.AbstractEventLoop) -> None:
    sock.setblocking(False)
    await loop.connect_accepted_socket(lambda: peer, sock)
