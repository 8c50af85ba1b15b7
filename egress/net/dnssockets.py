"""The sockets of the nameserver: datagrams, and messages over TCP (RFC 1035 section 4.2, RFC 7766).

Both hand packets to a `Desk` and send what it replies, at once or later. A datagram first meets the desk's
ready answers: a repeated question differs from the last one in its id alone, so what stands behind the id
is looked up as it came, and the answer goes out behind the new id. That is the whole of the fast path.
Several datagrams are taken per wake-up, because waking up costs more than a datagram.

Over TCP a client may ask on without waiting, and is answered in whatever order the answers come. It is
not read while it does not take its answers, and gets one turn of the loop per message.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.net.listeners import Listener, open_tcp
from egress.net.stream import Stream
from egress.wire.handshake import Handshake, take

Reply = Callable[[bytes], None]
_AT_ONCE = 64  # datagrams taken before other work gets its turn
_MOST_QUERY = 4096  # what is larger arrives cut, and so malformed
_UNSENT = 64 * 1024
_QUEUE = 1024 * 1024  # bytes that the kernel keeps for us in a burst
_TRIES = 32  # for a port that is free both ways


class Desk(Protocol):
    def ready(self) -> Mapping[bytes, bytes]:
        """Answers that hold now, by their question, both without the two bytes of the id."""

    def handle(self, packet: bytes, udp: bool, reply: Reply) -> None:
        """Answer a packet by calling `reply` once, at once or later, or never."""


class Datagrams:
    """Serves a bound UDP socket. Never a wildcard one: an answer must come from the address that was asked."""

    def __init__(self, sock: socket.socket, desk: Desk, loop: asyncio.AbstractEventLoop) -> None:
        self._sock, self._desk, self._loop = sock, desk, loop
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE)
        loop.add_reader(sock.fileno(), self._readable)

    async def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _readable(self) -> None:
        ready, receive, send = self._desk.ready(), self._sock.recvfrom, self._send
        for _ in range(_AT_ONCE):
            try:
                packet, client = receive(_MOST_QUERY)
            except OSError:  # there is no more
                return
            answer = ready.get(packet[2:])
            if answer is None:
                self._desk.handle(packet, True, partial(send, client))
            else:
                send(client, packet[:2] + answer)

    def _send(self, client: Any, packet: bytes) -> None:
        # A client that cannot be reached, or a full queue: it is a datagram, and may be lost. The socket
        # may also be closed, when an answer comes too late.
        with contextlib.suppress(OSError):
            self._sock.sendto(packet, client)


class Conversations:
    """Serves a listening TCP socket."""

    def __init__(
        self, sock: socket.socket, desk: Desk, loop: asyncio.AbstractEventLoop, limits: DnsLimits = DNS_LIMITS
    ) -> None:
        self._desk, self._loop, self._limits = desk, loop, limits
        self._open: set[asyncio.Task[None]] = set()
        self._listener = Listener(sock, self._accepted, loop)

    async def close(self) -> None:
        self._listener.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accepted(self, sock: socket.socket) -> None:
        if len(self._open) >= self._limits.tcp_connections:
            sock.close()
            return
        conversation = _Conversation(Stream(sock, self._loop), self._desk, self._loop, self._limits.tcp_idle)
        task = self._loop.create_task(conversation.run())
        self._open.add(task)
        task.add_done_callback(self._open.discard)


class _Conversation:
    __slots__ = ("_desk", "_idle", "_loop", "_sending", "_stream", "_unsent")

    def __init__(self, stream: Stream, desk: Desk, loop: asyncio.AbstractEventLoop, idle: float) -> None:
        self._stream, self._desk, self._loop, self._idle = stream, desk, loop, idle
        self._unsent = bytearray()
        self._sending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            with contextlib.suppress(OSError):  # it has left, or said nothing for too long
                while True:
                    await self._hear()
            if self._sending is not None:  # who has only stopped asking still gets the answers that there are
                await self._sending
        finally:
            self._stream.close()
            if self._sending is not None:
                self._sending.cancel()
                await asyncio.gather(self._sending, return_exceptions=True)

    async def _hear(self) -> None:
        self._stream.expire_in(self._idle)
        packet = await self._stream.run(_message(self._stream.buffer))
        self._desk.handle(packet, False, self._reply)
        await asyncio.sleep(0)
        if self._sending is not None and len(self._unsent) > _UNSENT:
            await self._sending

    def _reply(self, packet: bytes) -> None:
        if self._stream.sock.fileno() < 0:
            return
        self._unsent += len(packet).to_bytes(2, "big") + packet
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send())

    async def _send(self) -> None:
        with contextlib.suppress(OSError):
            while self._unsent:
                data, self._unsent = self._unsent, bytearray()
                await self._stream.send(data)


def _message(buffer: bytearray) -> Handshake[bytes]:
    size = int.from_bytes((yield from take(buffer, 2)), "big")
    if size > _MOST_QUERY:
        raise OSError(f"a query of {size} bytes, more than {_MOST_QUERY}")
    return (yield from take(buffer, size))


def open_both(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """UDP and TCP on one address and port. Port 0 is one that both can have, which may take some tries."""
    for _ in range(0 if port else _TRIES):
        with contextlib.suppress(OSError):
            return _open_both(host, port)
    return _open_both(host, port)


def open_udp(host: str, port: int) -> socket.socket:
    """A UDP socket on a literal address."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _open_both(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    tcp = open_tcp(host, port)
    try:
        return open_udp(host, tcp.getsockname()[1]), tcp
    except OSError:
        tcp.close()
        raise
