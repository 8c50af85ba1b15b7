"""A gate inside the test's own event loop, with real sockets around it.

async with gate(hosts={"allowed.test": upstream.port}) as g:
    answer = await g.ask(b"GET http://allowed.test/ HTTP/1.1\r\n…")
    assert g.records()[0]["reason"] == "listed"
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from egress.audit import Audit
from egress.gateway import Gateway
from egress.inspecting import Inspecting, Opener
from egress.limits import LIMITS, Limits
from egress.model import Host, Source
from egress.net.listeners import open_tcp
from egress.net.resolver import Finding, Resolver
from egress.passage import Traffic
from egress.policy import Fixed, Persona, Policy
from egress.reception import Reception
from egress.requestdesk import Desk
from egress.rules import Rule, parse_rule
from egress.sessions import Door, Live
from egress.uploads import Uploads
from egress.vault import Vault

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PATIENCE = 15.0  # for what must happen; nothing waits as long as that unless it is broken


async def until(holds: Callable[[], object]) -> None:
    """Give the loop turns until it holds. It is an error if it never does."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.002)


def descriptors() -> dict[str, str]:
    """What this process has open; but of /dev/null uvloop keeps one as a spare, from its first use on."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return {number: what for number, what in found.items() if what != "/dev/null"}


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, as a process does that died with input unread."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection: the near one never blocks, the far one does, for a while."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            near.setblocking(False)
            far.settimeout(PATIENCE)
            yield near, far


class Upstream:
    """A local server that remembers what it was sent."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._open: set[asyncio.Task[Any]] = set()
        self.connections = 0
        self.port = 0

    @property
    def open(self) -> int:
        """Connections that are still being served."""
        return len(self._open)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
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


class Says:
    """An upstream handler for one request: it reads a head, says its piece, and closes, resets or stays silent."""

    def __init__(self, *pieces: bytes, then: str = "close") -> None:
        self.pieces, self.then = pieces, then
        self.heads: list[bytes] = []
        self.ended: list[bytes | None] = []  # what came after the head; None for a reset

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        for piece in self.pieces:
            writer.write(piece)
            await writer.drain()
        if self.then == "reset":
            reset(writer)
        elif self.then == "wait":
            self.ended.append(await _rest(reader))


class Sink:
    """An upstream handler that reads until the end, and remembers how much, and how it ended."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.ended: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.got += data
            self.ended.append("closed")
        except ConnectionError:
            self.ended.append("reset")


async def _rest(reader: asyncio.StreamReader) -> bytes | None:
    try:
        return await reader.read()
    except ConnectionError:
        return None


class Names(Resolver):
    """A resolver that looks nothing up: each time a name is asked for it gives the next of its answers."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]], anything: Sequence[str] = ()) -> None:
        super().__init__(asyncio.get_running_loop())
        self._answers = {name: iter(each) for name, each in answers.items()}
        self._anything = anything
        self.asked: list[str] = []

    async def _ask_system(self, host: Host) -> Finding:
        self.asked.append(host)
        return self._finding(next(self._answers.get(host, iter(())), self._anything), 0)


def rule(text: str, **changes: Any) -> Rule:
    """A rule that may lead to loopback, where the tests' upstreams are."""
    return parse_rule(text, Source("test.yaml", 1))._replace(**{"private": True, **changes})


class Answer(NamedTuple):
    """An HTTP answer as a client understands it."""

    status: int
    fields: dict[str, str]
    body: bytes
    trailers: bytes = b""

    @property
    def reason(self) -> str | None:
        return self.fields.get("x-egress-reason")


async def hear(reader: asyncio.StreamReader, method: str = "GET") -> Answer:
    """The next answer, whole; IncompleteReadError or ConnectionResetError for one that was cut."""
    async with asyncio.timeout(PATIENCE):
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        status, fields = int(first.split(" ")[1]), {}
        for line in lines:
            name, _, value = line.partition(": ")
            fields[name.lower()] = value
        if status < 200 or status in (204, 304) or method == "HEAD":
            return Answer(status, fields, b"")
        if "transfer-encoding" in fields:
            return Answer(status, fields, *await _chunks(reader))
        if "content-length" in fields:
            return Answer(status, fields, await reader.readexactly(int(fields["content-length"])))
        return Answer(status, fields, await reader.read())


async def _chunks(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    data = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        data += (await reader.readexactly(size + 2))[:-2]
    trailers = b""
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers += line
    return data, trailers


class Kit:
    def __init__(self, gateway: Gateway, reception: Reception, port: int, audit: Path) -> None:
        self.gateway, self.reception = gateway, reception
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
            return await asyncio.wait_for(reader.read(), PATIENCE)
        finally:
            writer.close()

    async def put(self, data: bytes) -> None:
        """Say it and hang up, whatever the answer."""
        _, writer = await self.connect()
        writer.write(data)
        await writer.drain()
        reset(writer)

    async def tunnel(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        reader, writer = await self.connect()
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return reader, writer, await reader.readuntil(b"\r\n\r\n")

    async def socks(self, name: bytes, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """A SOCKS5 connection to a name, and the reply to its request."""
        reader, writer = await self.connect()
        writer.write(b"\x05\x01\x00" + socks_request(name, port))
        assert await reader.readexactly(2) == b"\x05\x00"
        return reader, writer, await reader.readexactly(10)


def socks_request(name: bytes, port: int, command: int = 1) -> bytes:
    return bytes((5, command, 0, 3, len(name))) + name + port.to_bytes(2, "big")


def opener() -> Opener:
    raise AssertionError("no TLS is opened here")


@asynccontextmanager
async def gate(
    tmp_path: Path,
    allow: tuple[Rule, ...] = (),
    deny: tuple[Rule, ...] = (),
    hosts: Mapping[str, int] | None = None,
    limits: Limits = LIMITS,
    names: Resolver | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Kit]:
    """A gate for persona `p`; `hosts` maps names to ports on loopback, `names` resolves all others."""
    loop = asyncio.get_running_loop()
    fixed = {Host(name): Fixed("127.0.0.1", port) for name, port in (hosts or {}).items()}
    policy = Policy({"p": Persona("p", allow, deny)}, fixed)
    audit = Audit(str(tmp_path / "audit.jsonl"), "test", soon=loop.call_soon)
    traffic, resolver = Traffic(loop, limits), names or Resolver(loop, limits)
    vault = Vault({} if environ is None else environ)
    desk = Desk(vault, Uploads())
    policy = vault.settle(policy, {"p"})
    gateway = Gateway(Live(policy), audit, resolver, traffic, desk, loop, limits=limits, **options)
    gateway.inspection = Inspecting(opener)
    reception = Reception(gateway)
    sock = open_tcp("127.0.0.1", 0)
    reception.open(sock, Door(None if "users" in options else "p"))
    try:
        yield Kit(gateway, reception, sock.getsockname()[1], tmp_path / "audit.jsonl")
    finally:
        traffic.close()
        await reception.close()
        resolver.close()
        desk.uploads.close()
        audit.close()
