"""HTTP/1.x heads: one reading or none."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wiredrive import FUZZ, STARVED, Outcome, Refusal, cuttings, however_cut, one_by_one, outcome, whole

from egress.limits import LIMITS
from egress.refusals import Reason
from egress.wire import http1
from egress.wire.handshake import Handshake
from egress.wire.http1 import CHUNKED, UNTIL_CLOSE, Field, Fields, Request, Response

GET = b"GET http://allowed.test/ HTTP/1.1\r\n"
HOST = b"Host: allowed.test\r\n"


def read(buffer: bytearray) -> Handshake[Request]:
    return http1.read_request(buffer)


def answer_to(method: str, head: bytes) -> Outcome:
    return however_cut(lambda buffer: http1.read_response(buffer, method), head, b"behind it")


def request(*lines: bytes, method: bytes = b"POST") -> Outcome:
    """A request with these header lines, read however it is cut."""
    head = method + b" http://allowed.test/ HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines)
    return however_cut(read, head + b"\r\n", b"behind it")


def reason_of(data: bytes) -> Reason:
    result = however_cut(read, data)
    assert isinstance(result.value, Refusal), result
    return result.value.reason


def refused(*lines: bytes) -> bool:
    result = request(*lines)
    return isinstance(result.value, Refusal) and result.value.reason is Reason.MALFORMED_REQUEST


# What is read


def test_a_request_is_read_and_what_stands_behind_it_is_left() -> None:
    result = outcome(read, [GET + HOST + b"X-Y: \t a b \t\r\n\r\nGET behind it"])
    fields = Fields([Field("host", "allowed.test"), Field("x-y", "a b")])
    assert result == Outcome(Request("GET", "http://allowed.test/", 1, fields, 0), b"", b"GET behind it")


def test_bytes_above_ascii_in_a_value_are_kept_as_they_are() -> None:
    result = request("X-Name: Zoë".encode(), b"X-Raw: \x80\xff")
    assert isinstance(result.value, Request)
    written = http1.write_head("GET / HTTP/1.1", list(result.value.fields))
    assert "x-name: Zoë\r\n".encode() in written
    assert b"x-raw: \x80\xff\r\n" in written


def test_an_http_1_0_request_needs_no_host() -> None:
    assert isinstance(outcome(read, [b"GET http://allowed.test/ HTTP/1.0\r\n\r\n"]).value, Request)


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        ([], 0),
        ([b"Content-Length: 0"], 0),
        ([b"Content-Length: 5"], 5),
        ([b"content-LENGTH:5"], 5),
        ([b"Content-Length:\t5 \t"], 5),
        ([b"Content-Length: 999999999999999999"], 10**18 - 1),
        ([b"Transfer-Encoding: chunked"], CHUNKED),
        ([b"transfer-encoding:CHUNKED"], CHUNKED),
        ([b"Transfer-Encoding:\tchunked\t"], CHUNKED),
        ([b"X-Content-Length: 7", b"Content-Length: 5"], 5),
    ],
)
def test_a_body_has_one_length(lines: list[bytes], length: int) -> None:
    value = request(*lines).value
    assert isinstance(value, Request)
    assert value.length == length


# What is not: each of these is read differently by some parser in use

SMUGGLED_LENGTHS = [
    b"+5", b"-5", b"-0", b"0x5", b"5,5", b"5, 5", b"5,6", b"5;", b"5.0", b"5e0", b"5 5", b"5\t5", b"", b" ", b",",
    b",5", b"5,", b"'5'", b'"5"', b"5_0", b"\xb2", b"\x855", b"5\xa0", b"\xef\xbc\x95", b"0b101", b"0o5", b"five",
    b"1000000000000000000", b"18446744073709551621", b"9" * 400, b"(5)", b"5\x0b", b"\x0c5", b"5\x00", b"\x015",
]  # fmt: skip
SMUGGLED_CODINGS = [
    b"xchunked", b"x-chunked", b"chunkedx", b"chunked-x", b"chunked, identity", b"identity, chunked", b"identity",
    b"chunked, chunked", b"chunked,", b",chunked", b", chunked", b"gzip, chunked", b"chunked, gzip", b"gzip",
    b"chunked;q=1", b"chunked ;", b"'chunked'", b'"chunked"', b"chunked chunked", b"chunked\tx", b"\x0bchunked",
    b"chunked\x0b", b"\x0cchunked", b"chunked\x0c", b"\xa0chunked", b"chunked\xa0", b"chun ked", b"chunke\xe4",
    b"\x85chunked", b"cow", b"", b"chunked\x00", b"\x00chunked", b"chunked\x7f", "ｃhunked".encode(), b"deflate",
]  # fmt: skip


@pytest.mark.parametrize("value", SMUGGLED_LENGTHS)
def test_a_length_with_two_readings_is_refused(value: bytes) -> None:
    assert refused(b"Content-Length: " + value)


@pytest.mark.parametrize("value", SMUGGLED_CODINGS)
def test_a_coding_that_is_not_plainly_chunked_is_refused(value: bytes) -> None:
    assert refused(b"Transfer-Encoding: " + value)


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length: 5", b"Content-Length: 5"],
        [b"Content-Length: 5", b"Content-Length: 6"],
        [b"Content-Length: 0", b"content-length: 5"],
        [b"Content-Length: 5", b"X: y", b"Content-Length:"],
        [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Content-Length: 5"],
        [b"Transfer-Encoding: chunked", b"Content-Length: 0"],
        [b"Transfer-Encoding: chunked", b"Content-Length: nonsense"],
        [b"Transfer-Encoding: identity", b"Content-Length: 5"],
        [b"Transfer-Encoding:", b"Content-Length: 5"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"],
        [b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"transfer-encoding: x"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding:"],
        [b"Transfer-Encoding:", b"Transfer-Encoding: chunked"],
    ],
)
def test_a_message_has_one_framing(lines: list[bytes]) -> None:
    assert refused(*lines)


@pytest.mark.parametrize(
    "line",
    [
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding\t: chunked",
        b" Transfer-Encoding: chunked",
        b"\tTransfer-Encoding: chunked",
        b"X: y\r\n Transfer-Encoding: chunked",
        b"X: y\n Transfer-Encoding: chunked",
        b"X: y\nTransfer-Encoding: chunked",
        b"X: y\rTransfer-Encoding: chunked",
        b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding:\n chunked",
        b"Transfer-Encoding: chunked\r",
        b"Transfer-Encoding: chunked\r\r",
        b"Transfer\x00-Encoding: chunked",
        b"Transfer-Encoding\x00: chunked",
        b"Transfer-Encoding\xff: chunked",
        b"Transfer Encoding: chunked",
        b"Transfer-Encoding chunked",
        b"Transfer-Encoding",
        b": chunked",
        b":",
        b"X(y): z",
        b"X@y: z",
        b"[x]: y",
        b'"x": y',
        b"X: \x00",
        b"X: a\x01b",
        b"X: a\x7fb",
        b"X: a\x1bb",
        b"X: a\rb",
        b"\x0bX: y",
        b"\xef\xbb\xbfX: y",
        b"Content-Length\r\n: 5",
        b"=: \r\n\r",
    ],
)
def test_a_header_line_is_a_name_that_touches_its_colon_and_a_value(line: bytes) -> None:
    assert refused(line)


@pytest.mark.parametrize(
    "hosts",
    [[], [b"Host: a.test", b"Host: a.test"], [b"Host: a.test", b"host: b.test"], [b"Host: a.test", b"Host:"]],
    ids=repr,
)
def test_there_is_one_host(hosts: list[bytes]) -> None:
    head = GET + b"".join(host + b"\r\n" for host in hosts) + b"\r\n"
    assert reason_of(head) is Reason.MALFORMED_REQUEST


@pytest.mark.parametrize(
    "host",
    [
        b"", b"a@b", b"a.test:", b"a.test:0", b"a.test:+80", b"a.test:80:80", b"a.test, b.test", b"a.test b.test",
        b"a\xe9.test", b"[a.test]", b"127.1", b"a..test", b"a_b.test", b"a.test/", b"a.test#", b"http://a.test",
    ],
)  # fmt: skip
def test_the_host_header_is_an_authority(host: bytes) -> None:
    value = however_cut(read, GET + b"Host: " + host + b"\r\n\r\n").value
    assert value == Refusal(Reason.MALFORMED_HOST, host.decode("latin-1"))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET",
        b"GET http://allowed.test/",
        b"GET  http://allowed.test/ HTTP/1.1",
        b"GET http://allowed.test/  HTTP/1.1",
        b"GET http://allowed.test/ HTTP/1.1 ",
        b" GET http://allowed.test/ HTTP/1.1",
        b"GET\thttp://allowed.test/\tHTTP/1.1",
        b"GET http://allowed.test/ x HTTP/1.1",
        b"GET http://allowed.test/\x00 HTTP/1.1",
        b"GET http://allowed.test/\x7f HTTP/1.1",
        b"GET http://allowed.test/\r HTTP/1.1",
        b"GET http://allowed.test/\xe9 HTTP/1.1",
        b"GET http://allowed.test/ http/1.1",
        b"GET http://allowed.test/ HTTP/1.2",
        b"GET http://allowed.test/ HTTP/2.0",
        b"GET http://allowed.test/ HTTP/0.9",
        b"GET http://allowed.test/ HTTP/1.10",
        b"GET http://allowed.test/ HTTP/01.1",
        b"GET http://allowed.test/ HTTP/1",
        b"GET http://allowed.test/ HTTP/1.\xb2",
        b"G\x00T http://allowed.test/ HTTP/1.1",
        b"G(T http://allowed.test/ HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2",
    ],
)
def test_a_request_line_has_three_words_and_a_version(line: bytes) -> None:
    assert reason_of(line + b"\r\n" + HOST + b"\r\n") is Reason.MALFORMED_REQUEST


@pytest.mark.parametrize("head", [b"\r\n" + GET + HOST, b"\n" + GET + HOST, GET + b"\r\n" + HOST[:0]], ids=repr)
def test_an_empty_line_ends_a_head_and_starts_none(head: bytes) -> None:
    assert reason_of(head + b"\r\n") is Reason.MALFORMED_REQUEST


@pytest.mark.parametrize(
    "head",
    [
        GET[:-2] + b"\n" + HOST + b"\r\n",
        GET[:-2] + b"\n" + HOST[:-2] + b"\n\n",
        GET + HOST[:-2] + b"\n\n",
        GET + HOST[:-2] + b"\n\r\n",
        GET + HOST + b"\n",
        GET + b"X: y\n" + HOST,
        GET + HOST + b"X: y\r\nZ: z\n\r",
    ],
    ids=repr,
)
def test_a_bare_line_feed_is_refused_as_soon_as_it_comes(head: bytes) -> None:
    """Nothing is waited for: the client may think that its request is whole."""
    assert reason_of(head) is Reason.MALFORMED_REQUEST


@pytest.mark.parametrize("head", [b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n"])
@pytest.mark.parametrize("line", [b"Content-Length: 0", b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_connect_has_no_body(head: bytes, line: bytes) -> None:
    assert reason_of(head + line + b"\r\n\r\n") is Reason.MALFORMED_REQUEST


def test_http_1_0_has_no_chunks() -> None:
    head = b"POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert reason_of(head) is Reason.MALFORMED_REQUEST


# Sizes


def line_of(size: int) -> bytes:
    line = b"GET http://allowed.test/ HTTP/1.1"
    return line.replace(b"/ HTTP", b"/" + b"x" * (size - len(line)) + b" HTTP") + b"\r\n" + HOST + b"\r\n"


def head_of(size: int) -> bytes:
    head = GET + HOST + b"X: \r\n\r\n"
    return head.replace(b"X: ", b"X: " + b"x" * (size - len(head)))


def chunkings(data: bytes) -> Iterable[list[bytes]]:
    """Whole, and with its end cut at every place that could matter."""
    yield whole(data)
    for cut in range(1, 8):
        yield [data[:-cut], data[-cut:]]
    near = LIMITS.request_line
    yield [data[:near], *one_by_one(data[near : near + 60]), data[near + 60 :]]


@pytest.mark.parametrize("size", [LIMITS.request_line - 1, LIMITS.request_line])
def test_a_request_line_may_be_as_long_as_its_limit(size: int) -> None:
    for chunks in chunkings(line_of(size)):
        assert isinstance(outcome(read, filter(None, chunks)).value, Request)


@pytest.mark.parametrize("size", [LIMITS.request_line + 1, LIMITS.request_line + 2, LIMITS.header_bytes, 1 << 20])
def test_a_longer_request_line_is_too_long(size: int) -> None:
    for chunks in chunkings(line_of(size)):
        assert outcome(read, filter(None, chunks)).value == Refusal(Reason.URI_TOO_LONG, "")


def test_a_head_may_be_as_large_as_its_limit_and_no_larger() -> None:
    for chunks in chunkings(head_of(LIMITS.header_bytes)):
        assert isinstance(outcome(read, filter(None, chunks)).value, Request)
    for chunks in chunkings(head_of(LIMITS.header_bytes + 1)):
        assert outcome(read, filter(None, chunks)).value == Refusal(Reason.TOO_LARGE, "")


def test_a_head_has_so_many_lines_and_no_more() -> None:
    assert isinstance(request(*[b"a:b"] * (LIMITS.header_count - 1)).value, Request)
    assert request(*[b"a:b"] * LIMITS.header_count).value == Refusal(Reason.TOO_LARGE, "")
    assert outcome(read, [GET + HOST + b"a:b\r\n" * 10_000 + b"\r\n"]).value == Refusal(Reason.TOO_LARGE, "")


def test_a_head_without_end_is_refused_at_its_limit_and_not_later() -> None:
    taken = 0

    def endless() -> Iterable[bytes]:
        nonlocal taken
        yield GET + HOST
        while True:
            taken += 1024
            yield b"X: " + b"x" * 1019 + b"\r\n"

    assert outcome(read, endless()).value == Refusal(Reason.TOO_LARGE, "")
    assert taken <= LIMITS.header_bytes + 1024


# Answers


@pytest.mark.parametrize(
    ("method", "head", "length"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 5),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNKED),
        ("GET", b"HTTP/1.1 200 OK\r\n\r\n", UNTIL_CLOSE),
        ("GET", b"HTTP/1.1 200\r\n\r\n", UNTIL_CLOSE),
        ("GET", b"HTTP/1.1 200 \r\n\r\n", UNTIL_CLOSE),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\n", UNTIL_CLOSE),
        ("GET", b"HTTP/1.1 599 \xe9t\xe9\r\n\r\n", UNTIL_CLOSE),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 0),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 0),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\n", 0),
        ("GET", b"HTTP/1.1 101 Switching\r\n\r\n", 0),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 0),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n", 0),
    ],
)
def test_the_length_of_an_answer(method: str, head: bytes, length: int) -> None:
    value = answer_to(method, head).value
    assert isinstance(value, Response)
    assert value.length == length


BAD_ANSWERS = [
    b"HTTP/2.0 200 OK\r\n\r\n",
    b"HTTP/1.2 200 OK\r\n\r\n",
    b"http/1.1 200 OK\r\n\r\n",
    b"ICY 200 OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 099 OK\r\n\r\n",
    b"HTTP/1.1 +20 OK\r\n\r\n",
    b"HTTP/1.1 \xb200 OK\r\n\r\n",
    b"HTTP/1.1  200 OK\r\n\r\n",
    b"HTTP/1.1 200 O\x00K\r\n\r\n",
    b"HTTP/1.1 200 OK\rX: y\r\n\r\n",
    b"HTTP/1.1 200 OK\nX: y\r\n\r\n",
    b"HTTP/1.1 200 OK\n\n",
    b"\r\nHTTP/1.1 200 OK\r\n\r\n",
    b"220 ready\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    *(b"HTTP/1.1 200 OK\r\nContent-Length: " + value + b"\r\n\r\n" for value in SMUGGLED_LENGTHS),
    *(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + value + b"\r\n\r\n" for value in SMUGGLED_CODINGS),
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (LIMITS.header_count + 1) + b"\r\n",
    b"HTTP/1.1 200 " + b"x" * LIMITS.header_bytes + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * LIMITS.header_bytes + b"\r\n\r\n",
]


@pytest.mark.parametrize("head", BAD_ANSWERS, ids=lambda head: repr(head[:60]))
def test_whatever_is_wrong_with_an_answer_is_a_bad_response(head: bytes) -> None:
    chunks = one_by_one(head) if len(head) < 2000 else [head[:1000], head[1000:]]
    for cut in (whole(head), chunks):
        assert outcome(lambda buffer: http1.read_response(buffer, "GET"), cut).value == Refusal(Reason.BAD_RESPONSE, "")


# Lists and what is passed on


@pytest.mark.parametrize(
    ("value", "members"),
    [
        ("close", ["close"]),
        ("Keep-Alive, Close", ["keep-alive", "close"]),
        ("a,\tb\t, c ", ["a", "b", "c"]),
        (",, a,,", ["a"]),
        ("", []),
        ("clo se", ["clo se"]),
    ],
)
def test_the_members_of_a_list(value: str, members: list[str]) -> None:
    assert http1.tokens(Fields([Field("connection", value)]), "connection") == members


def keeps(minor: int, **fields: str) -> bool:
    written = Fields(Field(name.replace("_", "-"), value) for name, value in fields.items())
    return Request("GET", "http://a.test/", minor, written, 0).keeps_alive


def test_who_stays_connected() -> None:
    assert keeps(1)
    assert keeps(1, connection="keep-alive")
    assert not keeps(1, connection="Close")
    assert not keeps(1, connection="x,\tclose")
    assert not keeps(1, connection="keep-alive, close")
    assert not keeps(0)
    assert keeps(0, connection="Keep-Alive")
    assert keeps(0, proxy_connection="keep-alive")
    assert not keeps(1, proxy_connection="close")


def test_which_upstream_stays_connected() -> None:
    none, stay = Fields(), Fields([Field("connection", "keep-alive")])
    assert Response(200, "", 1, none, 5).keeps_alive
    assert Response(200, "", 1, none, CHUNKED).keeps_alive
    assert Response(200, "", 0, stay, 5).keeps_alive
    assert not Response(200, "", 1, stay, UNTIL_CLOSE).keeps_alive
    assert not Response(200, "", 0, stay, CHUNKED).keeps_alive
    assert not Response(200, "", 0, none, 5).keeps_alive


def passed_on(*fields: tuple[str, str]) -> list[str]:
    return [field.name for field in http1.end_to_end(Fields(Field(*field) for field in fields))]


@pytest.mark.parametrize(
    "name",
    [
        "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "alt-svc",
    ],
)  # fmt: skip
def test_what_speaks_of_this_hop_alone_is_not_passed_on(name: str) -> None:
    assert passed_on((name, "close"), ("x", "y")) == ["x"]


@pytest.mark.parametrize("separator", [",", ", ", ",\t", "\t,\t", " , "])
def test_what_connection_names_is_not_passed_on(separator: str) -> None:
    named = separator.join(["close", "x-hop", "cookie"])
    assert passed_on(("connection", named), ("x-hop", "1"), ("cookie", "2"), ("x-end", "3")) == ["x-end"]


@pytest.mark.parametrize("name", ["host", "Host", "content-length", "Content-Length"])
def test_connection_cannot_strip_what_routes_or_frames(name: str) -> None:
    assert passed_on(("connection", f"close, {name}"), (name.lower(), "x")) == [name.lower()]


def test_of_a_request_that_was_judged_connection_names_nothing_of_substance() -> None:
    def options(*values: str) -> tuple[str, ...]:
        tamed = http1.tamed(Fields([Field("x-hop", "1"), *(Field("connection", value) for value in values)]))
        assert tamed[0] == ("x-hop", "1")
        return tuple(value for name, value in tamed if name == "connection")

    assert options("close, x-hop", "Upgrade,host") == ("close, upgrade",)
    assert options("x-hop") == ()
    assert options("keep-alive, TE") == ("keep-alive, TE",)
    assert options() == ()


# Any request, any cut

_VALUE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20)
_NAME = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=12).map(lambda name: "x-" + name)
_FRAMING = st.sampled_from([(), (("content-length", "7"),), (("transfer-encoding", "chunked"),)])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    framing = draw(_FRAMING)
    others = draw(st.lists(st.tuples(_NAME, _VALUE), max_size=6))
    fields = [("host", "allowed.test"), *others, *framing]
    cleaned = Fields(Field(name.lower(), value.strip(" \t")) for name, value in draw(st.permutations(fields)))
    length = {(): 0, "content-length": 7, "transfer-encoding": CHUNKED}[framing[0][0] if framing else ()]
    uri = "http://allowed.test/" + draw(st.text("abc/?%&=;\\\"<>{}|^`~!$'()*+,@[]", max_size=20))
    return Request(draw(st.sampled_from(["GET", "POST", "M-SEARCH", "x"])), uri, 1, cleaned, length)


def as_written(value: Request) -> bytes:
    return http1.write_head(f"{value.method} {value.uri} HTTP/1.{value.minor}", list(value.fields))


@FUZZ
@given(st.data())
def test_what_is_written_is_read_back_however_it_is_cut(data: st.DataObject) -> None:
    value, behind = data.draw(requests()), data.draw(st.binary(max_size=20))
    raw = as_written(value) + behind
    assert outcome(read, data.draw(cuttings(raw))) == Outcome(value, b"", behind)


_EDITS = st.sampled_from([
    b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b"\x0b", b"\xa0", b"\r\n\r\n", b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Host: x\r\n", b"HTTP/1.1", b"chunked", b"+", b"0x",
])  # fmt: skip


def edited(draw: st.DrawFn, raw: bytes) -> bytes:
    """A message with a few bytes put in, taken out or doubled."""
    for _ in range(draw(st.integers(1, 3))):
        at, size = draw(st.integers(0, len(raw))), draw(st.integers(0, 3))
        raw = raw[:at] + draw(_EDITS | st.binary(max_size=2)) + raw[at + size :]
    return raw


@FUZZ
@given(st.data())
def test_a_mutated_request_is_read_refused_or_waited_for_the_same_however_it_is_cut(data: st.DataObject) -> None:
    raw = edited(data.draw, as_written(data.draw(requests())))
    at_once, in_pieces = outcome(read, whole(raw)), outcome(read, data.draw(cuttings(raw)))
    assert at_once == in_pieces
    if isinstance(at_once.value, Request):
        _is_unambiguous(at_once.value)


@FUZZ
@given(st.data())
def test_a_mutated_answer_is_read_refused_or_waited_for_the_same_however_it_is_cut(data: st.DataObject) -> None:
    good = http1.write_head("HTTP/1.1 200 OK", list(data.draw(requests()).fields))
    raw, method = edited(data.draw, good), data.draw(st.sampled_from(["GET", "HEAD"]))
    at_once = outcome(lambda buffer: http1.read_response(buffer, method), whole(raw))
    assert at_once == outcome(lambda buffer: http1.read_response(buffer, method), data.draw(cuttings(raw)))
    if isinstance(at_once.value, Refusal):
        assert at_once.value.reason is Reason.BAD_RESPONSE
    elif isinstance(at_once.value, Response):
        _has_clean_fields(at_once.value.fields)
    else:
        assert at_once.value == STARVED


def _is_unambiguous(value: Request) -> None:
    """What a strict reader holds for one message is one message for a lax one too."""
    lengths, codings = http1.values(value.fields, "content-length"), http1.values(value.fields, "transfer-encoding")
    assert len(lengths) + len(codings) <= 1
    assert all(length.isdecimal() and length.isascii() for length in lengths)
    assert all(coding.lower() == "chunked" for coding in codings)
    assert len(http1.values(value.fields, "host")) == 1
    _has_clean_fields(value.fields)


def _has_clean_fields(fields: Fields) -> None:
    for name, value in fields:
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set(' :"(),/;<=>?@[\\]{}')
        assert not set(value) & set("\r\n\0\x7f")
