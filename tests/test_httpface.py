"""HTTP as the gate's clients speak it: where requests go, who sends them, and what a refusal sounds like."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from pathlib import Path

import pytest
from gatekit import PATIENCE, Answer, Http, Kit, Names, Sink, echo, gate, hear, rule, until, upstream

from egress.limits import LIMITS
from egress.policy import Persona, Policy
from egress.users import Users, hash_password, parse_users

pytestmark = pytest.mark.usefixtures("nothing_left")


def get(uri: str = "http://allowed.test/", *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {uri} HTTP/{version}", "Host: allowed.test", *lines, "", ""]).encode()


async def answer(g: Kit, data: bytes, method: str = "GET") -> Answer:
    reader, writer = await g.connect()
    writer.write(data)
    try:
        return await hear(reader, method)
    finally:
        writer.close()


async def conversation(g: Kit, data: bytes) -> list[int]:
    """The statuses of all answers to these bytes, until the gate closes."""
    reader, writer = await g.connect()
    writer.write(data)
    statuses = []
    with pytest.raises(asyncio.IncompleteReadError) as closed:  # noqa: PT012  # after as many answers as there are
        while True:
            statuses.append((await hear(reader)).status)
    assert closed.value.partial == b""
    writer.close()
    return statuses


# Where a request goes


@pytest.mark.parametrize(
    ("method", "uri", "line"),
    [
        ("GET", "http://allowed.test", b"GET / HTTP/1.1"),
        ("GET", "http://allowed.test/", b"GET / HTTP/1.1"),
        ("GET", "HTTP://ALLOWED.test/", b"GET / HTTP/1.1"),
        ("GET", "http://allowed.test.:80/A?b=c", b"GET /A?b=c HTTP/1.1"),
        ("GET", "http://allowed.test?x=http://evil.test/", b"GET /?x=http://evil.test/ HTTP/1.1"),
        ("GET", "http://allowed.test//evil.test/@:", b"GET //evil.test/@: HTTP/1.1"),
        ("GET", "http://allowed.test/%00%0d%0a\\..", b"GET /%00%0d%0a\\.. HTTP/1.1"),
        ("GET", "ws://allowed.test/chat", b"GET /chat HTTP/1.1"),
        ("OPTIONS", "http://allowed.test", b"OPTIONS * HTTP/1.1"),
        ("OPTIONS", "http://allowed.test/", b"OPTIONS / HTTP/1.1"),
        ("DELETE", "http://allowed.test/x", b"DELETE /x HTTP/1.1"),
        ("M-SEARCH", "http://allowed.test/x", b"M-SEARCH /x HTTP/1.1"),
        ("get", "http://allowed.test/x", b"get /x HTTP/1.1"),
    ],
)
async def test_an_absolute_uri_is_split_into_host_and_path(tmp_path: Path, method: str, uri: str, line: bytes) -> None:
    server = Http()
    async with upstream(server) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port}) as g:
        assert (await answer(g, get(uri, method=method))).status == 200
    assert server.heads[0].split(b"\r\n")[:2] == [line, b"Host: allowed.test"]


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (get("/"), 400, "not_a_proxy_request"),
        (get("/http://allowed.test/"), 400, "not_a_proxy_request"),
        (get("*", method="OPTIONS"), 400, "not_a_proxy_request"),
        (get("*"), 400, "not_a_proxy_request"),
        (get("allowed.test"), 400, "not_a_proxy_request"),
        (get("allowed.test:80"), 400, "not_a_proxy_request"),
        (get("//allowed.test/"), 400, "not_a_proxy_request"),
        (get("http:/allowed.test/"), 400, "not_a_proxy_request"),
        (get("http:allowed.test"), 400, "not_a_proxy_request"),
        (get("http://allowed.test/#x"), 400, "not_a_proxy_request"),
        (get("://allowed.test/"), 400, "not_a_proxy_request"),
        (get("1http://allowed.test/"), 400, "not_a_proxy_request"),
        (get("https://allowed.test/"), 400, "not_a_proxy_request"),
        (get("wss://allowed.test/"), 400, "not_a_proxy_request"),
        (get("ftp://allowed.test/"), 400, "not_a_proxy_request"),
        (get("file:///etc/passwd"), 400, "not_a_proxy_request"),
        (get("gopher://allowed.test/"), 400, "not_a_proxy_request"),
        (get("http+unix://allowed.test/"), 400, "not_a_proxy_request"),
        (get("javascript:alert(1)"), 400, "not_a_proxy_request"),
        (get("http:///path"), 400, "malformed_host"),
        (get("http://:80/"), 400, "malformed_host"),
        (get("http://user@allowed.test/"), 400, "malformed_host"),
        (get("http://allowed.test:80@evil.test/"), 400, "malformed_host"),
        (get("http://evil.test\\@allowed.test/"), 400, "malformed_host"),
        (get(method="TRACE"), 405, "unsupported"),
        (get(method="TRACK"), 405, "unsupported"),
        (get("*", method="PRI"), 405, "unsupported"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_request"),
        (get("http://allowed.test/", method="CONNECT"), 400, "malformed_host"),
        (get("allowed.test", method="CONNECT"), 400, "malformed_host"),
        (get("allowed.test:443/", method="CONNECT"), 400, "malformed_host"),
        (get("allowed.test:22", method="connect"), 400, "not_a_proxy_request"),
        (get("allowed.test:22", "Content-Length: 5", method="CONNECT") + b"hello", 400, "malformed_request"),
        (get("http://allowed.test/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), 405, "unsupported"),
        (get("http://allowed.test/", "Expect: 200-ok"), 400, "malformed_request"),
    ],
)  # fmt: skip
async def test_what_is_no_request_to_a_proxy_is_told_so(tmp_path: Path, data: bytes, status: int, reason: str) -> None:
    rules = (rule("allowed.test"), rule("allowed.test:22"))
    async with upstream(Http()) as up:
        hosts = dict.fromkeys(["allowed.test", "evil.test"], up.port)
        async with gate(tmp_path, rules, hosts=hosts) as g:
            told = await answer(g, data)
            (record,) = g.records()
            assert up.connections == 0
    assert (told.status, told.reason) == (status, reason)
    assert (record["verdict"], record["reason"]) == ("deny", reason)


@pytest.mark.parametrize("first", [b"\x00", b"\x16", b"\xff", b" ", b"{", b"\r\n\r\n", b"\n\n", b"SSH-2.0-x\r\n\r\n"])
async def test_what_is_not_http_is_refused_at_once_or_in_time(tmp_path: Path, first: bytes) -> None:
    async with gate(tmp_path, limits=LIMITS._replace(handshake=0.05)) as g:
        raw = await g.ask(first)
        (record,) = g.records()
    assert raw.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 ", b"\x15\x03\x03\x00\x02\x02"))
    assert record["reason"] in ("malformed_request", "timeout", "unsupported")


# What a refusal says


async def test_a_refusal_names_the_host_the_reason_and_what_to_do(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        told = await answer(g, get("http://evil.test:8080/"))
    assert told.fields["content-type"] == "text/plain; charset=utf-8"
    assert told.fields["cache-control"] == "no-store"
    assert b"evil.test:8080 is not on the allowlist of persona p" in told.body
    assert b"egress check evil.test:8080 --persona p" in told.body


async def test_who_asks_for_json_gets_it(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        told = await answer(g, get("http://evil.test/", "Accept: text/html, Application/JSON;q=0.9"))
    assert told.fields["content-type"] == "application/json"
    assert json.loads(told.body)["egress"]["reason"] == "not_listed"


async def test_a_refused_head_has_no_body_and_the_connection_stays_usable(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        reader, writer = await g.connect()
        writer.write(get("http://evil.test/", method="HEAD") + get("http://evil.test/"))
        first, second = await hear(reader, "HEAD"), await hear(reader)
        writer.close()
    assert (first.status, second.status) == (403, 403)
    assert int(first.fields["content-length"]) == len(second.body)


async def test_what_the_client_wrote_cannot_break_out_of_the_answer(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        for accept in ("text/plain", "application/json"):
            head = get("http://allowed.test/", f"Accept: {accept}").replace(
                b"Host: allowed.test", b"Host: \xe9\t$(reboot)\x85'"
            )
            told = await answer(g, head)
            assert told.status == 400
            assert told.body.isascii()
            assert told.body.decode().replace("\n", "").isprintable()
            assert b"egress check" not in told.body  # who copies that into a shell would run what the client wrote
            assert accept == "application/json" or all(line.startswith(b"egress: ") for line in told.body.splitlines())


@pytest.mark.parametrize(
    ("first", "stays"),
    [
        (get("http://evil.test/"), True),
        (get("http://evil.test/", method="TRACE"), True),
        (get("http://evil.test/", "Content-Length: 0"), True),
        (get("http://evil.test/", "Connection: close"), False),
        (get("http://evil.test/", version="1.0"), False),
        (get("http://evil.test/", "Connection: keep-alive", version="1.0"), True),
        (get("http://evil.test/", "Content-Length: 5") + b"hello", False),
        (get("http://evil.test/", "Transfer-Encoding: chunked") + b"0\r\n\r\n", False),
        (get("evil.test:443", method="CONNECT"), False),
        (get("http://evil test/"), False),
        (get("http://evil.test:0/"), False),
        (get("/"), False),
    ],
)
async def test_who_may_go_on_after_a_refusal(tmp_path: Path, first: bytes, stays: bool) -> None:
    """A body that was not read, or a request that was not understood, leaves nothing safe to read behind it."""
    async with gate(tmp_path, (rule("allowed.test"),)) as g:
        statuses = await conversation(g, first + get("http://evil.test/", "Connection: close"))
    assert len(statuses) == (2 if stays else 1)
    assert all(400 <= status < 500 for status in statuses)


async def test_requests_behind_a_refused_one_are_decided_by_themselves(tmp_path: Path) -> None:
    server = Http()
    async with upstream(server) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port}) as g:
        good, bad = get(), get("http://evil.test/")
        last = get("http://allowed.test/", "Connection: close")
        assert await conversation(g, bad + good + bad + bad + good + last) == [403, 200, 403, 403, 200, 200]
        assert [r["verdict"] for r in g.records(event="decision")] == [
            "deny",
            "allow",
            "deny",
            "deny",
            "allow",
            "allow",
        ]
    assert len(server.heads) == 3


async def test_nothing_behind_a_malformed_request_is_read(tmp_path: Path) -> None:
    server = Http()
    async with upstream(server) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port}) as g:
        assert await conversation(g, get("http://allowed.test/", "X : y") + get()) == [400]
        assert up.connections == 0


async def test_a_tunnel_may_follow_a_request(tmp_path: Path) -> None:
    async with upstream(Http()) as up, upstream(echo) as raw:
        rules = (rule("allowed.test"), rule("raw.test:22"))
        async with gate(tmp_path, rules, hosts={"allowed.test": up.port, "raw.test": raw.port}) as g:
            reader, writer = await g.connect()
            writer.write(get() + get("raw.test:22", method="CONNECT") + b"early")
            assert (await hear(reader)).body == b"ok"
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(5) == b"early"
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()


async def test_a_thousand_requests_in_one_breath_do_not_keep_others_waiting(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        reader, writer = await g.connect()
        writer.write(get("http://evil.test/") * 1000)
        await hear(reader)
        assert (await answer(g, get("http://other.test/"))).status == 403
        place = [r["host"] for r in g.records()].index("other.test")
        writer.close()
    assert place < 500


# Time


async def test_silence_is_closed_in_time_and_leaves_no_record(tmp_path: Path) -> None:
    async with gate(tmp_path, limits=LIMITS._replace(handshake=0.02)) as g:
        assert await g.ask(b"") == b""
        assert g.records() == []


@pytest.mark.parametrize("start", [b"G", b"GET http://allowed.test/ HTTP/1.1\r\n", get()[:-1]])
async def test_half_a_request_is_told_that_its_time_is_up(tmp_path: Path, start: bytes) -> None:
    async with gate(tmp_path, (rule("allowed.test"),), limits=LIMITS._replace(handshake=0.02)) as g:
        raw = await g.ask(start)
        (record,) = g.records()
    assert raw.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nConnection: close\r\n" in raw
    assert (record["verdict"], record["reason"]) == ("deny", "timeout")


async def test_each_byte_in_time_is_not_a_request_in_time(tmp_path: Path) -> None:
    async with gate(tmp_path, (rule("allowed.test"),), limits=LIMITS._replace(handshake=0.1)) as g:
        reader, writer = await g.connect()
        heard = asyncio.create_task(hear(reader))
        for byte in get() * 100:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.002)
            if heard.done():
                break
        assert (await heard).status == 408
        writer.close()


async def test_a_kept_connection_has_time_of_its_own_between_requests(tmp_path: Path) -> None:
    limits = LIMITS._replace(handshake=0.02, keep_alive=PATIENCE)
    async with gate(tmp_path, limits=limits) as g:
        reader, writer = await g.connect()
        writer.write(get("http://evil.test/"))
        assert (await hear(reader)).status == 403
        await asyncio.sleep(0.06)
        writer.write(get("http://evil.test/"))
        assert (await hear(reader)).status == 403
        writer.write(b"GET ")
        assert (await hear(reader)).status == 408
        writer.close()


async def test_a_kept_connection_that_is_not_used_is_closed_without_a_word(tmp_path: Path) -> None:
    async with gate(tmp_path, limits=LIMITS._replace(keep_alive=0.02)) as g:
        reader, writer = await g.connect()
        writer.write(get("http://evil.test/"))
        assert (await hear(reader)).status == 403
        assert await reader.read() == b""
        assert len(g.records()) == 1
        writer.close()


async def test_a_client_that_leaves_in_the_middle_of_a_request_is_forgotten(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        assert await g.ask(get()[:-1], eof=True) == b""
        await g.put(get()[:-1])
        await until(lambda: not g.reception._guests)
        assert g.records() == []


# Who asks


AB = ("a.test", "b.test")


@functools.cache
def users_file() -> str:
    return f"ann:reader:{hash_password('s3:cret')}\nbob:writer:{hash_password('größe')}\n"


def users() -> Users:
    return Users(parse_users(users_file(), "users"))


def basic(text: str, scheme: str = "Basic") -> str:
    return f"Proxy-Authorization: {scheme} {base64.b64encode(text.encode()).decode()}"


def two_personas(g: Kit) -> None:
    """`reader` may reach a.test, `writer` b.test."""
    personas = {"reader": Persona("reader", (rule("a.test"),)), "writer": Persona("writer", (rule("b.test"),))}
    g.gateway.live.replace(Policy(personas, g.gateway.live.policy.hosts))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [basic("ann:wrong")],
        [basic("ann:")],
        [basic("ann")],
        [basic("ann:s3:cret ")],
        [basic("ANN:s3:cret")],
        [basic(":s3:cret")],
        [basic("nobody:s3:cret")],
        [basic("bob:s3:cret")],
        [basic("ann:s3:cret", "Bearer")],
        [basic("ann:s3:cret"), basic("ann:s3:cret")],
        [basic("ann:s3:cret"), basic("bob:größe")],
        ["Proxy-Authorization: Basic"],
        ["Proxy-Authorization: Basic !!!"],
        ["Proxy-Authorization: Basic /////w=="],
        [basic("ann:s3:cret").replace("Proxy-", "")],
    ],
)
async def test_who_is_not_known_is_asked_for_a_name(tmp_path: Path, lines: list[str]) -> None:
    async with upstream(Http()) as up, gate(tmp_path, hosts={"a.test": up.port}, users=users()) as g:
        two_personas(g)
        told = await answer(g, get("http://a.test/", *lines))
        (record,) = g.records()
        assert up.connections == 0
    assert (told.status, told.reason) == (407, "credentials")
    assert told.fields["proxy-authenticate"] == 'Basic realm="egress"'
    assert (record["verdict"], record["reason"], record["persona"]) == ("deny", "credentials", "")


async def test_a_password_gives_a_persona_request_by_request(tmp_path: Path) -> None:
    server = Http()
    async with upstream(server) as up, gate(tmp_path, hosts=dict.fromkeys(AB, up.port), users=users()) as g:
        two_personas(g)
        reader, writer = await g.connect()
        ann, bob = basic("ann:s3:cret"), basic("bob:größe", "bAsIc")
        statuses = []
        for host, line in [("a", ann), ("b", ann), ("b", bob), ("a", bob), ("a", "X: y"), ("a", ann)]:
            writer.write(get(f"http://{host}.test/", line))
            statuses.append((await hear(reader)).status)
        writer.close()
        personas = [r["persona"] for r in g.records(event="decision")]
    assert statuses == [200, 403, 200, 403, 407, 200]
    assert personas == ["reader", "reader", "writer", "writer", "", "reader"]
    assert not any(b"authorization" in head.lower() for head in server.heads)


async def test_a_tunnel_takes_a_password_too(tmp_path: Path) -> None:
    async with upstream(Sink()) as up, gate(tmp_path, hosts={"a.test": up.port}, users=users()) as g:
        two_personas(g)
        raw = await g.ask(get("a.test:443", method="CONNECT"))
        assert raw.startswith(b"HTTP/1.1 407 ")
        assert b"\r\nProxy-Authenticate: Basic realm=" in raw
        reader, writer = await g.connect()
        writer.write(get("a.test:443", basic("ann:s3:cret"), method="CONNECT"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert [r["via"] for r in g.records(event="decision")] == ["connect", "connect"]


async def test_a_gate_with_one_persona_does_not_look_at_passwords(tmp_path: Path) -> None:
    async with upstream(Http()) as up, gate(tmp_path, (rule("a.test"),), hosts={"a.test": up.port}) as g:
        assert (await answer(g, get("http://a.test/", basic("root:root"), "X-Persona: q"))).status == 200
        assert g.records()[0]["persona"] == "p"


async def test_a_name_that_is_refused_is_never_looked_up(tmp_path: Path) -> None:
    names = Names({}, anything=["127.0.0.1"])
    async with gate(tmp_path, (rule("allowed.test"),), names=names) as g:
        for data in (get("http://evil.test/"), get("evil.test:443", method="CONNECT"), get("http://allowed.test:81/")):
            assert (await g.ask(data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).startswith(
                b"HTTP/1.1 403 "
            )
        assert names.asked == []
