"""Plain HTTP through the gate: what streams by, what is kept, and what a client sees when something breaks."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatekit import Answer, Handler, Http, Kit, Names, Says, Sink, Upstream, gate, hear, reset, rule, until, upstream

from egress import gateway
from egress.limits import KIB, LIMITS, MIB
from egress.net.relay import Outcome

pytestmark = pytest.mark.usefixtures("nothing_left")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def request(
    method: str = "GET", *lines: str, version: str = "1.1", host: str = "allowed.test", path: str = "/x"
) -> bytes:
    head = [f"{method} http://{host}{path} HTTP/{version}", f"Host: {host}", *lines, "", ""]
    return "\r\n".join(head).encode()


@asynccontextmanager
async def served(tmp_path: Path, handler: Handler, **options: Any) -> AsyncIterator[tuple[Kit, Upstream]]:
    """A gate that allows one host, and that host."""
    async with (
        upstream(handler) as up,
        gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port, "evil.test": up.port}, **options) as g,
    ):
        yield g, up


@asynccontextmanager
async def client(g: Kit) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await g.connect()
    try:
        yield reader, writer
    finally:
        writer.close()


async def asked(g: Kit, data: bytes, method: str = "GET") -> Answer:
    async with client(g) as (reader, writer):
        writer.write(data)
        return await hear(reader, method)


async def ended(g: Kit) -> dict[str, Any]:
    """The one end record, once it is there."""
    await until(lambda: g.records(event="end"))
    (record,) = g.records(event="end")
    return record


# Bodies up


async def test_a_body_goes_up_with_its_length(tmp_path: Path) -> None:
    server = Http()
    async with served(tmp_path, server) as (g, _):
        assert (await asked(g, request("POST", "Content-Length: 5") + b"hello")).body == b"ok"
    assert server.bodies == [b"hello"]


async def test_chunks_go_up_as_chunks_of_our_own_and_without_their_trailers(tmp_path: Path) -> None:
    seen = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    async with served(tmp_path, handler) as (g, _):
        body = b"5;ext=1\r\nhello\r\n0\r\nX-Sum: 1\r\nHost: evil.test\r\n\r\n"
        assert (await asked(g, request("POST", "Transfer-Encoding: chunked") + body)).status == 200
    assert seen == [b"5\r\nhello\r\n0\r\n\r\n"]


async def test_a_client_that_waits_for_a_word_before_its_body_gets_it(tmp_path: Path) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"expect: 100-continue\r\n" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(5) == b"hello"
        writer.write(OK)

    async with served(tmp_path, handler) as (g, _), client(g) as (reader, writer):
        writer.write(request("POST", "Content-Length: 5", "Expect: 100-continue"))
        assert (await hear(reader)).status == 100
        writer.write(b"hello")
        assert (await hear(reader)).body == b"ok"


async def test_a_client_that_is_told_not_to_send_its_body_is_told_that_this_was_all(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"
    async with served(tmp_path, Says(answer, then="wait")) as (g, _), client(g) as (reader, writer):
        writer.write(request("POST", "Content-Length: 5", "Expect: 100-continue"))
        told = await hear(reader)
        assert (told.status, told.fields["connection"]) == (417, "close")
        assert await reader.read() == b""


@pytest.mark.parametrize("then", ["close", "wait"])
async def test_an_answer_that_comes_before_the_upload_ends_reaches_a_client_that_still_sends(
    tmp_path: Path, then: str
) -> None:
    """The client sends on regardless and reads later: a reset in between would take the answer away from it."""
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nstop"
    async with served(tmp_path, Says(answer, then=then)) as (g, _), client(g) as (reader, writer):
        writer.write(request("POST", f"Content-Length: {64 * MIB}"))
        await until(lambda: g.records(event="end"))
        for _ in range(16):
            writer.write(bytes(64 * KIB))
            await writer.drain()
            await asyncio.sleep(0)
        told = await hear(reader)
        assert (told.status, told.body, told.fields["connection"]) == (413, b"stop", "close")


async def test_more_input_behind_the_last_request_does_not_take_its_answer_away(tmp_path: Path) -> None:
    async with served(tmp_path, Http()) as (g, _), client(g) as (reader, writer):
        writer.write(request("GET", "Connection: close") + request())
        await until(lambda: g.records(event="end"))
        for _ in range(16):
            writer.write(request())
            await writer.drain()
            await asyncio.sleep(0)
        assert (await hear(reader)).body == b"ok"
        assert await reader.read() == b""
        assert len(g.records(event="decision")) == 1


async def test_a_long_upload_has_all_the_time_it_needs(tmp_path: Path) -> None:
    """The time for an answer begins when all of the request was sent."""
    limits = LIMITS._replace(response=0.05)
    server = Http()
    async with served(tmp_path, server, limits=limits) as (g, _), client(g) as (reader, writer):
        writer.write(request("POST", "Content-Length: 4"))
        for byte in b"slow":
            await asyncio.sleep(0.03)
            writer.write(bytes((byte,)))
        assert (await hear(reader)).status == 200
    assert server.bodies == [b"slow"]


async def test_an_answer_that_began_in_time_may_go_on_after_the_upload(tmp_path: Path) -> None:
    limits = LIMITS._replace(response=0.02)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        assert await reader.readexactly(5) == b"hello"
        await asyncio.sleep(0.06)
        writer.write(b"later")

    async with served(tmp_path, handler, limits=limits) as (g, _), client(g) as (reader, writer):
        writer.write(request("POST", "Content-Length: 5") + b"hel")
        await reader.readuntil(b"first")
        writer.write(b"lo")
        assert await reader.readexactly(5) == b"later"


@pytest.mark.parametrize("body", [b"", b"hel", b"hello"])
async def test_an_upstream_that_does_not_answer_is_not_waited_for(tmp_path: Path, body: bytes) -> None:
    limits = LIMITS._replace(response=0.02)
    async with served(tmp_path, Says(then="wait"), limits=limits) as (g, _), client(g) as (reader, writer):
        writer.write(request("POST", f"Content-Length: {len(body)}") + body[:3])
        await until(g.records)
        writer.write(body[3:])
        answer = await hear(reader)
        assert (answer.status, answer.reason) == (502, "bad_response")
        assert b"no answer came in time" in answer.body
        assert (await ended(g))["outcome"] == "bad_response"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
async def test_a_client_that_breaks_off_its_upload_takes_the_upstream_with_it(
    tmp_path: Path, framing: str, how: str
) -> None:
    sink = Sink()
    async with served(tmp_path, sink) as (g, up):
        _, writer = await g.connect()
        writer.write(request("POST", framing) + b"5\r\nhello\r\n")
        await until(lambda: sink.got.endswith(b"hello\r\n"))
        writer.close() if how == "close" else reset(writer)
        await until(lambda: sink.ended)
        assert sink.ended == ["reset"]
        assert up.open == 0


async def test_a_body_that_begins_badly_goes_nowhere(tmp_path: Path) -> None:
    async with served(tmp_path, Sink()) as (g, up):
        answer = await asked(g, request("POST", "Transfer-Encoding: chunked") + b"0x5\r\nhello\r\n0\r\n\r\n")
        assert (answer.status, answer.reason, answer.fields["connection"]) == (400, "malformed_request", "close")
        assert up.connections == 0
        (record,) = g.records()
        assert (record["verdict"], record["reason"], record["host"]) == ("deny", "malformed_request", "allowed.test:80")


async def test_a_body_that_goes_bad_later_is_cut_off_and_never_made_whole(tmp_path: Path) -> None:
    sink = Sink()
    async with served(tmp_path, sink) as (g, _), client(g) as (reader, writer):
        writer.write(request("POST", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n")
        await until(lambda: sink.got.endswith(b"hello\r\n"))
        writer.write(b"+5\r\nworld\r\n0\r\n\r\n" + request("GET", path="/smuggled"))
        answer = await hear(reader)
        assert (answer.status, answer.reason) == (400, "malformed_request")
        assert await reader.read() == b""
        await until(lambda: sink.ended)
        assert sink.ended == ["reset"]
        assert sink.got.endswith(b"\r\n\r\n5\r\nhello\r\n")
        assert [(r["verdict"], r["reason"]) for r in g.records(event="decision")] == [
            ("allow", "listed"),
            ("deny", "malformed_request"),
        ]
        (end,) = g.records(event="end")
        assert (end["outcome"], end["up"]) == ("refused", len(sink.got))


# Bodies down


async def test_trailers_come_down_but_not_those_that_frame(tmp_path: Path) -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n"
    async with served(tmp_path, Says(raw)) as (g, _):
        answer = await asked(g, request())
    assert (answer.body, answer.trailers) == (b"ok", b"x-sum: 1\r\n")


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
async def test_an_answer_without_a_body_leaves_both_connections_usable(tmp_path: Path, method: str, raw: bytes) -> None:
    server = Http(raw)
    async with served(tmp_path, server) as (g, up), client(g) as (reader, writer):
        for _ in range(3):
            writer.write(request(method))
            assert (await hear(reader, method)).status == int(raw[9:12])
        assert up.connections == 1
    assert len(server.heads) == 3


@pytest.mark.parametrize(
    ("raw", "stays"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", False),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", False),
    ],
)
@pytest.mark.parametrize("line", ["Connection: keep-alive", "Proxy-Connection: Keep-Alive", "X: y"])
async def test_an_older_client_gets_no_chunks_and_stays_only_where_it_can(
    tmp_path: Path, raw: bytes, stays: bool, line: str
) -> None:
    stays = stays and line != "X: y"
    async with served(tmp_path, Says(raw)) as (g, _), client(g) as (reader, writer):
        writer.write(request("GET", line, version="1.0"))
        answer = await hear(reader)
        assert (answer.status, answer.body) == (200, b"hello")
        assert "transfer-encoding" not in answer.fields
        assert answer.fields["connection"] == ("keep-alive" if stays else "close")
        if stays:
            writer.write(request(version="1.0"))
            assert (await hear(reader)).body == b"hello"
        assert await reader.read() == b""


@pytest.mark.parametrize("raw", [b"HTTP/1.1 200 OK\r\n\r\nhello", b"HTTP/1.0 200 OK\r\n\r\nhello"])
async def test_a_body_until_the_end_becomes_chunks_and_the_client_stays(tmp_path: Path, raw: bytes) -> None:
    async with served(tmp_path, Says(raw)) as (g, up), client(g) as (reader, writer):
        for _ in range(2):
            writer.write(request())
            answer = await hear(reader)
            assert (answer.body, answer.fields["transfer-encoding"]) == (b"hello", "chunked")
        assert up.connections == 2


async def test_interim_answers_reach_who_knows_them(tmp_path: Path) -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK
    async with served(tmp_path, Says(raw)) as (g, _):
        async with client(g) as (reader, writer):
            writer.write(request())
            assert (await hear(reader)).fields == {"link": "</x>"}
            assert (await hear(reader)).body == b"ok"
        assert (await asked(g, request(version="1.0"))).body == b"ok"


CUT = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", b""),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", b""),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b""),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", b""),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"0x0\r\n\r\n"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"0\r\nbad trailer\r\n\r\n"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello", b"more\r\n0\r\n\r\n"),
]


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize(("begin", "rest"), CUT)
async def test_an_answer_cut_short_is_never_taken_for_a_whole_one(
    tmp_path: Path, begin: bytes, rest: bytes, version: str, then: str
) -> None:
    go_on = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        await go_on.wait()
        writer.write(rest)
        await writer.drain()
        if then == "reset":
            reset(writer)

    async with served(tmp_path, handler) as (g, _), client(g) as (reader, writer):
        writer.write(request(version=version))
        await reader.readuntil(b"hello")  # so the answer has begun, and can only be cut
        go_on.set()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        end = await ended(g)
        assert end["outcome"] in ("bad_response", "reset")


async def test_a_reset_in_a_body_until_the_end_is_no_end(tmp_path: Path) -> None:
    async with served(tmp_path, Says(b"HTTP/1.1 200 OK\r\n\r\nhello", then="reset")) as (g, _):
        for version in ("1.1", "1.0"):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asked(g, request(version=version))


async def test_a_client_that_leaves_ends_the_download(tmp_path: Path) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(64 * KIB))
            await writer.drain()

    async with served(tmp_path, pour) as (g, up):
        reader, writer = await g.connect()
        writer.write(request())
        await reader.readexactly(100_000)
        reset(writer)
        await until(lambda: up.connections == 1 and up.open == 0)
        assert (await ended(g))["outcome"] == "reset"


async def test_a_client_that_leaves_while_it_waits_ends_the_wait(tmp_path: Path) -> None:
    """Nothing is sent and nothing comes: only the look once a second can tell."""
    server = Says(then="wait")
    async with served(tmp_path, server) as (g, _):
        _, writer = await g.connect()
        writer.write(request())
        await until(lambda: server.heads)
        writer.close()
        assert (await ended(g))["outcome"] == "reset"
        await until(lambda: server.ended)


# Bulk


async def _pour(writer: asyncio.StreamWriter, size: int, piece: bytes) -> None:
    for _ in range(size // len(piece)):
        writer.write(piece)
        await writer.drain()


async def _drain(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    size, digest = 0, hashlib.sha256()
    while data := await reader.read(64 * KIB):
        size += len(data)
        digest.update(data)
    return size, digest.digest()


BULK, PIECE = 50 * MIB, bytes(range(256)) * 256


async def test_fifty_megabytes_down_take_little_memory(tmp_path: Path) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {BULK}\r\n\r\n".encode())
        await _pour(writer, BULK, PIECE)

    async with served(tmp_path, handler) as (g, _), client(g) as (reader, writer):
        tracemalloc.start()
        try:
            writer.write(request("GET", "Connection: close"))
            head = await reader.readuntil(b"\r\n\r\n")
            got = await _drain(reader)
            assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        finally:
            tracemalloc.stop()
        assert got == (BULK, hashlib.sha256(PIECE * (BULK // len(PIECE))).digest())
        assert (await ended(g))["down"] == BULK + len(head)


@pytest.mark.parametrize("framing", [f"Content-Length: {BULK}", "Transfer-Encoding: chunked"])
async def test_fifty_megabytes_up_take_little_memory(tmp_path: Path, framing: str) -> None:
    seen = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        await reader.readuntil(b"\r\n\r\n")
        last = b""
        while not last.endswith(b"0\r\n\r\n") if "chunked" in framing else seen < BULK:
            last = await reader.read(64 * KIB)
            seen += len(last)
        writer.write(OK)

    piece = b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if "chunked" in framing else PIECE
    async with served(tmp_path, handler) as (g, _), client(g) as (reader, writer):
        tracemalloc.start()
        try:
            writer.write(request("POST", framing))
            for _ in range(BULK // len(PIECE)):
                writer.write(piece)
                await writer.drain()
            if "chunked" in framing:
                writer.write(b"0\r\n\r\n")
            assert (await hear(reader)).body == b"ok"
            assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        finally:
            tracemalloc.stop()
        assert seen >= BULK


async def test_an_upstream_is_held_up_by_a_client_that_does_not_read(tmp_path: Path) -> None:
    poured = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal poured
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {BULK}\r\n\r\n".encode())
        for _ in range(BULK // len(PIECE)):
            writer.write(PIECE)
            await writer.drain()
            poured += len(PIECE)

    async with served(tmp_path, handler) as (g, _), client(g) as (reader, writer):
        writer.write(request("GET", "Connection: close"))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        before = -1
        while poured != before:  # until nothing moves any more
            before = poured
            await asyncio.sleep(0.05)
        assert poured < BULK
        writer.transport.resume_reading()
        assert (await _drain(reader))[0] == BULK


# Kept connections


class Fickle:
    """Answers one request per connection; when the next one comes on it, closes it, or says something else."""

    def __init__(self, second: bytes = b"") -> None:
        self.second = second
        self.requests: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.second)


async def test_requests_to_one_host_share_a_connection(tmp_path: Path) -> None:
    server = Http()
    async with served(tmp_path, server) as (g, up), client(g) as (reader, writer):
        for _ in range(5):
            writer.write(request() + request("POST", "Content-Length: 2") + b"hi")
            assert (await hear(reader)).body == b"ok"
            assert (await hear(reader)).body == b"ok"
        assert up.connections == 1
        assert [end["ip"] for end in g.records(event="end")] == ["127.0.0.1"] * 10


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_what_is_safe_to_repeat_is_repeated_once_when_a_kept_connection_died(tmp_path: Path, method: str) -> None:
    server = Fickle()
    async with served(tmp_path, server) as (g, up), client(g) as (reader, writer):
        writer.write(request())
        assert (await hear(reader)).status == 200
        writer.write(request(method))
        assert (await hear(reader, method)).status == 200
        assert (up.connections, len(server.requests)) == (2, 3)
        assert len(g.records(event="decision")) == 2


@pytest.mark.parametrize(
    "data",
    [
        request("POST", "Content-Length: 2") + b"hi",
        request("POST", "Content-Length: 0"),
        request("POST"),
        request("PUT"),
        request("DELETE"),
        request("GET", "Content-Length: 2") + b"hi",
    ],
)
async def test_what_may_have_been_done_is_not_done_twice(tmp_path: Path, data: bytes) -> None:
    server = Fickle()
    async with served(tmp_path, server) as (g, up), client(g) as (reader, writer):
        writer.write(request())
        assert (await hear(reader)).status == 200
        writer.write(data)
        assert (await hear(reader)).status == 502
        assert (up.connections, len(server.requests)) == (1, 2)


@pytest.mark.parametrize("second", [b"HTTP/1.1 ", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
async def test_a_bad_answer_on_a_kept_connection_is_an_answer(tmp_path: Path, second: bytes) -> None:
    server = Fickle(second)
    async with served(tmp_path, server) as (g, up), client(g) as (reader, writer):
        writer.write(request())
        assert (await hear(reader)).status == 200
        writer.write(request())
        assert (await hear(reader)).status == 502
        assert (up.connections, len(server.requests)) == (1, 2)


async def test_a_first_connection_that_dies_is_not_tried_again(tmp_path: Path) -> None:
    server = Says()
    async with served(tmp_path, server) as (g, up):
        answer = await asked(g, request())
        assert (answer.status, answer.reason) == (502, "bad_response")
        assert up.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        OK.replace(b"1.1", b"1.0"),
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nunasked!",
        OK + b"\r\n",
    ],
)
async def test_an_upstream_that_closes_or_says_more_than_it_was_asked_is_not_used_again(
    tmp_path: Path, raw: bytes
) -> None:
    server = Says(raw, then="wait")
    async with served(tmp_path, server) as (g, up), client(g) as (reader, writer):
        for _ in range(3):
            writer.write(request())
            assert (await hear(reader)).body == b"ok"
        assert up.connections == 3


async def test_what_an_upstream_says_between_requests_answers_none_of_them(tmp_path: Path) -> None:
    spoke = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        await ready.wait()
        writer.write(OK.replace(b"ok", b"no"))
        await writer.drain()
        spoke.set()
        await reader.read()

    ready = asyncio.Event()
    async with served(tmp_path, handler) as (g, up), client(g) as (reader, writer):
        writer.write(request())
        assert (await hear(reader)).body == b"ok"
        ready.set()
        await spoke.wait()
        writer.write(request())
        assert (await hear(reader)).body == b"ok"
        assert up.connections == 2


async def test_a_kept_connection_is_for_its_own_host_and_rule(tmp_path: Path) -> None:
    server = Http()
    rules = (rule("allowed.test"), rule("other.test"), rule("allowed.test:8080"))
    async with upstream(server) as up:
        hosts = {"allowed.test": up.port, "other.test": up.port}
        async with gate(tmp_path, rules, hosts=hosts) as g, client(g) as (reader, writer):
            for host in ("allowed.test", "other.test", "allowed.test:8080", "allowed.test:80"):
                writer.write(request(host=host))
                assert (await hear(reader)).status == 200
            assert up.connections == 4
            assert up.open == 1
    assert [head.split(b"\r\n")[1] for head in server.heads] == [
        b"Host: allowed.test", b"Host: other.test", b"Host: allowed.test:8080", b"Host: allowed.test",
    ]  # fmt: skip


async def test_a_rule_that_was_edited_does_not_find_the_connection_of_the_old_one(tmp_path: Path) -> None:
    async with served(tmp_path, Http()) as (g, up), client(g) as (reader, writer):
        writer.write(request())
        assert (await hear(reader)).status == 200
        live = g.gateway.live
        narrowed = type(live.persona("p"))("p", (rule("allowed.test", private=False),))
        live.replace(live.policy._replace(personas={"p": narrowed}))
        writer.write(request())
        answer = await hear(reader)
        assert (answer.status, answer.reason) == (403, "resolved_private")
        assert up.connections == 1


# Bad answers that show before anything was passed on

BAD = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n",
    b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: y\r\n folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: y\nSet-Cookie: a=b\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
    b"\x15\x03\x03\x00\x02\x02\x46",
    b"HTTP/1.1 20",
    b"",
]


@pytest.mark.parametrize("raw", BAD)
async def test_a_bad_answer_becomes_a_502_and_the_client_may_go_on(tmp_path: Path, raw: bytes) -> None:
    async with served(tmp_path, Says(raw)) as (g, _), client(g) as (reader, writer):
        writer.write(request())
        answer = await hear(reader)
        assert (answer.status, answer.reason, answer.fields["connection"]) == (502, "bad_response", "keep-alive")
        assert (await ended(g))["outcome"] == "bad_response"
        writer.write(request(host="evil.test"))
        assert (await hear(reader)).status == 403


@pytest.mark.parametrize(
    "piece",
    [
        b"X-More: and more\r\n",
        b"x" * 1000,
        b"HTTP/1.1 102 Processing\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n",
    ],
    ids=["headers", "one header", "102", "100"],
)
async def test_an_answer_without_end_is_given_up_soon(tmp_path: Path, piece: bytes) -> None:
    said = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal said
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"" if piece.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(piece)
            await writer.drain()
            said += len(piece)

    async with served(tmp_path, endless) as (g, up), client(g) as (reader, writer):
        writer.write(request())
        interim = 0
        while (answer := await hear(reader)).status < 200:
            interim += 1
        assert answer.status == 502
        assert interim <= LIMITS.interim_responses
        await until(lambda: up.open == 0)


async def test_alt_svc_is_removed_and_so_is_what_connection_names(tmp_path: Path) -> None:
    raw = OK.replace(
        b"\r\n\r\n", b'\r\nAlt-Svc: h3=":443"\r\nConnection: x-hop,\tkeep-alive\r\nX-Hop: 1\r\nX-End: 2\r\n\r\n'
    )
    async with served(tmp_path, Says(raw)) as (g, _):
        answer = await asked(g, request())
    assert answer.fields == {"content-length": "2", "x-end": "2", "connection": "keep-alive"}


# WebSocket

UPGRADE = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a2V5"]
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
)


async def test_a_websocket_opens_and_then_it_is_raw_bytes_both_ways(tmp_path: Path) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"\r\nUpgrade: websocket\r\n" in await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED + b"first word")
        while data := await reader.read(1000):
            writer.write(data.upper())

    async with served(tmp_path, handler) as (g, _), client(g) as (reader, writer):
        writer.write(request("GET", *UPGRADE))
        switched = await hear(reader)
        assert (switched.status, switched.fields["sec-websocket-accept"]) == (101, "x")
        assert await reader.readexactly(10) == b"first word"
        writer.write(b"GET http://evil.test/ HTTP/1.1\r\n\r\n")
        assert await reader.readexactly(34) == b"GET HTTP://EVIL.TEST/ HTTP/1.1\r\n\r\n"
        writer.write_eof()
        assert await reader.read() == b""
        end = await ended(g)
        assert (end["outcome"], end["down"] > 44, end["up"] > 34) == ("closed", True, True)
        assert len(g.records(event="decision")) == 1


async def test_a_websocket_that_is_not_granted_is_an_answer_like_others(tmp_path: Path) -> None:
    server = Http(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
    async with served(tmp_path, server) as (g, up), client(g) as (reader, writer):
        for _ in range(2):
            writer.write(request("GET", *UPGRADE))
            assert (await hear(reader)).body == b"no"
        assert up.connections == 1


# Counting and stopping


async def test_every_byte_is_counted_as_it_was_sent(tmp_path: Path) -> None:
    sink = Sink()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await until(lambda: True)
        sink.got += await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhello")

    async with served(tmp_path, handler) as (g, _):
        answer = await g.ask(
            request("POST", "Transfer-Encoding: chunked", "Connection: close") + b"5;x\r\nhello\r\n00\r\n\r\n"
        )
        end = await ended(g)
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert (end["up"], end["down"]) == (len(sink.got), len(answer))


async def stopped_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Kit], Awaitable[None]]) -> None:
    """Reaching the upstream takes until `act` has acted."""
    dial, dialling, go_on = gateway.dial, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> Any:
        dialling.set()
        await go_on.wait()
        return await dial(*args)

    monkeypatch.setattr(gateway, "dial", slow)
    sink = Sink()
    async with served(tmp_path, sink) as (g, _), client(g) as (reader, writer):
        writer.write(request())
        await dialling.wait()
        await act(g)
        go_on.set()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await until(lambda: g.records(event="end"))
        await until(lambda: sink.ended)
        assert sink.got == b""


async def test_a_request_that_is_revoked_while_it_is_dialled_is_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def revoke(g: Kit) -> None:
        assert g.gateway.traffic.stop(Outcome.REVOKED) == 1

    await stopped_while(tmp_path, monkeypatch, revoke)
    records = (tmp_path / "audit.jsonl").read_text()
    assert '"outcome":"revoked"' in records


async def test_a_gate_that_closes_in_the_middle_of_everything_leaves_nothing(tmp_path: Path) -> None:
    sink = Sink()
    async with served(tmp_path, sink) as (g, _):
        writers = []
        for lines, body in [
            (["Content-Length: 100"], b"hello"),
            (["Transfer-Encoding: chunked"], b"5\r\nhello\r\n"),
            ([], b""),
        ]:
            _, writer = await g.connect()
            writer.write(request("POST", *lines) + body)
            writers.append(writer)
        await until(lambda: sink.got.count(b"POST") == 3)
    for writer in writers:
        writer.close()
    records = (tmp_path / "audit.jsonl").read_text()
    assert records.count('"outcome":"stopped"') == 3


async def test_a_name_is_looked_up_once_for_a_connection_that_is_kept(tmp_path: Path) -> None:
    async with upstream(Http()) as up:
        names = Names({"allowed.test": [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.3"]]})
        async with gate(tmp_path, (rule(f"allowed.test:{up.port}"),), names=names) as g, client(g) as (reader, writer):
            for _ in range(3):
                writer.write(request(host=f"allowed.test:{up.port}"))
                assert (await hear(reader)).status == 200
            assert names.asked == ["allowed.test"]
