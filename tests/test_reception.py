"""The front desk: which face a connection is shown to, and that each one is forgotten when it is over."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from gatekit import Http, Kit, echo, gate, reset, rule, until, upstream

from egress import reception
from egress.gateway import Gateway
from egress.limits import LIMITS
from egress.net.listeners import open_tcp, open_unix
from egress.net.stream import Stream
from egress.sessions import Door

LOOPS = "asyncio", "uvloop"
pytestmark = pytest.mark.usefixtures("nothing_left")

GET = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (GET, b"HTTP/1.1 403 "),
        (b"\x05\x00", b"\x05\xff"),
        (b"\x04\x01", b"\x00\x5b"),
        (b"\x16\x03\x01", b"\x15\x03"),
        (b"\x00\r\n\r\n", b"HTTP/1.1 400 "),
    ],
)
async def test_the_first_byte_chooses_the_face(tmp_path: Path, data: bytes, answer: bytes) -> None:
    async with gate(tmp_path) as g:
        assert (await g.ask(data)).startswith(answer)
        assert len(g.records(verdict="deny")) == 1


async def test_a_listener_may_have_a_face_of_its_own(tmp_path: Path) -> None:
    async def shout(gate: Gateway, client: Stream, door: Door) -> None:
        await client.send((door.persona or "").upper().encode())

    async with gate(tmp_path) as g:
        sock = open_tcp("127.0.0.1", 0)
        g.reception.open(sock, Door("somebody"), shout)
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        assert await reader.read() == b"SOMEBODY"
        writer.close()


async def test_small_answers_are_sent_at_once(tmp_path: Path) -> None:
    """Without TCP_NODELAY the second of two small sends waits until the first is acknowledged, up to 40 ms."""
    seen = []

    async def look(gate: Gateway, client: Stream, door: Door) -> None:
        seen.append(client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    async with gate(tmp_path) as g:
        for ip in ("127.0.0.1", "::1"):
            sock = open_tcp(ip, 0)
            g.reception.open(sock, Door("p"), look)
            _, writer = await asyncio.open_connection(*sock.getsockname()[:2])
            await until(lambda: seen)
            writer.close()
            assert seen.pop() != 0


async def test_the_gate_knows_its_own_listeners(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        everywhere = open_tcp("0.0.0.0", 0)
        g.reception.open(everywhere, Door("p"))
        elsewhere = open_tcp("127.0.0.1", 0)
        g.reception.open_elsewhere(elsewhere, Door("p"))
        assert g.gateway.listeners.exact == {("127.0.0.1", g.port)}
        assert g.gateway.listeners.wildcard == {everywhere.getsockname()[1]}


async def test_a_unix_socket_lets_in_its_own_users_only(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        for peers, answer in ((frozenset({os.getuid()}), b"HTTP/1.1 403 "), (frozenset({4242}), b"")):
            path = str(tmp_path / f"gate-{min(peers)}.sock")
            g.reception.open(open_unix(path), Door("p", peers))
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(GET)
            raw = await _read(reader)
            assert raw.startswith(answer)
            assert bool(raw) == bool(answer)
            writer.close()
        assert [r["reason"] for r in g.records()] == ["not_listed", "peer_not_allowed"]
        assert g.records()[1]["host"] == f"uid {os.getuid()}"
    assert not list(tmp_path.glob("*.sock"))


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 15)
    except ConnectionResetError:  # closed with our request unread
        return b""


async def test_connections_over_the_limit_are_told_and_those_far_over_it_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "_SPARE", 2)
    limits = LIMITS._replace(connections=2)
    async with (
        upstream(echo) as up,
        gate(tmp_path, (rule("a.test:22"),), hosts={"a.test": up.port}, limits=limits) as g,
    ):
        tunnels = [await g.tunnel("a.test:22") for _ in range(2)]
        _, told_writer, told = await g.tunnel("a.test:22")
        assert told.startswith(b"HTTP/1.1 503 ")
        told_writer.close()
        await until(lambda: len(g.reception._guests) == 2)
        waiting = [await g.connect() for _ in range(2)]
        await until(lambda: len(g.reception._guests) == 4)
        assert await g.ask(b"") == b""
        assert g.records(verdict="deny")[0]["reason"] == "limit"
        for _, writer in waiting:
            reset(writer)
        for reader, writer, _ in tunnels:  # whoever was inside is not troubled
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()
        await until(lambda: not g.reception._guests)
        reader, writer, again = await g.tunnel("a.test:22")
        assert again.startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_closing_waits_for_every_guest(tmp_path: Path) -> None:
    async with upstream(Http()) as up, gate(tmp_path, (rule("a.test"),), hosts={"a.test": up.port}) as g:
        guests = [await g.connect() for _ in range(3)]
        guests[0][1].write(b"GET ")
        guests[1][1].write(b"\x05\x01\x00")
        guests[2][1].write(GET.replace(b"Connection: close", b"X: y"))
        await until(lambda: len(g.reception._guests) == 3 and g.records())
        await g.reception.close()
        assert not g.reception._guests
    for _, writer in guests:
        writer.close()


@pytest.mark.parametrize("data", [b"", b"G", b"\x05", b"\x16", GET[:-2]])
async def test_a_client_that_vanishes_is_forgotten(tmp_path: Path, data: bytes) -> None:
    async with gate(tmp_path) as g:
        await _vanish(g, data)
        await until(lambda: not g.reception._guests)
        assert (await g.ask(GET)).startswith(b"HTTP/1.1 403 ")


async def _vanish(g: Kit, data: bytes) -> None:
    _, writer = await g.connect()
    await until(lambda: g.reception._guests)
    writer.write(data)
    reset(writer)
