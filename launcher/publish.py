"""Servers inside, reachable at 127.0.0.1 on the host.

A connection from the host needs a socket of the sandbox's network to go on with. The connector makes one per
request, in the order of the requests, and its channel holds only so many of them: a crowd that comes at once
waits here for its turn. What comes in this way was let in by the user and is no business of the policy.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque

from egress.net.listeners import Listener, open_tcp
from egress.net.pipepool import Pipes
from egress.net.relay import Outcome, Relay
from egress.net.stream import Stream
from launcher.mounts import PlanError
from launcher.netns.connector import Connector
from launcher.options import Publish

_AT_ONCE = 32  # requests that the connector was sent and has not answered


class Opening:
    """A port of the host, taken before the sandbox is made: whoever has it already is then in nobody's way."""

    def __init__(self, publish: Publish) -> None:
        self.inside = publish.inside
        try:
            self.sock = open_tcp("127.0.0.1", publish.outside)
        except OSError as error:
            raise PlanError(
                f"port {publish.outside} of the host cannot be used: {error.strerror}",
                f"--publish {publish.inside}:PORT takes another",
            ) from None


class Publisher:
    def __init__(self, connector: Connector, pipes: Pipes, loop: asyncio.AbstractEventLoop) -> None:
        self._pipes, self._loop = pipes, loop
        self._sockets = _Sockets(connector, loop)
        self._listeners: list[Listener] = []
        self._visits: set[asyncio.Task[None]] = set()

    def open(self, opening: Opening) -> None:
        inside = opening.inside
        self._listeners.append(Listener(opening.sock, lambda visitor: self._visit(visitor, inside), self._loop))

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)
        self._sockets.close()

    def _visit(self, visitor: socket.socket, port: int) -> None:
        task = self._loop.create_task(self._serve(Stream(visitor, self._loop), port))
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _serve(self, visitor: Stream, port: int) -> None:
        server: Stream | None = None
        relay: Relay | None = None
        try:
            server = Stream(await self._connect(port), self._loop)
            relay = Relay(visitor, server, self._pipes, self._loop)
            await relay.done
        except OSError:
            visitor.abort()  # nobody listens on that port inside
        finally:
            if relay is not None:
                relay.stop(Outcome.STOPPED)
            visitor.close()
            if server is not None:
                server.close()

    async def _connect(self, port: int) -> socket.socket:
        """A server inside may listen on either loopback."""
        try:
            return await self._connect_to("127.0.0.1", port)
        except ConnectionRefusedError:
            return await self._connect_to("::1", port)

    async def _connect_to(self, address: str, port: int) -> socket.socket:
        sock = await self._sockets.get(ipv6=":" in address)
        try:
            await self._loop.sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        return sock


class _Sockets:
    """Sockets of the sandbox's network, for those who ask, one after the other."""

    def __init__(self, connector: Connector, loop: asyncio.AbstractEventLoop) -> None:
        self._connector, self._loop = connector, loop
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting: deque[asyncio.Future[socket.socket]] = deque()
        self._channel = connector.fileno()
        loop.add_reader(self._channel, self._made)

    async def get(self, *, ipv6: bool) -> socket.socket:
        async with self._turns:
            made: asyncio.Future[socket.socket] = self._loop.create_future()
            self._connector.request(ipv6=ipv6)
            self._waiting.append(made)
            return await made

    def close(self) -> None:
        self._loop.remove_reader(self._channel)

    def _made(self) -> None:
        try:
            sock = self._connector.take()
        except OSError as error:
            self._fail(error)
            return
        made = self._waiting.popleft()
        if made.done():  # who asked is gone
            sock.close()
        else:
            made.set_result(sock)

    def _fail(self, error: OSError) -> None:
        """One could not be made; without anyone to wait for it, the helper is gone."""
        if not self._waiting:
            self.close()
            return
        made = self._waiting.popleft()
        if not made.done():
            made.set_exception(error)
