from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from loops import on_both_loops
from wiredrive import FUZZ, STARVED, Outcome, Refusal, cuttings, however_cut, outcome

from egress.limits import LIMITS
from egress.model import Host, Target
from egress.names import Malformed
from egress.net.stream import Stream
from egress.net.upstream import (
    NO_UPSTREAM,
    Upstream,
    Upstreams,
    always,
    from_environment,
    open_tunnel,
    parse_no_proxy,
    parse_upstream,
    route,
)
from egress.refusals import Reason, Refused
from egress.rules import parse_target
from egress.wire.connect import Reply, connect, request
from egress.wire.handshake import Handshake

PROXY = Upstream(Host("proxy.example"), 3128)
OTHER = Upstream(Host("other.example"), 8080)
TARGET = Target(Host("www.example.test"), 443)
HURRIED = LIMITS._replace(resolve=0.02, connect=0.03)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


# The proxy's URL


@pytest.mark.parametrize(
    ("text", "upstream"),
    [
        ("http://proxy.example:3128", PROXY),
        ("HTTP://Proxy.Example:3128/", PROXY),
        ("http://proxy.example", Upstream(Host("proxy.example"), 80)),
        ("http://10.0.0.1:8080", Upstream(Host("10.0.0.1"), 8080)),
        ("http://[::1]:8080", Upstream(Host("::1"), 8080)),
        ("http://ann:pw@proxy.example:3128", PROXY._replace(authorization=basic("ann:pw"))),
        ("http://ann:p:w@proxy.example:3128", PROXY._replace(authorization=basic("ann:p:w"))),
        ("http://ann@proxy.example:3128", PROXY._replace(authorization=basic("ann:"))),
        ("http://corp%5Cann:p%40%3A%2f@proxy.example:3128", PROXY._replace(authorization=basic("corp\\ann:p@:/"))),
        ("http://ann:%C3%A9%0d%0a@proxy.example:3128", PROXY._replace(authorization=basic("ann:é\r\n"))),
    ],
)
def test_a_proxy_is_an_http_url(text: str, upstream: Upstream) -> None:
    assert parse_upstream(text) == upstream


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("proxy.example:3128", "has no scheme; write http://host:port"),
        ("https://proxy.example:3128", "only http:// proxies are supported"),
        ("socks5h://proxy.example:1080", "only http:// proxies are supported"),
        ("http://proxy.example:3128/path", "port '3128/path' is not a number"),
        ("http://proxy.example:", "port '' is not a number"),
        ("http://proxy.example:70000", "port '70000' is not a number"),
        ("http://", "write http://host:port"),
        ("http://prox y.example", "write http://host:port"),
        ("http://127.1:3128", "is numeric"),
        ("", "has no scheme"),
    ],
)
def test_what_is_wrong_with_a_proxy_is_said(text: str, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_upstream(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"upstream proxy {text!r}")


@pytest.mark.parametrize(
    "text",
    [
        "ann:Hush@proxy.example:3128",
        "https://ann:Hush@proxy.example",
        "http://ann:Hush@proxy.example:x",
        "http://ann:Hush#@proxy.example",
        "http://ann:Hush%@proxy.example",
        "http://ann:Hush%4@proxy.example",
        "http://ann:Hu@Hush@proxy.example",
        "http://ann:Hush/@proxy.example",
        "http://ann:Hush é@proxy.example",
        "http://ann:Hush://@proxy.example:x",
        "http://Hush:/x/@",
        "ann:Hush://@proxy.example",
    ],
)
def test_no_error_shows_the_credentials(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_upstream(text)
    assert "Hush" not in str(caught.value)
    assert "ann" not in str(caught.value)


def test_a_proxy_in_a_message_is_without_its_credentials() -> None:
    upstream = parse_upstream("http://ann:hush@proxy.example:3128")
    for text in (str(upstream), repr(upstream), f"{upstream}", repr(Upstreams(upstream))):
        assert "proxy.example:3128" in text
        assert basic("ann:hush").split()[1] not in text


# Which way


NO_PROXY_CASES = [
    ("", "example.com", False),
    ("*", "example.com", True),
    ("*", "10.0.0.1", True),
    ("example.com", "example.com", True),
    ("example.com", "a.b.example.com", True),
    ("example.com", "notexample.com", False),
    ("example.com", "example.com.evil.test", False),
    ("EXAMPLE.com", "example.com", True),
    ("example.com.", "example.com", True),
    (".example.com", "a.example.com", True),
    (".example.com", "example.com", True),
    (".example.com", "notexample.com", False),
    ("*.example.com", "a.example.com", True),
    ("com", "example.com", True),
    ("example.com:8443", "example.com:8443", True),
    ("example.com:8443", "example.com:443", False),
    ("a.test, b.test", "b.test", True),
    ("a.test b.test,,", "b.test", True),
    ("10.0.0.1", "10.0.0.1", True),
    ("10.0.0.1", "10.0.0.10", False),
    ("10.0.0.1:80", "10.0.0.1:80", True),
    ("10.0.0.1:80", "10.0.0.1:443", False),
    ("10.0.0.0/8", "10.200.3.4", True),
    ("10.0.0.7/8", "10.200.3.4", True),
    ("10.0.0.0/8", "11.0.0.1", False),
    ("10.0.0.0/8", "example.com", False),
    ("10.0.0.0/8", "[fd00::1]:443", False),
    ("::1", "[::1]:443", True),
    ("[::1]", "[::1]:443", True),
    ("[::1]:80", "[::1]:443", False),
    ("fd00::/8", "[fd12::1]:443", True),
    ("fd00::/8", "[2001:db8::1]:443", False),
    ("0.1", "10.0.0.1", False),
    ("*example.com", "notexample.com", False),
    ("ex*.com", "example.com", False),
    ("10.*", "10.0.0.1", False),
    ("10.0.0.0/33", "10.0.0.1", False),
    ("example.com/x", "example.com", False),
    ("http://example.com", "example.com", False),
    ("example.com:x", "example.com", False),
    ("bad_name, good.test", "good.test", True),
]


@pytest.mark.parametrize(("no_proxy", "target", "direct"), NO_PROXY_CASES)
def test_no_proxy(no_proxy: str, target: str, direct: bool) -> None:
    upstreams = Upstreams(PROXY, PROXY, parse_no_proxy(no_proxy))
    assert route(upstreams, parse_target(target), tls=True) == (None if direct else PROXY)


ENVIRONMENT_CASES = [
    ({}, None, None),
    ({"https_proxy": "http://proxy.example:3128"}, PROXY, None),
    ({"HTTPS_PROXY": "http://proxy.example:3128"}, PROXY, None),
    ({"http_proxy": "http://proxy.example:3128"}, None, PROXY),
    ({"HTTP_PROXY": "http://proxy.example:3128"}, None, PROXY),
    ({"ALL_PROXY": "http://proxy.example:3128"}, PROXY, PROXY),
    ({"all_proxy": "http://proxy.example:3128", "HTTPS_PROXY": "http://other.example:8080"}, OTHER, PROXY),
    ({"https_proxy": "http://proxy.example:3128", "HTTPS_PROXY": "http://other.example:8080"}, PROXY, None),
    ({"https_proxy": "", "HTTPS_PROXY": "http://other.example:8080"}, OTHER, None),
    ({"https_proxy": "proxy.example:3128"}, PROXY, None),
    ({"ALL_PROXY": "http://proxy.example:3128", "NO_PROXY": "x.test,example.test"}, None, None),
    ({"ALL_PROXY": "http://proxy.example:3128", "no_proxy": "x.test", "NO_PROXY": "*"}, PROXY, PROXY),
    (
        {"ALL_PROXY": "socks5://x:1", "HTTPS_PROXY": "proxy.example:3128", "HTTP_PROXY": "other.example:8080"},
        PROXY,
        OTHER,
    ),
]


@pytest.mark.parametrize(("environ", "tls", "plain"), ENVIRONMENT_CASES)
def test_the_environment(environ: Mapping[str, str], tls: Upstream | None, plain: Upstream | None) -> None:
    upstreams = from_environment(environ)
    assert (route(upstreams, TARGET, tls=True), route(upstreams, TARGET, tls=False)) == (tls, plain)


@pytest.mark.parametrize("target", ["localhost", "x.localhost", "127.0.0.1", "127.9.9.9", "[::1]:443"])
def test_this_host_is_not_asked_of_a_proxy_from_the_environment(target: str) -> None:
    upstreams = from_environment({"ALL_PROXY": "http://proxy.example:3128"})
    assert route(upstreams, parse_target(target), tls=True) is None


def test_a_proxy_in_the_environment_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(Malformed, match="socks5://"):
        from_environment({"ALL_PROXY": "socks5://proxy.example:1080"})


@pytest.mark.parametrize("target", ["www.example.test", "www.example.test:22", "localhost", "10.0.0.1"])
def test_a_proxy_that_was_named_is_for_everything(target: str) -> None:
    for tls in (True, False):
        assert route(always(PROXY), parse_target(target), tls) == PROXY
        assert route(NO_UPSTREAM, parse_target(target), tls) is None


# The conversation, as bytes


def converse(buffer: bytearray) -> Handshake[Reply]:
    return connect(buffer, TARGET)


def test_the_request_names_the_target_twice() -> None:
    expected = b"CONNECT www.example.test:443 HTTP/1.1\r\nHost: www.example.test:443\r\n\r\n"
    assert request(TARGET) == expected


def test_the_request_carries_the_credentials() -> None:
    assert request(Target(Host("2001:db8::1"), 80), "Basic YTpi") == (
        b"CONNECT [2001:db8::1]:80 HTTP/1.1\r\nHost: [2001:db8::1]:80\r\nProxy-Authorization: Basic YTpi\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("head", "reply"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", Reply(200, "OK")),
        (b"HTTP/1.0 200 Connection established\r\nProxy-Agent: x/1\r\n\r\n", Reply(200, "Connection established")),
        (b"HTTP/1.1 200 \r\n\r\n", Reply(200, "")),
        (b"HTTP/1.1 200\r\n\r\n", Reply(200, "")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", Reply(200, "OK")),
        (b"HTTP/1.1 200 OK\r\nempty:\r\n\r\n", Reply(200, "OK")),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\na: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Reply(200, "OK")),
        (b"HTTP/1.1 101 Switching\r\n\r\n", Reply(101, "Switching")),
        (b"HTTP/1.1 403 Verboten\xfc\tfor you\r\n\r\n", Reply(403, "Verbotenfor you")),
        (b"HTTP/1.1 502 " + b"x" * 500 + b"\r\n\r\n", Reply(502, "x" * 80)),
    ],
)
def test_a_reply_ends_with_its_head_however_it_comes(head: bytes, reply: Reply) -> None:
    assert however_cut(converse, head, b"\x16\x03\r\n\r\n") == Outcome(reply, request(TARGET), b"")


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 +20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 020 OK\r\n\r\n",
        b" HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\n\r\n",
        b"HTTP/1.1 200 O\nK\r\n\r\n",
        b"HTTP/1.1 200 O\rK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nspace : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\nc: d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 201 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * LIMITS.header_bytes + b"\r\n\r\n",
        b"x" * LIMITS.header_bytes,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 17,
    ],
)
def test_what_is_no_reply_is_refused(head: bytes) -> None:
    assert outcome(converse, [head]).value == Refusal(Reason.UNREACHABLE, "")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\n\n", b"HTTP/1.1 200 OK\r\n\r", b"HTTP/1.1 100 \r\n\r\n" * 16])
