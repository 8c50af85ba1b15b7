"""Requests that two parsers could read differently, and everything else that is tried with HTTP.

Smuggling needs a message that reaches an upstream and is read differently there. So for each message below no
upstream is even connected to, and behind an honest request it sees that one and no more.
"""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatekit import Http, Kit, Sink, Upstream, gate, hear, rule, upstream

from egress.limits import KIB, LIMITS, MIB

pytestmark = [pytest.mark.scenario, pytest.mark.usefixtures("nothing_left")]

POST = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n"
SMUGGLED = b"GET http://allowed.test/smuggled HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"


@asynccontextmanager
async def town(tmp_path: Path, handler: Any = None, **options: Any) -> AsyncIterator[tuple[Kit, Upstream]]:
    hosts = ["allowed.test", "other.test", "evil.test"]
    rules = (rule("allowed.test"), rule("other.test"), rule("allowed.test:22"))
    async with (
        upstream(handler or Http()) as up,
        gate(tmp_path, rules, hosts=dict.fromkeys(hosts, up.port), **options) as g,
    ):
        yield g, up


async def statuses(g: Kit, data: bytes) -> list[int]:
    """Of all the answers that come back, until the gate closes."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", await g.ask(data))]


# Two framings, or half a one

BOTH = [
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked", CHUNKS),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 5", CHUNKS),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 0", CHUNKS),
    (b"Content-Length: 0\r\nTransfer-Encoding: chunked", CHUNKS),
    (b"Content-Length: 15\r\nTransfer-Encoding: identity", CHUNKS),
    (b"content-length: 15\r\ntransfer-encoding: chunked", CHUNKS),
    (b"Content-Length: 15\r\nX: y\r\nTransfer-Encoding: chunked", CHUNKS),
    (b"Content-Length: 5\r\nContent-Length: 5", b"hello"),
    (b"Content-Length: 5\r\nContent-Length: 0", b"hello"),
    (b"Content-Length: 0\r\nContent-Length: 5", b"hello"),
    (b"Content-Length: 5\r\ncontent-length:5", b"hello"),
    (b"Content-Length: 5\r\nContent-Length:", b"hello"),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", CHUNKS),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", CHUNKS),
    (b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", CHUNKS),
    (b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked", CHUNKS),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", CHUNKS),
]
LENGTHS = [
    (b"Content-Length:" + value, b"hello")
    for value in (
        b" +5", b" -5", b" -0", b" 5,5", b" 5, 5", b" 5,6", b" 0x5", b" 5.0", b" 5 5", b"", b" ", b" '5'",
        b" 5;q=1", b" 5_0", b" 0b101", b" \xb2", b" 5\xa0", b" 5\x0b", b" \x0c5", b" 1e1", b" ,5", b" 5,",
        b" 99999999999999999999", b" 5\x00", b" 18446744073709551621", b" 4294967301x", b" \xef\xbc\x95",
    )
]  # fmt: skip
CODINGS = [
    (b"Transfer-Encoding:" + value, CHUNKS)
    for value in (
        b" xchunked", b" chunkedx", b" chunked, identity", b" identity, chunked", b" chunked, chunked",
        b" gzip, chunked", b" chunked;q=1", b" chunked,", b" ,chunked", b" 'chunked'", b' "chunked"',
        b" chunk ed", b" chunked\x0b", b"\x0bchunked", b" chunked\x0c", b" chunked\xa0", b"\xa0chunked",
        b" chunked\x00", b" identity", b" gzip", b" cow", b"", b" \xc5\xbfchunked", b" chunked\t;",
        b" (chunked)", b" chunked chunked",
    )
]  # fmt: skip
LINES = [
    (b"Transfer-Encoding : chunked", CHUNKS),
    (b"Transfer-Encoding\t: chunked", CHUNKS),
    (b" Transfer-Encoding: chunked", CHUNKS),
    (b"X: y\r\n Transfer-Encoding: chunked", CHUNKS),
    (b"X: y\r\n\tContent-Length: 5", b"hello"),
    (b"X: y\nTransfer-Encoding: chunked", CHUNKS),
    (b"X: y\rTransfer-Encoding: chunked", CHUNKS),
    (b"X: y\r\r\nTransfer-Encoding: chunked", CHUNKS),
    (b"Transfer-Encoding:\r\n chunked", CHUNKS),
    (b"Transfer-Encoding:\n chunked", CHUNKS),
    (b"Transfer-Encoding\r\n: chunked", CHUNKS),
    (b"Transfer-Encoding\x00: chunked", CHUNKS),
    (b"\x00Transfer-Encoding: chunked", CHUNKS),
    (b"Transfer-Encoding", CHUNKS),
    (b"Transfer-Encoding chunked", CHUNKS),
    (b": chunked", CHUNKS),
    (b"Content-Length : 5", b"hello"),
    (b"Content-Length\x0b: 5", b"hello"),
    (b"Content Length: 5", b"hello"),
    (b"Content-Length: 5\rX: y", b"hello"),
    (b"Content-Length: 5\nX: y", b"hello"),
    (b"X: a\x00b\r\nContent-Length: 5", b"hello"),
    (b"X: a\x7fb\r\nContent-Length: 5", b"hello"),
    (b"no colon at all\r\nContent-Length: 5", b"hello"),
    (b"Host: allowed.test\r\nContent-Length: 5", b"hello"),
    (b"Host: evil.test\r\nContent-Length: 5", b"hello"),
    (b"Host:evil.test\r\nContent-Length: 5", b"hello"),
]
AMBIGUOUS = BOTH + LENGTHS + CODINGS + LINES


def test_there_are_enough_of_them() -> None:
    assert len({head for head, _ in AMBIGUOUS}) >= 90


@pytest.mark.parametrize(("head", "body"), AMBIGUOUS, ids=lambda part: repr(part[:60]))
async def test_a_message_with_two_readings_has_none(tmp_path: Path, head: bytes, body: bytes) -> None:
    """Alone, with a request hidden behind it, and behind an honest one: 400, the end, and nothing upstream."""
    async with town(tmp_path) as (g, up):
        assert await statuses(g, POST + head + b"\r\n\r\n" + body) == [400]
        assert await statuses(g, POST + head + b"\r\n\r\n" + body + SMUGGLED) == [400]
        assert up.connections == 0
        assert [r["verdict"] for r in g.records()] == ["deny", "deny"]
        assert await statuses(g, SMUGGLED + POST + head + b"\r\n\r\n" + body + SMUGGLED) == [200, 400]
        assert up.connections == 1


async def test_chunks_in_an_older_version_have_two_readings(tmp_path: Path) -> None:
    head = POST.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with town(tmp_path) as (g, up):
        assert await statuses(g, head + CHUNKS + SMUGGLED) == [400]
        assert up.connections == 0


# Chunks

BAD_CHUNKS = [
    b"0x5\r\nhello\r\n0\r\n\r\n", b"0X5\r\nhello\r\n0\r\n\r\n", b"+5\r\nhello\r\n0\r\n\r\n",
    b"-5\r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n",
    b"5\t\r\nhello\r\n0\r\n\r\n", b"\t5\r\nhello\r\n0\r\n\r\n", b"5h\r\nhello\r\n0\r\n\r\n",
    b"\r\n5\r\nhello\r\n0\r\n\r\n", b"\r\nhello\r\n0\r\n\r\n", b";\r\nhello\r\n0\r\n\r\n",
    b"5;a\nhello\r\n0\r\n\r\n", b"5;a\n\r\nhello\r\n0\r\n\r\n", b"5\nhello\r\n0\r\n\r\n",
    b"5\rhello\r\n0\r\n\r\n", b"5;a\r\x0b\nhello\r\n0\r\n\r\n", b"5;\x00\r\nhello\r\n0\r\n\r\n",
    b"5\x00\r\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r0\r\n\r\n",
    b"5\r\nhello\r\r\n0\r\n\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"5\r\nhell\r\n0\r\n\r\n",
    b"5\r\nhello\r\n\r\n0\r\n\r\n", b"5\r\nhello\r\n 0\r\n\r\n", b"5\r\nhello\r\n0x0\r\n\r\n",
    b"5\r\nhello\r\n-0\r\n\r\n", b"5\r\nhello\r\n0\n\r\n", b"5\r\nhello\r\n0\r\n\n",
    b"5\r\nhello\r\n0\r\nX : y\r\n\r\n", b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
    b"5\r\nhello\r\n0\r\nX: y\n\r\n", b"5\r\nhello\r\n0\r\n X: y\r\n\r\n",
    b"5\r\nhello\r\n0\r\nX: \x00\r\n\r\n", b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n", b"0000000000000000005\r\nhello\r\n0\r\n\r\n",
    b"5" * 2000 + b"\r\n", b"5;" + b"a" * 2000 + b"\r\nhello\r\n0\r\n\r\n", b"\xb2\r\nhello\r\n0\r\n\r\n",
    "５\r\nhello\r\n0\r\n\r\n".encode(), b"5,\r\nhello\r\n0\r\n\r\n", b"5_0\r\nhello\r\n0\r\n\r\n",
    b"five\r\nhello\r\n0\r\n\r\n",
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_CHUNKS, ids=lambda body: repr(body[:40]))
async def test_bad_chunks_go_nowhere(tmp_path: Path, body: bytes) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    async with town(tmp_path) as (g, up):
        assert await statuses(g, head + body + SMUGGLED) == [400]
        assert up.connections == 0
        (record,) = g.records()
        assert (record["verdict"], record["reason"], record["host"]) == ("deny", "malformed_request", "allowed.test:80")


@pytest.mark.parametrize("body", BAD_CHUNKS, ids=lambda body: repr(body[:40]))
async def test_chunks_that_go_bad_on_their_way_are_never_made_whole(tmp_path: Path, body: bytes) -> None:
    """The head is upstream already when the chunk comes: it gets no end, only a reset."""
    sink = Sink()
    async with town(tmp_path, sink) as (g, up):
        reader, writer = await g.connect()
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        async with asyncio.timeout(15):
            while not sink.got.endswith(b"\r\n\r\n"):
                await asyncio.sleep(0)
            writer.write(body + SMUGGLED)
            assert (await hear(reader)).status == 400
            while not sink.ended:
                await asyncio.sleep(0)
        writer.close()
        assert sink.ended == ["reset"]
        assert b"\r\n0\r\n" not in sink.got
        assert b"smuggled" not in sink.got
        assert up.connections == 1


# One connection, many requests


async def test_each_request_of_a_connection_is_decided_by_itself(tmp_path: Path) -> None:
    def get(host: str, *lines: str) -> bytes:
        return "\r\n".join([f"GET http://{host}/ HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()

    server = Http()
    async with town(tmp_path, server) as (g, _):
        data = (
            get("allowed.test") + get("evil.test") + get("other.test") + get("allowed.test:22") + get("169.254.169.254")
        )
        told = await statuses(g, data + get("evil.test", "Connection: close"))
        assert told == [200, 403, 200, 200, 403, 403]
        assert [r["host"] for r in g.records(event="decision", verdict="allow")] == [
            "allowed.test", "other.test", "allowed.test",
        ]  # fmt: skip
    assert [head.split(b"\r\n")[1] for head in server.heads] == [
        b"Host: allowed.test", b"Host: other.test", b"Host: allowed.test:22",
    ]  # fmt: skip


async def test_a_request_inside_a_body_is_a_body(tmp_path: Path) -> None:
    server = Http()
    async with town(tmp_path, server) as (g, up):
        data = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED
        assert await statuses(g, data) == [200]
        assert up.connections == 1
    assert server.bodies == [SMUGGLED]


async def test_what_follows_a_refused_tunnel_goes_nowhere(tmp_path: Path) -> None:
    async with town(tmp_path) as (g, up):
        for target, status in ((b"evil.test:443", 403), (b"allowed.test:23", 403), (b"evil test:1", 400)):
            connect = b"CONNECT %b HTTP/1.1\r\nHost: allowed.test\r\n\r\n" % target
            assert await statuses(g, connect + SMUGGLED) == [status]
        assert up.connections == 0


@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Content-Length: 0", b"Transfer-Encoding: chunked"])
async def test_a_tunnel_has_no_body(tmp_path: Path, framing: bytes) -> None:
    sink = Sink()
    async with town(tmp_path, sink) as (g, up):
        connect = b"CONNECT allowed.test:22 HTTP/1.1\r\nHost: allowed.test\r\n" + framing + b"\r\n\r\nhello"
        assert await statuses(g, connect) == [400]
        assert up.connections == 0


# What a Connection header may not do


@pytest.mark.parametrize(
    "named", [b"host", b"Host", b"transfer-encoding", b"content-length", b"close, host", b"host,\ttransfer-encoding"]
)
@pytest.mark.parametrize("framing", [(b"Content-Length: 5", b"hello"), (b"Transfer-Encoding: chunked", CHUNKS)])
async def test_connection_cannot_strip_what_frames_or_routes(
    tmp_path: Path, named: bytes, framing: tuple[bytes, bytes]
) -> None:
    line, body = framing
    server = Http()
    async with town(tmp_path, server) as (g, _):
        reader, writer = await g.connect()
        writer.write(POST + b"Connection: " + named + b"\r\n" + line + b"\r\n\r\n" + body)
        assert (await hear(reader)).status == 200
        writer.close()
    (head,) = server.heads
    assert b"\r\nHost: allowed.test\r\n" in head
    assert line.lower() in head.lower()
    assert b"connection" not in head.lower()
    assert server.bodies == [body]


async def test_header_values_cannot_start_lines_of_their_own(tmp_path: Path) -> None:
    server = Http()
    async with town(tmp_path, server) as (g, _):
        for value in (
            b"a\x85b",
            b"a\xe2\x80\xa8b",
            b"a%0d%0aX-Evil: 1",
            b"\\r\\nX-Evil: 1",
            b"\xe5\x98\x8a\xe5\x98\x8dX-Evil: 1",
        ):
            reader, writer = await g.connect()
            writer.write(POST + b"X: " + value + b"\r\n\r\n")
            assert (await hear(reader)).status == 200
            writer.close()
    for head in server.heads:
        assert not any(line.startswith(b"X-Evil") for line in head.splitlines())
        assert head.count(b"\r\n") == 4


# Sizes


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (POST + b"X: " + b"x" * (100 * KIB) + b"\r\n\r\n", b"431"),
        (POST + b"x: y\r\n" * 10_000 + b"\r\n", b"431"),
        (b"GET http://allowed.test/" + b"x" * MIB + b" HTTP/1.1\r\nHost: allowed.test\r\n\r\n", b"414"),
        (b"G" * MIB, b"414"),
        (POST + b"x" * MIB, b"431"),
        (POST + b"x" * MIB + b": y\r\n\r\n", b"431"),
        (b"CONNECT " + b"x" * MIB, b"414"),
    ],
    ids=[
        "100 KiB header",
        "10,000 headers",
        "1 MiB line",
        "1 MiB method",
        "1 MiB no end",
        "1 MiB name",
        "1 MiB authority",
    ],
)
async def test_what_is_too_large_is_refused_before_it_is_read_whole(tmp_path: Path, data: bytes, status: bytes) -> None:
    async with town(tmp_path) as (g, up):
        reader, writer = await g.connect()
        tracemalloc.start()
        try:
            for at in range(0, len(data), 64 * KIB):
                writer.write(data[at : at + 64 * KIB])
                await writer.drain()
            told = await hear(reader)
            assert tracemalloc.get_traced_memory()[1] < 2 * MIB
        finally:
            tracemalloc.stop()
            writer.close()
        assert b"%d" % told.status == status
        assert up.connections == 0
        (record,) = g.records()
        assert record["reason"] in ("too_large", "uri_too_long")


async def test_many_large_heads_at_once_take_no_more_than_their_limits(tmp_path: Path) -> None:
    async with town(tmp_path) as (g, _):
        tracemalloc.start()
        try:
            clients = [await g.connect() for _ in range(50)]
            for _, writer in clients:
                writer.write(POST + b"X: " + b"x" * (LIMITS.header_bytes - 200))
                await writer.drain()
            async with asyncio.timeout(15):
                while len(g.reception._guests) < 50:
                    await asyncio.sleep(0)
            assert tracemalloc.get_traced_memory()[1] < 50 * 4 * LIMITS.header_bytes
        finally:
            tracemalloc.stop()
        for _, writer in clients:
            writer.close()
