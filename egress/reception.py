"""The front desk: takes a connection, sees which protocol it speaks, and shows it to the right face.

Whatever happens to a conversation ends here: its socket is closed, its task forgotten, and only a bug
gets as far as the error report.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from egress import httpface, socksface
from egress.gateway import Gateway
from egress.model import Via
from egress.net.listeners import Listener, peer_uid
from egress.net.stream import Stream
from egress.policy import Listeners
from egress.refusals import Reason, Refused
from egress.sessions import Door
from egress.wire import clienthello, sniff
from egress.wire.sniff import Protocol

Face = Callable[[Gateway, Stream, Door], Awaitable[None]]
_SPARE = 500  # connections above the limit that are still told why they are refused


class Reception:
    def __init__(self, gate: Gateway) -> None:
        self._gate = gate
        self._guests: set[asyncio.Task[None]] = set()
        self._listeners: list[Listener] = []

    def open(self, sock: socket.socket, door: Door, face: Face | None = None) -> None:
        """Serve a listening socket of this host, and never let anyone reach it through the gate."""
        self.open_elsewhere(sock, door, face)
        self._gate.listeners = with_listener(self._gate.listeners, sock)

    def open_elsewhere(self, sock: socket.socket, door: Door, face: Face | None = None) -> None:
        """Serve a listening socket of another network. Without a face, the first byte chooses one."""
        if sock.family != socket.AF_UNIX:  # those accepted inherit it: an answer's head must not wait for its body
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listeners.append(Listener(sock, partial(self._admit, door, face or _by_first_byte), self._gate.loop))

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for guest in self._guests:
            guest.cancel()
        await asyncio.gather(*self._guests, return_exceptions=True)

    def _admit(self, door: Door, face: Face, sock: socket.socket) -> None:
        if len(self._guests) >= self._gate.limits.connections + _SPARE:
            sock.close()
            return
        task = self._gate.loop.create_task(self._serve(sock, door, face))
        self._guests.add(task)
        task.add_done_callback(self._guests.discard)

    async def _serve(self, sock: socket.socket, door: Door, face: Face) -> None:
        client = Stream(sock, self._gate.loop)
        try:
            client.expire_in(self._gate.limits.handshake)
            if door.peers is not None and peer_uid(sock) not in door.peers:
                refused = Refused(Reason.PEER_NOT_ALLOWED, asked=f"uid {peer_uid(sock)}")
                self._gate.note(refused, door.persona or "", Via.HTTP, client)
            else:
                await face(self._gate, client, door)
        except OSError:
            pass  # it went away, or it took too long: there is nobody left to tell
        finally:
            client.close()


async def _by_first_byte(gate: Gateway, client: Stream, door: Door) -> None:
    if await client.fill():
        await _FACES[sniff.protocol(client.buffer[0])](gate, client, door)


async def _refuse_tls(gate: Gateway, client: Stream, door: Door) -> None:
    gate.note(Refused(Reason.UNSUPPORTED, "TLS to the proxy itself"), door.persona or "", Via.HTTP, client)
    await client.send(clienthello.ALERT_ACCESS_DENIED)
    await client.part()


_FACES: dict[Protocol, Face] = {
    Protocol.HTTP: httpface.converse,
    Protocol.SOCKS5: socksface.converse,
    Protocol.SOCKS4: socksface.refuse_version_4,
    Protocol.TLS: _refuse_tls,
    Protocol.OTHER: httpface.converse,  # which will find it malformed, and say so
}


def with_listener(listeners: Listeners, sock: socket.socket) -> Listeners:
    if sock.family == socket.AF_UNIX:
        return listeners
    ip, port = sock.getsockname()[:2]
    if ip in ("0.0.0.0", "::"):
        return listeners._replace(wildcard=listeners.wildcard | {port})
    return listeners._replace(exact=listeners.exact | {(ip, port)})