def test_an_unfinished_reply_is_waited_for(head: bytes) -> None:
    assert however_cut(converse, head).value == STARVED


LINE = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"HTTP/1.1 200 OK", b"HTTP/1.1 100 ", b"HTTP/1.0 407 Who", b"HTTP/1.1 2", b"a: b", b"a:", b" a", b""]
    ),
)
HEADS = st.lists(st.tuples(LINE, st.sampled_from([b"\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"\r"])), max_size=12).map(
    lambda parts: b"".join(line + ending for line, ending in parts)
)


@FUZZ
@given(st.data(), HEADS)
@example(None, b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 403 No\r\n\r\n")
def test_any_reply_has_one_outcome_however_it_is_cut(data: st.DataObject | None, head: bytes) -> None:
    expected = outcome(converse, [head])
    cut = outcome(converse, data.draw(cuttings(head)) if data else [head])
    assert cut == expected
    if isinstance(expected.value, Reply):
        assert head.endswith(expected.left)
        assert head.removesuffix(expected.left).endswith(b"\r\n\r\n")
        assert f" {expected.value.status}".encode() in head


# The tunnel, over sockets


@contextlib.asynccontextmanager
async def proxy_says(answer: bytes, then_close: bool = False) -> AsyncIterator[tuple[Stream, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream = Stream(ours, asyncio.get_running_loop())
    theirs.sendall(answer)
    if then_close:
        theirs.shutdown(socket.SHUT_WR)
    try:
        yield stream, theirs
    finally:
        stream.close()
        theirs.close()


async def refusal_of(stream: Stream, upstream: Upstream = PROXY) -> str:
    with pytest.raises(Refused) as caught:
        await open_tunnel(stream, upstream, TARGET, HURRIED)
    assert caught.value.reason is Reason.UNREACHABLE
    return caught.value.detail


@on_both_loops
async def test_a_tunnel_opens_and_keeps_what_the_target_said_already() -> None:
    async with proxy_says(b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0-x\r\n") as (stream, theirs):
        await open_tunnel(stream, PROXY._replace(authorization="Basic YTpi"), TARGET)
        assert stream.buffer == b"SSH-2.0-x\r\n"
        assert theirs.recv(1000) == request(TARGET, "Basic YTpi")
        await stream.send(b"hello")
        assert theirs.recv(1000) == b"hello"


@on_both_loops
async def test_an_open_tunnel_has_no_deadline_any_more() -> None:
    async with proxy_says(b"HTTP/1.1 200 OK\r\n\r\n") as (stream, theirs):
        await open_tunnel(stream, PROXY, TARGET, HURRIED)
        loop = asyncio.get_running_loop()
        loop.call_later(2 * (HURRIED.resolve + HURRIED.connect), theirs.sendall, b"late")
        assert await stream.fill() == 4


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "answered 403 Forbidden"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "answered 407 Proxy Authentication Required"),
        (b"HTTP/1.1 503\r\n\r\n", "answered 503"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "answered 204 No Content"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", "answered 302 Found"),
        (b"nonsense\r\n\r\n", "answered with a line that is no HTTP/1 status"),
        (b"HTTP/1.1 200 OK\r\n", "did not answer in 0.05 s"),
    ],
)
@on_both_loops
async def test_a_proxy_that_does_not_open_the_tunnel_is_quoted(answer: bytes, words: str) -> None:
    upstream = parse_upstream("http://ann:hush@proxy.example:3128")
    async with proxy_says(answer) as (stream, _):
        assert await refusal_of(stream, upstream) == f"the upstream proxy proxy.example:3128 {words}"


@on_both_loops
async def test_a_proxy_that_hangs_up_is_told_as_such() -> None:
    async with proxy_says(b"HTTP/1.1 200", then_close=True) as (stream, _):
        assert (await refusal_of(stream)).endswith("closed the connection without an answer")


@on_both_loops
async def test_a_proxy_that_breaks_off_is_told_as_such() -> None:
    async with proxy_says(b"") as (stream, theirs):
        theirs.close()
        assert (await refusal_of(stream)).endswith("broke off: broken pipe")
