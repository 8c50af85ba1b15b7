"""Servers inside, reachable at 127.0.0.1 on the host.

A connection from the host needs a socket of the sandbox's network to go on with; the connector makes one
per request, in order. What comes in this way was let in by the user and is no business of the policy.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque

from egress.net.listeners import Listener, open_tcp
from egress.net.pipepool import Pipes
from egress.net.relay import Outcome, Relay
from egress.net.stream import Stream
from launcher.netns.connector import Connector
from launcher.options import Publish


class Publisher:
    def __init__(self, connector: Connector, pipes: Pipes, loop: asyncio.AbstractEventLoop) -> None:
        self._connector, self._pipes, self._loop = connector, pipes, loop
        self._waiting: deque[asyncio.Future[socket.socket]] = deque()
        self._listeners: list[Listener] = []
        self._visits: set[asyncio.Task[None]] = set()
        loop.add_reader(connector.fileno(), self._made)

    def open(self, publish: Publish) -> None:
        """OSError where the host's port is taken."""
        sock = open_tcp("127.0.0.1", publish.outside)
        self._listeners.append(Listener(sock, lambda visitor: self._visit(visitor, publish.inside), self._loop))

    async def close(self) -> None:
        self._loop.remove_reader(self._connector.fileno())
        for listener in self._listeners:
            listener.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

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
        made: asyncio.Future[socket.socket] = self._loop.create_future()
        self._waiting.append(made)
        self._connector.request(ipv6=":" in address)
        sock = await made
        try:
            await self._loop.sock_connect(sock, (address, port))
        except OSError:
            sock.close()
            raise
        return sock

    def _made(self) -> None:
        waiter = self._waiting.popleft()
        try:
            sock = self._connector.take()
        except OSError as error:
            waiter.set_exception(error)
            return
        if waiter.done():  # the visitor is gone
            sock.close()
        else:
            waiter.set_result(sock)
