"""Plain HTTP that is looked into: absolute-form, in a tunnel, and caught on its way; and what goes out of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatekit import PATIENCE, Answer, Handler, Http, Kit, Says, gate, hear, rule, until, upstream

from egress.captureface import Capture
from egress.net.listeners import open_tcp
from egress.rules import Headers, Requests, Rule, Secret, UploadLimit
from egress.sessions import Door

pytestmark = pytest.mark.usefixtures("nothing_left")

WAYS = ["absolute", "tunnel", "captured"]
READ_ONLY = Requests(methods=frozenset({"GET"}), paths=("/pub/**",))
TOKEN = Secret("x-key", env="TOKEN")
REAL = "real-0123456789"
STARS = b"*" * len(REAL)
PLACEHOLDER = "X-Key: egress-placeholder-TOKEN"
Conversation = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def plain(requests: Requests, **changes: Any) -> Rule:
    return rule("a.test:80", requests=requests, **changes)


@asynccontextmanager
async def served(tmp_path: Path, handler: Handler, *rules: Rule, **options: Any) -> AsyncIterator[Kit]:
    options.setdefault("environ", {"TOKEN": REAL})
    async with upstream(handler) as up, gate(tmp_path, rules, hosts={"a.test": up.port}, **options) as g:
        yield g


@asynccontextmanager
async def way(g: Kit, name: str) -> AsyncIterator[Conversation]:
    """A connection on which requests for a.test can be written."""
    if name == "tunnel":
        reader, writer, head = await g.tunnel("a.test:80")
        assert b" 200 " in head.split(b"\r\n")[0]
    elif name == "captured":
        reader, writer = await asyncio.open_connection("127.0.0.1", captured(g))
    else:
        reader, writer = await g.connect()
    try:
        yield reader, writer
    finally:
        writer.close()


def captured(g: Kit) -> int:
    """The port of a listener whose connections were all going to a.test, port 80."""
    sock = open_tcp("127.0.0.1", 0)
    face = Capture(lambda _: ("198.18.0.1", 80), lambda _: rule("a.test").pattern.host, Counter())
    g.reception.open(sock, Door("p"), face.converse)
    port: int = sock.getsockname()[1]
    return port


def written(name: str, method: str, path: str, *lines: str, host: str = "a.test") -> bytes:
    start = f"http://a.test{path}" if name == "absolute" else path
    return "\r\n".join([f"{method} {start} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


async def asked(g: Kit, name: str, data: bytes, method: str = "GET") -> Answer:
    async with way(g, name) as (reader, writer):
        writer.write(data)
        return await hear(reader, method)


# Which requests


@pytest.mark.parametrize("name", WAYS)
async def test_a_listed_request_passes_on_every_way_and_is_on_record(tmp_path: Path, name: str) -> None:
    server = Http()
    async with served(tmp_path, server, plain(READ_ONLY)) as g:
        assert (await asked(g, name, written(name, "GET", "/pub/x?key=1"))).body == b"ok"
        (record,) = g.records(event="decision", path="/pub/x?key=***")
    assert server.heads[0].startswith(b"GET /pub/x?key=1 HTTP/1.1\r\n")
    assert (record["method"], record["verdict"]) == ("GET", "allow")
    assert record["via"] == ("http" if name == "absolute" else "inspect")


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(
    ("method", "path", "reason", "status"),
    [
        ("DELETE", "/pub/x", "method_not_listed", 403),
        ("GET", "/private", "path_not_listed", 403),
        ("GET", "/pub/../private", "ambiguous_path", 400),
    ],
)
async def test_what_is_not_listed_is_refused_on_every_way_and_never_sent(
    tmp_path: Path, name: str, method: str, path: str, reason: str, status: int
) -> None:
    server = Http()
    async with served(tmp_path, server, plain(READ_ONLY)) as g:
        answer = await asked(g, name, written(name, method, path))
        assert [record["verdict"] for record in g.records(reason=reason)] == ["deny"]
    assert (answer.reason, answer.status) == (reason, status)
    assert server.heads == []


@pytest.mark.parametrize("name", WAYS)
async def test_each_request_of_a_connection_is_judged_by_itself(tmp_path: Path, name: str) -> None:
    server = Http()
    async with served(tmp_path, server, plain(READ_ONLY)) as g, way(g, name) as (reader, writer):
        writer.write(b"".join(written(name, "GET", path) for path in ("/pub/1", "/private", "/pub/2")))
        assert [(await hear(reader)).status for _ in range(3)] == [200, 403, 200]
    assert [head.split()[1] for head in server.heads] == [b"/pub/1", b"/pub/2"]


# Whom a tunnel's requests are for


@pytest.mark.parametrize("name", ["tunnel", "captured"])
@pytest.mark.parametrize("host", ["evil.test", "a.test:81", "b.a.test"])
async def test_a_request_for_another_host_is_misdirected(tmp_path: Path, name: str, host: str) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(inspect=True))) as g:
        answer = await asked(g, name, written(name, "GET", "/", host=host))
    assert (answer.status, answer.reason) == (421, "host_mismatch")
    assert server.heads == []


@pytest.mark.parametrize("host", ["a.test@evil.test", "", "a.test, evil.test"])
async def test_a_host_that_cannot_be_read_is_refused(tmp_path: Path, host: str) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(inspect=True))) as g:
        answer = await asked(g, "tunnel", written("tunnel", "GET", "/", host=host))
    assert (answer.status, answer.reason, server.heads) == (400, "malformed_host", [])


async def test_a_tunnel_that_began_well_may_not_turn_to_another_host(tmp_path: Path) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(inspect=True))) as g, way(g, "tunnel") as (reader, writer):
        writer.write(written("tunnel", "GET", "/1") + written("tunnel", "GET", "/2", host="evil.test"))
        assert [(await hear(reader)).status for _ in range(2)] == [200, 421]
    assert len(server.heads) == 1


@pytest.mark.parametrize(
    ("uri", "status"), [("http://a.test/x", 200), ("http://evil.test/x", 421), ("ftp://a.test/x", 400), ("x", 400)]
)
async def test_a_uri_in_a_tunnel_must_name_its_target_too(tmp_path: Path, uri: str, status: int) -> None:
    async with served(tmp_path, Http(), plain(Requests(inspect=True))) as g:
        assert (await asked(g, "tunnel", written("tunnel", "GET", uri))).status == status


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
async def test_a_tunnel_is_not_opened_within_a_tunnel(tmp_path: Path, method: str) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(inspect=True))) as g:
        answer = await asked(g, "tunnel", written("tunnel", method, "a.test:80"))
    assert (answer.reason, server.heads) == ("unsupported", [])


@pytest.mark.parametrize("name", ["tunnel", "captured"])
@pytest.mark.parametrize("words", [b"\x16\x03\x01\x00\x05hello", b"\x00\x01\x02"])
async def test_what_is_not_http_does_not_get_through(tmp_path: Path, name: str, words: bytes) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(inspect=True))) as g:
        async with way(g, name) as (reader, writer):
            writer.write(words)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), PATIENCE)
        await until(lambda: g.records(reason="not_http"))
    assert server.heads == []


async def test_a_client_that_says_nothing_in_its_tunnel_reaches_nobody(tmp_path: Path) -> None:
    async def nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pytest.fail("an upstream was dialled for a tunnel without a request")

    async with served(tmp_path, nobody, plain(Requests(inspect=True))) as g:
        async with way(g, "tunnel") as (reader, writer):
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        await until(lambda: g.records(event="end"))


# How much may be sent


@pytest.mark.parametrize("name", WAYS)
async def test_a_body_that_announces_too_much_goes_nowhere(tmp_path: Path, name: str) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(upload_limit=UploadLimit(request=5)))) as g:
        assert (await asked(g, name, written(name, "POST", "/", "Content-Length: 5") + b"12345")).status == 200
        answer = await asked(g, name, written(name, "POST", "/", "Content-Length: 6"))
    assert (answer.status, answer.reason) == (413, "upload_limit")
    assert server.bodies == [b"12345"]


async def test_chunks_are_counted_as_they_come_and_cut_off_in_the_middle(tmp_path: Path) -> None:
    seen = bytearray()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            seen.extend(data)

    async with served(tmp_path, collect, plain(Requests(upload_limit=UploadLimit(request=1000)))) as g:
        async with way(g, "tunnel") as (reader, writer):
            writer.write(written("tunnel", "POST", "/", "Transfer-Encoding: chunked") + b"4\r\nfine\r\n")
            await until(lambda: b"fine" in seen)
            writer.write(b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n")
            answer = await hear(reader)
        assert g.records(reason="upload_limit")
    assert (answer.status, answer.reason) == (413, "upload_limit")
    assert b"x" not in seen.partition(b"\r\n\r\n")[2]


async def test_a_session_is_counted_over_requests_and_ways(tmp_path: Path) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(upload_limit=UploadLimit(session=10)))) as g:
        statuses = [
            (await asked(g, name, written(name, "POST", "/", "Content-Length: 4") + b"1234")).status for name in WAYS
        ]
        assert (await asked(g, "tunnel", written("tunnel", "POST", "/", "Content-Length: 2") + b"12")).status == 200
    assert statuses == [200, 200, 413]
    assert server.bodies == [b"1234", b"1234", b"12"]


@pytest.mark.parametrize("requests", [Requests(upload_limit=UploadLimit(request=5)), Requests(secret=TOKEN)])
async def test_a_websocket_that_could_not_be_held_to_its_rule_is_refused(tmp_path: Path, requests: Requests) -> None:
    server = Http()
    async with served(tmp_path, server, plain(requests, tls=False)) as g:
        upgrade = written("tunnel", "GET", "/", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")
        answer = await asked(g, "tunnel", upgrade)
    assert (answer.reason, server.heads) == ("unsupported", [])


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("option", ["x-mode", "close, X-Mode", "keep-alive,x-mode,close"])
async def test_what_a_rule_requires_cannot_be_taken_away_behind_it(tmp_path: Path, name: str, option: str) -> None:
    server = Http()
    required = Requests(headers=Headers(require=(("x-mode", "safe"),)))
    async with served(tmp_path, server, plain(required)) as g:
        sent = written(name, "GET", "/", f"Connection: {option}", "X-Mode: safe")
        assert (await asked(g, name, sent)).status == 200
    (head,) = server.heads
    assert b"x-mode: safe\r\n" in head.lower()
    assert b"connection" not in head.lower()


@pytest.mark.parametrize("name", WAYS)
async def test_what_a_rule_forbids_or_limits_cannot_come_behind_the_body(tmp_path: Path, name: str) -> None:
    seen = bytearray()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    limited = Requests(headers=Headers(forbid=("x-mode",)), upload_limit=UploadLimit(request=5))
    async with served(tmp_path, collect, plain(limited)) as g:
        body = b"5\r\n12345\r\n0\r\nX-Mode: evil\r\nX-More: " + b"x" * 1000 + b"\r\n\r\n"
        sent = written(name, "POST", "/", "Transfer-Encoding: chunked") + body
        assert (await asked(g, name, sent)).status == 200
    assert seen.endswith(b"\r\n\r\n5\r\n12345\r\n0\r\n\r\n")


# Secrets


@pytest.mark.parametrize("name", WAYS)
async def test_a_secret_does_not_go_out_in_the_clear(tmp_path: Path, name: str) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(secret=TOKEN))) as g:
        answer = await asked(g, name, written(name, "GET", "/", PLACEHOLDER))
        assert (await asked(g, name, written(name, "GET", "/without"))).status == 200
    assert (answer.status, answer.reason) == (403, "not_tls")
    assert [head.split()[1] for head in server.heads] == [b"/without"]


@pytest.mark.parametrize("name", WAYS)
async def test_where_the_rule_has_no_tls_the_secret_is_put_in_and_no_coding_asked_for(
    tmp_path: Path, name: str
) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(secret=TOKEN), tls=False)) as g:
        sent = written(name, "GET", "/", PLACEHOLDER, "Accept-Encoding: gzip")
        assert (await asked(g, name, sent)).status == 200
    (head,) = server.heads
    lines = head.lower().split(b"\r\n")
    assert f"x-key: {REAL}".encode() in lines
    assert [line for line in lines if line.startswith(b"accept-encoding")] == [b"accept-encoding: identity"]
    assert b"placeholder" not in head


async def test_a_secret_too_short_to_mask_is_put_in_all_the_same(tmp_path: Path) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(secret=TOKEN), tls=False), environ={"TOKEN": "abc"}) as g:
        assert (await asked(g, "tunnel", written("tunnel", "GET", "/", PLACEHOLDER))).status == 200
    assert b"x-key: abc\r\n" in server.heads[0].lower()


async def test_another_credential_is_refused(tmp_path: Path) -> None:
    server = Http()
    async with served(tmp_path, server, plain(Requests(secret=TOKEN), tls=False)) as g:
        answer = await asked(g, "tunnel", written("tunnel", "GET", "/", "X-Key: stolen"))
    assert (answer.status, answer.reason, server.heads) == (403, "credential_mismatch", [])


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n<- ", REAL.encode(), b" ->"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n<- real-", b"0123456789 ->"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n<- real-\r\n", b"d\r\n0123456789 ->\r\n0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n<- rea", b"l-012345", b"6789 ->"),
    ],
    ids=["sized", "sized and cut", "chunked", "until close"],
)
async def test_an_echo_of_the_secret_is_masked_however_it_is_framed(tmp_path: Path, pieces: tuple[bytes, ...]) -> None:
    async with served(tmp_path, Says(*pieces), plain(Requests(secret=TOKEN), tls=False)) as g:
        answer = await asked(g, "tunnel", written("tunnel", "GET", "/", PLACEHOLDER))
    assert answer.body == b"<- " + STARS + b" ->"


async def test_an_echo_in_a_header_is_masked_too(tmp_path: Path) -> None:
    server = Http(f"HTTP/1.1 200 Hello {REAL}\r\nX-Echo: {REAL}!\r\nContent-Length: 0\r\n\r\n".encode())
    in_the_clear = plain(Requests(secret=TOKEN), tls=False)
    async with served(tmp_path, server, in_the_clear) as g, way(g, "tunnel") as (reader, writer):
        writer.write(written("tunnel", "GET", "/", PLACEHOLDER))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    assert b"Hello " + STARS + b"\r\n" in head
    assert b": " + STARS + b"!\r\n" in head


@pytest.mark.parametrize("lines", [f"103 Early {REAL}\r\nLink: <{REAL}>", f"100 Continue\r\nX-{REAL}: 1"])
async def test_an_echo_in_an_interim_answer_is_masked_too(tmp_path: Path, lines: str) -> None:
    server = Http(f"HTTP/1.1 {lines}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".encode())
    in_the_clear = plain(Requests(secret=TOKEN), tls=False)
    async with served(tmp_path, server, in_the_clear) as g, way(g, "tunnel") as (reader, writer):
        writer.write(written("tunnel", "GET", "/", PLACEHOLDER))
        interim, final = await hear(reader), await hear(reader)
    assert (interim.status, final.body) == (int(lines[:3]), b"ok")
    assert REAL not in str(interim)
    assert interim.fields in ({"link": f"<{STARS.decode()}>"}, {})


async def test_a_field_whose_name_is_the_secret_in_any_case_is_dropped(tmp_path: Path) -> None:
    value = "Real-ABCdef-0123"
    server = Http(f"HTTP/1.1 200 OK\r\nX-{value}: 1\r\nX-Other: 2\r\nContent-Length: 0\r\n\r\n".encode())
    async with served(tmp_path, server, plain(Requests(secret=TOKEN), tls=False), environ={"TOKEN": value}) as g:
        answer = await asked(g, "tunnel", written("tunnel", "GET", "/", PLACEHOLDER))
    assert (answer.fields.get("x-other"), value.lower() in str(answer.fields).lower()) == ("2", False)


async def test_what_might_have_the_secret_is_asked_for_whole(tmp_path: Path) -> None:
    """Pieces of a value are not the value, and would not be masked."""
    server = Http()
    pieces = ("Range: bytes=0-4", 'If-Range: "x"')
    async with served(tmp_path, server, plain(Requests(secret=TOKEN), tls=False)) as g:
        assert (await asked(g, "tunnel", written("tunnel", "GET", "/", *pieces))).status == 200
    async with served(tmp_path, server, plain(Requests(inspect=True))) as g:
        assert (await asked(g, "tunnel", written("tunnel", "GET", "/", *pieces))).status == 200
    assert [b"range" in head.lower() for head in server.heads] == [False, True]


async def test_an_answer_compressed_although_it_was_asked_not_to_be_is_not_passed_on(tmp_path: Path) -> None:
    server = Http(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok")
    async with served(tmp_path, server, plain(Requests(secret=TOKEN), tls=False)) as g:
        answer = await asked(g, "tunnel", written("tunnel", "GET", "/", PLACEHOLDER))
    assert (answer.status, answer.reason) == (502, "bad_response")


async def test_no_record_has_the_secret(tmp_path: Path) -> None:
    async with served(tmp_path, Http(), plain(Requests(secret=TOKEN), tls=False)) as g:
        await asked(g, "tunnel", written("tunnel", "GET", f"/?t={REAL}", PLACEHOLDER))
        await until(lambda: g.records(event="end"))
        assert REAL not in g.audit.read_text()
