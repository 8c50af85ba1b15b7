"""A real engine with real clients and servers around it; only the gate is a stand-in."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import h2.events
import pytest
from aiohttp import web
from enginekit import HOST, Gate, Upstreams, allow, refuse
from h2.errors import ErrorCodes
from h2peers import Client, Server

from egress.counts import GATE, Counts
from egress.inspection.messages import Budget, Unreached
from egress.limits import FRAMES, LIMITS

pytestmark = pytest.mark.scenario

MIB = 1024 * 1024
SECRET, STARS = b"s3cret-value-of-a-key", b"*" * 21
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class World:
    """The gate and the servers behind it."""

    def __init__(self, directory: Path) -> None:
        self.outside = Upstreams(directory)
        self.seen: list[Any] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []

    async def gate(self, upstream: int) -> Gate:
        gate = await Gate(upstream).start((self.outside.roots,))
        self._closers.append(gate.close)
        return gate

    async def app(self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]], host: str = HOST) -> Gate:
        app = web.Application(client_max_size=1024 * MIB)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.outside.context("http/1.1", host=host)).start()
        self._closers.append(runner.cleanup)
        return await self.gate(runner.addresses[0][1])

    async def raw(self, handler: Handler, alpn: str = "http/1.1") -> Gate:
        """A server that writes what it likes."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self.outside.context(alpn))
        self._closers.append(lambda: _stopped(server))
        return await self.gate(server.sockets[0].getsockname()[1])

    async def h2(self) -> Gate:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Server, "127.0.0.1", 0, ssl=self.outside.context("h2"))
        self._closers.append(lambda: _stopped(server))
        return await self.gate(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        for close in reversed(self._closers):
            await close()


async def _stopped(server: asyncio.Server) -> None:
    server.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.close()


async def curl(gate: Gate, path: str, *words: str) -> tuple[int, str, str]:
    """Status, head and body; status 0 if there was no answer."""
    line = ["-sS", "-i", "--connect-to", f"{HOST}:443:127.0.0.1:{gate.port}", "--cacert", str(gate.ca)]
    process = await asyncio.create_subprocess_exec(
        "curl", *line, *words, f"https://{HOST}{path}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 50)
    while out.startswith(b"HTTP/1.1 100"):
        out = out.partition(b"\r\n\r\n")[2]
    head, _, body = out.decode("latin-1").partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, head.lower(), body


async def say(gate: Gate, text: bytes) -> bytes:
    """Raw HTTP/1.1 inside TLS, and all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, ssl=gate.trust, server_hostname=HOST)
    writer.write(text)
    try:
        return await asyncio.wait_for(reader.read(-1), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def echo(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    key = request.headers.get("x-api-key", "none")
    return web.Response(
        body=f"{request.method} {request.path_qs} {key} ".encode() + body,
        headers={"Alt-Svc": 'h3=":443"', "X-Echo": key, "Content-Type": "text/plain"},
    )


def head_of(text: bytes) -> bytes:
    return text.partition(b"\r\n")[0]


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
class TestARequest:
    async def test_is_asked_about_goes_up_and_is_accounted_for(self, world: World, version: str) -> None:
        gate = await world.app(echo)
        status, head, body = await curl(gate, "/a/b?c=d", version, "-d", "four")
        assert (status, body) == (200, "POST /a/b?c=d none four")
        assert "alt-svc" not in head
        asked = gate.asked[0]
        assert (asked.method, asked.scheme, asked.authority, asked.path) == (
            "POST",
            "https",
            HOST.encode(),
            b"/a/b?c=d",
        )
        assert asked.length == 4
        await gate.until(lambda: bool(gate.closed))
        done = gate.done[0]
        assert (done.status, done.up, done.down, done.outcome) == (200, 4, len(body), "closed")
        assert gate.closed[0].failure is None

    async def test_that_is_refused_reaches_nobody(self, world: World, version: str, tmp_path: Path) -> None:
        gate = await world.app(echo)
        gate.judge = refuse
        upload = tmp_path / "upload"
        upload.write_bytes(bytes(8 * MIB))
        status, head, body = await curl(gate, "/", version, "-T", str(upload))
        assert (status, body) == (403, "no\n")
        assert "x-egress-reason: path_not_listed" in head
        await gate.until(lambda: bool(gate.closed))
        assert gate.reached == 0
        assert gate.done == []

    async def test_gets_the_secret_and_its_answer_loses_it(self, world: World, version: str) -> None:
        gate = await world.app(echo)
        gate.judge = lambda ask: allow(ask, put=[(b"x-api-key", SECRET)], mask=[SECRET])
        status, head, body = await curl(gate, "/", version, "-H", "x-api-key: placeholder", "-d", SECRET.decode())
        assert status == 200
        assert body == f"POST / {STARS.decode()} {STARS.decode()}"
        assert f"x-echo: {STARS.decode()}" in head

    async def test_over_its_budget_is_cut_off(self, world: World, version: str, tmp_path: Path) -> None:
        gate = await world.app(echo)
        gate.judge = lambda ask: allow(ask, budget=Budget(request=MIB))
        upload = tmp_path / "upload"
        upload.write_bytes(bytes(8 * MIB))
        status, head, _ = await curl(gate, "/", version, "-T", str(upload))
        assert status == 413
        assert "x-egress-reason: upload_limit" in head
        await gate.until(lambda: bool(gate.done))
        assert gate.done[0].outcome == "refused"
        assert gate.done[0].status == 413

    async def test_to_a_server_that_cannot_be_reached_is_told_so(self, world: World, version: str) -> None:
        gate = await world.gate(0)
        gate.unreached = Unreached(0, 0, 502, [(b"X-Egress-Reason", b"unresolved")], b"nowhere\n", "unresolved")
        status, head, body = await curl(gate, "/", version)
        assert (status, body) == (502, "nowhere\n")
        assert "x-egress-reason: unresolved" in head
        await gate.until(lambda: bool(gate.done))
        assert gate.done[0].outcome == "unreached"

    async def test_to_a_server_with_anothers_certificate_is_not_sent(self, world: World, version: str) -> None:
        gate = await world.app(echo, host="another.test")
        status, head, body = await curl(gate, "/", version, "-H", "x-api-key: k")
        assert status == 502
        assert "x-egress-reason: bad_certificate" in head
        assert "hostname mismatch" in body.lower()
        await gate.until(lambda: bool(gate.done))
        assert gate.done[0].outcome == "bad_certificate"

    async def test_of_any_size_costs_little_memory(self, world: World, version: str, tmp_path: Path) -> None:
        async def sink(request: web.Request) -> web.StreamResponse:
            size = 0
            async for piece in request.content.iter_chunked(MIB):
                size += len(piece)
            return web.Response(text=str(size))

        gate = await world.app(sink)
        await curl(gate, "/", version, "-d", "warm")
        before = gate.memory
        upload = tmp_path / "upload"
        with upload.open("wb") as file:
            file.truncate(200 * MIB)
        status, _, body = await curl(gate, "/", version, "-T", str(upload))
        assert (status, body) == (200, str(200 * MIB))
        assert gate.memory - before < 48 * MIB


async def download(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(200 * MIB)})
    await response.prepare(request)
    try:
        for _ in range(200):
            await response.write(bytes(MIB))
    except ConnectionError:
        pass
    return response


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
async def test_an_answer_of_any_size_costs_little_memory(world: World, version: str, tmp_path: Path) -> None:
    gate = await world.app(download)
    before = gate.memory
    out = tmp_path / "out"
    await curl(gate, "/", version, "-o", str(out))
    assert out.stat().st_size > 200 * MIB  # and its head
    assert gate.memory - before < 64 * MIB


async def test_a_client_that_opens_no_window_is_not_buffered_for(world: World) -> None:
    gate = await world.app(download)
    client = await Client.connect(gate.port, HOST, gate.trust, greedy=False)
    before = gate.memory
    number = client.request(HOST, "/")
    while len(client.body(number)) < 65535:
        assert await client.read()
    other = client.request(HOST, "/")  # the connection is not stuck for asking
    assert (await client.head(other))[":status"] == "200"
    assert gate.memory - before < 48 * MIB
    await client.close()


async def test_a_refused_stream_harms_no_other(world: World) -> None:
    gate = await world.h2()
    gate.judge = lambda ask: refuse(ask) if ask.path == b"/no" else allow(ask)
    client = await Client.connect(gate.port, HOST, gate.trust)
    good = client.request(HOST, "/yes", "POST", end=False)
    client.send(good, b"one")
    bad = client.request(HOST, "/no", "POST", end=False)
    client.send(bad, bytes(16000))
    assert (await client.head(bad))[":status"] == "403"
    assert await client.whole(bad) == b"no\n"
    client.send(good, b"two", end=True)
    assert await client.whole(good) == b"onetwo"
    resets = client.of(bad, h2.events.StreamReset)
    assert all(event.error_code == 0 for event in resets)
    await client.close()


async def test_requests_that_are_taken_back_at_once_end_in_a_request_for_calm(world: World) -> None:
    gate = await world.h2()
    client = await Client.connect(gate.port, HOST, gate.trust)
    other = await Client.connect(gate.port, HOST, gate.trust)
    assert await other.whole(other.request(HOST, "/")) == b""
    before, asked = gate.memory, len(gate.asked)
    client.flood(20_000, HOST)
    assert await other.whole(other.request(HOST, "/")) == b""
    while await client.read():
        pass
    assert client.goodbye() == ErrorCodes.ENHANCE_YOUR_CALM
    await gate.until(lambda: bool(gate.closed))
    assert [(closed.flooded, closed.conn) for closed in gate.closed] == [(True, 1)]
    assert len(gate.asked) - asked < 300
    assert gate.memory - before < 16 * MIB
    assert await other.whole(other.request(HOST, "/")) == b""
    await client.close()
    await other.close()


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\x08\x06\0\0\0\0\0" + b"12345678",  # PING
        b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x04\0\0\x10\0",  # SETTINGS
        b"\0\0\x05\x02\0\0\0\0\x01" + b"\0\0\0\0\x01",  # PRIORITY
        b"\0\0\x04\x08\0\0\0\0\0" + b"\0\0\0\x01",  # WINDOW_UPDATE
        b"\0\0\0\x50\0\0\0\0\0",  # of a kind that nobody knows
    ],
)
async def test_frames_that_carry_nothing_end_in_a_request_for_calm(world: World, frame: bytes) -> None:
    gate = await world.h2()
    client = await Client.connect(gate.port, HOST, gate.trust)
    assert await client.whole(client.request(HOST, "/")) == b""
    before = gate.memory
    client.write(frame * 100_000)
    while await client.read():
        pass
    assert client.goodbye() == ErrorCodes.ENHANCE_YOUR_CALM
    await gate.until(lambda: bool(gate.closed))
    assert gate.closed[0].flooded
    assert gate.memory - before < 16 * MIB
    await client.close()


async def test_a_conversation_in_many_small_pieces_with_a_ping_each_is_no_flood(world: World) -> None:
    gate = await world.h2()
    client = await Client.connect(gate.port, HOST, gate.trust)
    call = client.request(HOST, "/pkg.Service/Chat", "POST", end=False)
    for _ in range(FRAMES.idle_frames):
        before = len(client.body(call))
        client.h2.ping(b"12345678")
        client.h2.increment_flow_control_window(4)
        client.send(call, b"word")
        while len(client.body(call)) < before + 4:
            assert await client.read()
        client.events[:] = [event for event in client.events if isinstance(event, h2.events.DataReceived)]
    client.send(call, b"", end=True)
    assert len(await client.whole(call)) == 4 * FRAMES.idle_frames
    await client.close()


async def test_a_server_that_floods_is_left_and_its_client_told(world: World) -> None:
    ping = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\x04\0\0\0\0\0" + ping * 100_000)
        await reader.read(-1)

    gate = await world.raw(server, "h2")
    client = await Client.connect(gate.port, HOST, gate.trust)
    number = client.request(HOST, "/")
    assert (await client.head(number))[":status"] == "502"
    await client.close()
    await gate.until(lambda: bool(gate.closed))
    assert not gate.closed[0].flooded


async def test_both_ways_at_once_with_trailers_masked(world: World) -> None:
    gate = await world.h2()
    gate.judge = lambda ask: allow(ask, mask=[b"s3cret"])
    client = await Client.connect(gate.port, HOST, gate.trust)
    call = client.request(
        HOST, "/pkg.Service/Chat", "POST", [("content-type", "application/grpc"), ("te", "trailers")], end=False
    )
    assert (await client.head(call))[":status"] == "200"  # before anything was sent
    for word in (b"first", b"second"):
        before = len(client.body(call))
        client.send(call, word)
        while len(client.body(call)) - before < len(word):
            assert await client.read()
    client.send(call, b"last", end=True)
    assert await client.whole(call) == b"firstsecondlast"
    trailers = dict(client.of(call, h2.events.TrailersReceived)[0].headers)
    assert trailers[b"grpc-status"] == b"0"
    assert trailers[b"grpc-message"] == b"******"
    await client.close()


async def test_a_body_without_a_length_has_its_end_marked_towards_http1(world: World) -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.set_result(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    gate = await world.raw(server)
    client = await Client.connect(gate.port, HOST, gate.trust)
    number = client.request(HOST, "/", "POST", end=False)
    client.send(number, b"abc")
    client.send(number, b"")  # which must not read as the end
    client.send(number, b"GET /evil HTTP/1.1\r\n\r\n", end=True)
    assert await client.whole(number) == b"ok"
    head, _, body = (await got).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    assert body == b"3\r\nabc\r\n16\r\nGET /evil HTTP/1.1\r\n\r\n\r\n0\r\n\r\n"
    await client.close()


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/x HTTP/1.1\r\nHost: evil.test\r\n\r\nGET /", []),
        ("/a b", []),
        ("/", [("x-a", "b\r\nx-c: d")]),
        ("/", [("x a", "b")]),
        ("/", [("x-a", "b\0")]),
    ],
)
async def test_a_request_that_would_be_two_is_not_even_asked_about(world: World, path: str, more: Any) -> None:
    gate = await world.app(echo)
    client = await Client.connect(gate.port, HOST, gate.trust)
    number = client.request(HOST, path, "GET", more)
    while await client.read():
        if client.of(number, h2.events.ResponseReceived):
            assert (await client.head(number))[":status"] == "400"
            break
    await client.close()
    await gate.until(lambda: bool(gate.closed))
    assert gate.asked == []
    assert gate.reached == 0


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/1.1\r\nHost: H\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: xchunked\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: deflate ,\tchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\x0c\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\nHost: H\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: H\r\nX: y\n\r\n",
        "GET / HTTP/1.1\r\nX: y\nHost: H\r\n\n",
        "GET\t/ HTTP/1.1\r\nHost: H\r\n\r\n",
        "GET /\tHTTP/1.1\r\nHost: H\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: H\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: H\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: H\r\n\r\n",
        "GET /\x0bHTTP/1.1\r\nHost: H\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : H\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: H\r\n folded: yes\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: H\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "CONNECT H:443 HTTP/1.1\r\nHost: H\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ],
)
async def test_what_is_malformed_gets_400_in_our_words(world: World, text: str) -> None:
    gate = await world.app(echo)
    answer = await say(gate, text.replace("H\r\n", f"{HOST}\r\n").encode())
    assert head_of(answer) == b"HTTP/1.1 400 Refused by egress: malformed_request"
    assert b"mitmproxy" not in answer.lower()
    assert gate.asked == []
    assert gate.reached == 0


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("TRACE / HTTP/1.1", ""),
        ("GET / HTTP/1.1", "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"),
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: tls/1.2\r\n"),
    ],
)
async def test_what_would_change_the_connection_is_refused_in_any_case(world: World, line: str, more: str) -> None:
    gate = await world.app(echo)
    answer = await say(gate, f"{line}\r\nHost: {HOST}\r\n{more}Connection: close\r\n\r\n".encode())
    assert head_of(answer) == b"HTTP/1.1 405 Refused by egress: unsupported"
    await gate.until(lambda: bool(gate.done))
    assert gate.done[0].outcome == "refused"
    assert gate.reached == 0


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("GET http://evil.test/x HTTP/1.1\r\nHost: H\r\n", b"evil.test, " + HOST.encode()),
        ("GET http://H/x HTTP/1.1\r\nHost: H\r\n", HOST.encode()),
        ("GET / HTTP/1.1\r\nHost: H\r\nHost: evil.test\r\n", HOST.encode() + b", evil.test"),
        ("GET / HTTP/1.1\r\n", b""),
    ],
)
async def test_the_gate_hears_every_name_that_a_request_is_for(world: World, text: str, authority: bytes) -> None:
    gate = await world.app(echo)
    gate.judge = lambda ask: refuse(ask, 421)
    answer = await say(
        gate, text.replace("H\r\n", f"{HOST}\r\n").replace("//H/", f"//{HOST}/").encode() + b"Connection: close\r\n\r\n"
    )
    assert head_of(answer).startswith(b"HTTP/1.1 421")
    assert gate.asked[0].authority == authority
    assert gate.reached == 0


async def test_what_goes_up_is_in_origin_form_and_names_no_fields_to_drop(world: World) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        world.seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()

    gate = await world.raw(server)
    await say(
        gate,
        f"GET https://{HOST}/x HTTP/1.1\r\nHost: {HOST}\r\nConnection: close, x-api-key, host\r\n"
        "x-api-key: k\r\nProxy-Authorization: p\r\n\r\n".encode(),
    )
    lines = world.seen[0].decode().lower().split("\r\n")
    assert lines[0] == "get /x http/1.1"
    assert "connection: close" in lines
    assert "x-api-key: k" in lines
    assert not any(line.startswith("proxy-authorization") for line in lines)


async def test_a_header_section_without_end_is_431(world: World) -> None:
    gate = await world.app(echo)
    answer = await say(gate, f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX: ".encode() + b"a" * 80_000)
    assert head_of(answer) == b"HTTP/1.1 431 Refused by egress: too_large"
    assert gate.asked == []


async def test_a_loose_head_is_malformed_however_it_is_cut_into_pieces(world: World) -> None:
    gate = await world.app(echo)
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, ssl=gate.trust, server_hostname=HOST)
    for byte in f"GET / HTTP/1.1\nHost: {HOST}\r\n\r\n".encode():
        writer.write(bytes((byte,)))
        await writer.drain()
    assert head_of(await asyncio.wait_for(reader.read(-1), 20)).startswith(b"HTTP/1.1 400")
    assert gate.asked == []
    writer.close()


MANY = [(f"x-{number}", "") for number in range(LIMITS.header_count)]


async def test_more_header_lines_than_may_be_are_431(world: World) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()

    gate = await world.raw(server)
    lines = [f"{name}:\r\n" for name, _ in MANY]
    fits = await say(gate, f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{''.join(lines[1:])}\r\n".encode())
    assert head_of(fits) == b"HTTP/1.1 204 No Content"
    answer = await say(gate, f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{''.join(lines)}\r\n".encode())
    assert head_of(answer) == b"HTTP/1.1 431 Refused by egress: too_large"
    assert len(gate.asked) == 1


async def test_more_header_lines_than_may_be_harm_no_other_stream(world: World) -> None:
    gate = await world.h2()
    client = await Client.connect(gate.port, HOST, gate.trust)
    bad = client.request(HOST, "/", more=[*MANY, ("x-more", "")])
    good = client.request(HOST, "/", more=MANY)
    assert (await client.head(bad))[":status"] == "431"
    assert (await client.head(good))[":status"] == "200"
    assert len(gate.asked) == 1
    await client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (LIMITS.header_count + 1) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n\tfolded\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early\r\n\r\n" * 40,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000,
        b"garbage\r\n\r\n",
        b"",
    ],
)
async def test_an_answer_with_two_readings_is_502(world: World, answer: bytes) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    gate = await world.raw(server)
    status, head, body = await curl(gate, "/", "--http1.1")
    assert status == 502
    assert "x-egress-reason: bad_response" in head
    assert "mitmproxy" not in body
    await gate.until(lambda: bool(gate.done))
    assert (gate.done[0].outcome, gate.done[0].status) == ("bad_response", 502)


async def test_interim_answers_are_skipped(world: World) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    gate = await world.raw(server)
    status, _, body = await curl(gate, "/", "--http1.1")
    assert (status, body) == (200, "ok")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
async def test_a_compressed_answer_is_looked_through_or_refused(world: World, coding: str) -> None:
    async def packed(request: web.Request) -> web.StreamResponse:
        world.seen.append(request.headers["accept-encoding"])
        packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
        body = packer.compress(b"the key is " + SECRET + b"!") + packer.flush()
        return web.Response(body=body, headers={"Content-Encoding": coding})

    gate = await world.app(packed)
    gate.judge = lambda ask: allow(ask, mask=[SECRET])
    status, head, body = await curl(gate, "/", "--http1.1", "-H", "accept-encoding: gzip, br")
    assert world.seen == ["identity"]
    if coding == "br":
        assert status == 502
    else:
        assert (status, body) == (200, f"the key is {STARS.decode()}!")
        assert "content-encoding" not in head


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
async def test_a_part_of_an_answer_is_asked_for_only_where_nothing_is_masked(world: World, version: str) -> None:
    async def ranges(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"{request.headers.get('range')} {request.headers.get('if-range')}")

    gate = await world.app(ranges)
    words = ("-H", "range: bytes=0-9", "-H", 'if-range: "tag"', version)
    assert (await curl(gate, "/", *words))[2] == 'bytes=0-9 "tag"'
    gate.judge = lambda ask: allow(ask, mask=[SECRET])
    assert (await curl(gate, "/", *words))[2] == "None None"


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
async def test_the_name_of_a_header_is_masked_too(world: World, version: str) -> None:
    async def named(request: web.Request) -> web.StreamResponse:
        return web.Response(headers={f"X-{SECRET.decode().upper()}": "1"})

    gate = await world.app(named)
    gate.judge = lambda ask: allow(ask, mask=[SECRET])
    _, head, _ = await curl(gate, "/", version)
    assert f"x-{STARS.decode()}: 1" in head
    assert SECRET.decode() not in head


async def test_events_pass_as_they_come_and_are_masked_across_pieces(world: World) -> None:
    go = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: one\n\ndata: " + SECRET[:5])
        await go.wait()
        await response.write(SECRET[5:] + b"\n\n")
        return response

    gate = await world.app(stream)
    gate.judge = lambda ask: allow(ask, mask=[SECRET])
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, ssl=gate.trust, server_hostname=HOST)
    writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    await asyncio.wait_for(reader.readuntil(b"data: one\n\n"), 10)
    go.set()
    rest = await asyncio.wait_for(reader.read(-1), 10)
    assert STARS in rest
    assert SECRET[:5] not in rest
    writer.close()


async def shout(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data.upper() + " " + SECRET.decode())
    return socket


async def test_a_websocket_passes_messages_and_masks_the_servers(world: World) -> None:
    gate = await world.app(shout)
    gate.judge = lambda ask: allow(ask, mask=[SECRET])
    async with aiohttp.ClientSession(connector=_to(gate)) as session, session.ws_connect(f"https://{HOST}/") as socket:
        for word in ("one", "two"):
            await socket.send_str(word)
            assert await socket.receive_str(timeout=10) == f"{word.upper()} {STARS.decode()}"
    await gate.until(lambda: bool(gate.done))
    assert (gate.done[0].status, gate.done[0].outcome) == (101, "closed")
    assert gate.done[0].up > 0


async def test_a_websocket_masks_pings_pongs_and_why_it_was_closed(world: World) -> None:
    async def telling(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        await socket.ping(b"ping " + SECRET)
        await socket.pong(b"pong " + SECRET)
        await socket.close(code=4001, message=b"no such key: " + SECRET)
        return socket

    gate = await world.app(telling)
    gate.judge = lambda ask: allow(ask, mask=[SECRET])
    async with (
        aiohttp.ClientSession(connector=_to(gate)) as session,
        session.ws_connect(f"https://{HOST}/", autoping=False, autoclose=False) as socket,
    ):
        heard = [await socket.receive(timeout=10) for _ in range(3)]
    assert [(message.type, bytes(message.data)) for message in heard[:2]] == [
        (aiohttp.WSMsgType.PING, b"ping " + STARS),
        (aiohttp.WSMsgType.PONG, b"pong " + STARS),
    ]
    assert (heard[2].data, heard[2].extra) == (4001, "no such key: " + STARS.decode())


async def test_what_a_websocket_sends_in_pings_counts(world: World) -> None:
    gate = await world.app(shout)
    gate.judge = lambda ask: allow(ask, budget=Budget(request=1000))
    async with aiohttp.ClientSession(connector=_to(gate)) as session, session.ws_connect(f"https://{HOST}/") as socket:
        for _ in range(20):
            await socket.ping(b"p" * 100)
        assert (await socket.receive(timeout=10)).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE)
    await gate.until(lambda: bool(gate.done))
    assert gate.done[0].outcome == "refused"


async def test_a_websocket_over_its_budget_is_cut_off(world: World) -> None:
    gate = await world.app(shout)
    gate.judge = lambda ask: allow(ask, budget=Budget(request=1000))
    async with aiohttp.ClientSession(connector=_to(gate)) as session, session.ws_connect(f"https://{HOST}/") as socket:
        await socket.ping(b"p" * 100)
        await socket.send_str("x" * 2000)
        assert (await socket.receive(timeout=10)).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE)
    await gate.until(lambda: bool(gate.done))
    assert gate.done[0].outcome == "refused"


async def test_a_sessions_budget_is_shared_with_the_gate(world: World) -> None:
    gate = await world.app(echo)
    gate.judge = lambda ask: allow(ask, budget=Budget(session=100, slot=1))
    assert (await curl(gate, "/", "--http1.1", "-d", "x" * 40))[0] == 200
    assert gate.counts.total(1) == 40
    Counts(gate.counts.fd, GATE).add(1, 30)
    assert (await curl(gate, "/", "--http1.1", "-d", "x" * 40))[0] == 413
    assert (await curl(gate, "/", "--http1.1", "-d", "x" * 30))[0] == 200


async def test_a_client_that_distrusts_us_is_not_let_past(world: World) -> None:
    gate = await world.app(echo)
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection("127.0.0.1", gate.port, ssl=ssl.create_default_context(), server_hostname=HOST)
    await gate.until(lambda: bool(gate.closed))
    assert gate.closed[0].failure == "the client does not trust our certificate"
    assert gate.asked == []
    assert gate.reached == 0


async def test_many_at_once(world: World) -> None:
    gate = await world.app(echo)

    async def one(session: aiohttp.ClientSession, number: int) -> str:
        async with session.get(f"https://{HOST}/{number}") as answer:
            return await answer.text()

    async with aiohttp.ClientSession(connector=_to(gate, limit=50)) as session:
        texts = await asyncio.gather(*(one(session, number) for number in range(50)))
    assert texts == [f"GET /{number} none " for number in range(50)]
    await gate.until(lambda: len(gate.done) == 50)
    assert gate.memory < 80 * 1000 * 1000


async def test_connections_that_are_over_leave_nothing(world: World) -> None:
    gate = await world.app(echo)
    text = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
    for _ in range(40):
        await asyncio.gather(*(say(gate, text) for _ in range(10)))
    await gate.until(lambda: len(gate.closed) == 400)
    assert gate.memory < 80 * 1000 * 1000
    files = os.listdir(f"/proc/{gate.pid}/fd")
    assert len(files) < 20


async def test_many_streams_of_one_connection_to_a_server_of_http1(world: World) -> None:
    gate = await world.app(echo)
    client = await Client.connect(gate.port, HOST, gate.trust)
    numbers = [client.request(HOST, f"/{number}") for number in range(40)]
    bodies = [await client.whole(number) for number in numbers]
    assert bodies == [f"GET /{number} none ".encode() for number in range(40)]
    await client.close()


async def test_requests_of_one_connection_are_asked_about_one_by_one(world: World) -> None:
    gate = await world.app(echo)
    gate.judge = lambda ask: refuse(ask) if ask.path == b"/2" else allow(ask)
    text = b"".join(f"GET /{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode() for number in (1, 2))
    last = f"GET /3 HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
    answer = await say(gate, text + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"403", b"200"]
    assert [ask.path for ask in gate.asked] == [b"/1", b"/2", b"/3"]


async def test_a_connection_is_stopped_when_the_gate_says_so(world: World) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    gate = await world.app(never)
    saying = asyncio.create_task(say(gate, f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()))
    await gate.until(lambda: gate.reached == 1)
    gate.stop(1)
    assert await saying == b""
    await gate.until(lambda: bool(gate.closed))
    assert [done.outcome for done in gate.done] == ["reset"]


async def test_an_engine_that_is_killed_takes_its_connections_with_it(world: World) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    gate = await world.app(never)
    saying = asyncio.create_task(say(gate, f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()))
    await gate.until(lambda: gate.reached == 1)
    os.kill(gate.pid, signal.SIGKILL)
    await asyncio.wait_for(gate.lost.wait(), 10)
    assert await saying == b""


async def test_the_engine_ends_with_its_line(world: World) -> None:
    gate = await world.app(echo)
    await curl(gate, "/", "--http1.1")
    gate.channel.close()
    ended = await asyncio.to_thread(os.waitid, os.P_PID, gate.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert ended.si_status == 0


def _to(gate: Gate, limit: int = 10) -> aiohttp.TCPConnector:
    class Resolver(aiohttp.abc.AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
            return [{"hostname": host, "host": "127.0.0.1", "port": gate.port, "family": 2, "proto": 0, "flags": 0}]

        async def close(self) -> None:
            pass

    return aiohttp.TCPConnector(resolver=Resolver(), ssl=gate.trust, limit=limit)
