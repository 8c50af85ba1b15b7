"""A gate inside the test's own event loop, with real sockets around it.

    async with gate(hosts={"allowed.test": upstream.port}) as g:
        answer = await g.ask(b"GET http://allowed.test/ HTTP/1.1\r\n…")
        assert g.records()[0]["reason"] == "listed"
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from egress.audit import Audit
from egress.gateway import Gateway
from egress.limits import LIMITS, Limits
from egress.model import Host, Source
from egress.net.listeners import open_tcp
from egress.net.resolver import Resolver
from egress.passage import Traffic
from egress.policy import Fixed, Persona, Policy
from egress.reception import Reception
from egress.rules import Rule, parse_rule
from egress.sessions import Door, Live

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Upstream:
    """A local server that remembers what it was sent."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.connections = 0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def upstream(handler: Handler) -> AsyncIterator[Upstream]:
    server = Upstream(handler)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


class Http:
    """An upstream handler that keeps every request it got and gives canned answers."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            self.bodies.append(await self._body(reader, head.lower()))
            writer.write(self.answer)
            await writer.drain()
            if b"connection: close" in self.answer.lower():
                return

    async def _body(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" in head:
            return await reader.readuntil(b"0\r\n\r\n")
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return await reader.readexactly(int(line.split(b":")[1]))
        return b""


def rule(text: str, **changes: Any) -> Rule:
    """A rule that may lead to loopback, where the tests' upstreams are."""
    return parse_rule(text, Source("test.yaml", 1))._replace(**{"private": True, **changes})


class Kit:
    def __init__(self, gateway: Gateway, port: int, audit: Path) -> None:
        self.gateway = gateway
        self.port = port
        self.audit = audit

    def records(self, **wanted: Any) -> list[dict[str, Any]]:
        if not self.audit.exists():
            return []
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, data: bytes, *, eof: bool = False) -> bytes:
        """Everything the gate answers to these bytes, until it closes or (with `eof`) has no more."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if eof:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), 15)
        finally:
            writer.close()

    async def tunnel(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        reader, writer = await self.connect()
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return reader, writer, await reader.readuntil(b"\r\n\r\n")


@asynccontextmanager
async def gate(
    tmp_path: Path,
    allow: tuple[Rule, ...] = (),
    deny: tuple[Rule, ...] = (),
    hosts: Mapping[str, int] | None = None,
    limits: Limits = LIMITS,
    **options: Any,
) -> AsyncIterator[Kit]:
    """A gate for persona `p`; `hosts` maps names to ports on loopback."""
    loop = asyncio.get_running_loop()
    fixed = {Host(name): Fixed("127.0.0.1", port) for name, port in (hosts or {}).items()}
    policy = Policy({"p": Persona("p", allow, deny)}, fixed)
    audit = Audit(str(tmp_path / "audit.jsonl"), "test")
    traffic, resolver = Traffic(loop, limits), Resolver(loop, limits)
    gateway = Gateway(Live(policy), audit, resolver, traffic, loop, limits=limits, **options)
    reception = Reception(gateway)
    sock = open_tcp("127.0.0.1", 0)
    reception.open(sock, Door(None if "users" in options else "p"))
    try:
        yield Kit(gateway, sock.getsockname()[1], tmp_path / "audit.jsonl")
    finally:
        traffic.close()
        await reception.close()
        resolver.close()
        audit.close()
