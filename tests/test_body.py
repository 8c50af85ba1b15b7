"""Bodies as they stream by: read strictly, written anew, the same however they are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wiredrive import FUZZ, cuttings, one_by_one, whole

from egress.limits import LIMITS
from egress.refusals import Reason, Refused
from egress.wire.body import Body, Chunked, Sized, UntilClose, request_body, response_body
from egress.wire.http1 import CHUNKED, UNTIL_CLOSE


class Passed(NamedTuple):
    """What went on, whether it was whole, and what was left for the next reader."""

    out: bytes
    done: bool
    left: bytes


def run(body: Body, chunks: Iterable[bytes]) -> Passed:
    """Feed a body as a socket would; what comes once it is done is not taken."""
    buffer, out = bytearray(), bytearray()
    coming = iter(chunks)
    out += body.take(buffer)
    for chunk in coming:
        if body.done:
            return Passed(bytes(out), True, bytes(buffer) + chunk + b"".join(coming))
        buffer += chunk
        out += body.take(buffer)
    return Passed(bytes(out), body.done, bytes(buffer))


def verdict(body: Body, chunks: Iterable[bytes]) -> Passed | Reason:
    """As `run`, with what was joined up out of the chunks it was framed in: where they lie depends on the cuts."""
    try:
        passed = run(body, chunks)
    except Refused as refused:
        return refused.reason
    return passed._replace(out=dechunked(passed.out))


def dechunked(raw: bytes) -> bytes:
    """A reader of the strictest chunks, independent of the one under test; trailers stand after a `|`."""
    data = b""
    while raw:
        line, _, raw = raw.partition(b"\r\n")
        size = int(line, 16)
        if not size:
            assert raw.endswith(b"\r\n")
            return data + b"|" + raw[:-2]
        data, end, raw = data + raw[:size], raw[size : size + 2], raw[size + 2 :]
        assert end == b"\r\n"
    return data


# A body with a length


def test_so_many_bytes_and_no_more() -> None:
    for cut in (whole, one_by_one):
        assert run(Sized(5), cut(b"helloGET /")) == Passed(b"hello", True, b"GET /")


def test_no_bytes_are_a_body_that_is_done() -> None:
    body = Sized(0)
    assert body.done
    assert run(body, [b"GET /"]) == Passed(b"", True, b"GET /")


def test_a_body_cut_short_is_refused() -> None:
    body = Sized(5)
    assert run(body, [b"hell"]) == Passed(b"hell", False, b"")
    with pytest.raises(Refused, match="1 bytes of the body are missing"):
        body.end()


# A body until the end


def test_all_there_is_as_it_is() -> None:
    body = UntilClose(as_chunks=False)
    assert run(body, [b"hel", b"lo"]) == Passed(b"hello", False, b"")
    assert (body.end(), body.done) == (b"", True)


def test_all_there_is_as_chunks() -> None:
    body = UntilClose(as_chunks=True)
    assert run(body, [b"hel", b"lo"]) == Passed(b"3\r\nhel\r\n2\r\nlo\r\n", False, b"")
    assert (body.end(), body.done) == (b"0\r\n\r\n", True)


def test_nothing_yet_is_not_a_last_chunk() -> None:
    assert UntilClose(as_chunks=True).take(bytearray()) == b""


# Chunks

GOOD = [
    (b"0\r\n\r\n", b"|"),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello|"),
    (b"00005\r\nhello\r\n000\r\n\r\n", b"hello|"),
    (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789|"),
    (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789|"),
    (b"5;name=value\r\nhello\r\n0\r\n\r\n", b"hello|"),
    (b'5 ; name="a;b"\r\nhello\r\n0;last\r\n\r\n', b"hello|"),
    (b"5;\r\nhello\r\n0\r\n\r\n", b"hello|"),
    (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n|"),
    (b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", b"0\r\n\r\n|"),
    (b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", b"ab|"),
    (b"0\r\nX-Sum:  1 \r\n\r\n", b"|x-sum: 1\r\n"),
    (b"1\r\na\r\n0\r\nX-A: 1\r\nX-B:\r\nX-A: 2\r\n\r\n", b"a|x-a: 1\r\nx-b: \r\nx-a: 2\r\n"),
]


@pytest.mark.parametrize(("raw", "out"), GOOD, ids=repr)
def test_chunks_are_read_and_written_anew(raw: bytes, out: bytes) -> None:
    for cut in (whole, one_by_one):
        assert verdict(Chunked(), cut(raw + b"GET behind it")) == Passed(out, True, b"GET behind it")


@pytest.mark.parametrize(("raw", "out"), GOOD, ids=repr)
def test_a_receiver_that_knows_no_chunks_gets_their_data_alone(raw: bytes, out: bytes) -> None:
    for cut in (whole, one_by_one):
        assert run(Chunked(as_chunks=False), cut(raw)) == Passed(out.partition(b"|")[0], True, b"")


BAD_SIZES = [
    b"0x5", b"0X5", b"+5", b"-5", b"-0", b"5 ", b" 5", b"5\t", b"\t5", b"5,", b"5.0", b"5h", b"g", b"", b";a", b"_5",
    b" ", b"5_0", b"5\x00", b"\x005", b"5\x0b", b"\x0c5", b"5\xa0", b"\xb2", "５".encode(), b"5;a\x00", b"5;a\x7f",
    b"5;\x01", b"5\r", b"5;a\r", b"\r5", b"5\r;a", b"ffffffffffffffff5", b"10000000000000005", b"0" * 16 + b"5",
    b"f" * 16, b"f" * 400, b"5;" + b"a" * LIMITS.chunk_line, b"5 5", b"5 a", b"'5'", b'"5"', b"0o5", b"five",
]  # fmt: skip


@pytest.mark.parametrize("size", BAD_SIZES)
def test_a_size_with_two_readings_is_refused(size: bytes) -> None:
    for cut in (whole, one_by_one):
        assert verdict(Chunked(), cut(size + b"\r\nhello\r\n0\r\n\r\n")) is Reason.MALFORMED_REQUEST


@pytest.mark.parametrize(
    "raw",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5;a\nhello\r\n0\r\n\r\n",
        b"5;a\n\r\nhello\r\n0\r\n\r\n",
        b"\n5\r\nhello\r\n0\r\n\r\n",
        b"\r\n5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello\r0\r\n\r\n",
        b"5\r\nhello\n\r0\r\n\r\n",
        b"5\r\nhello\r\n\r\n0\r\n\r\n",
        b"5\r\nhell\r\n0\r\n\r\n",
        b"0\n\n",
        b"0\n\r\n",
        b"0\r\n\n",
        b"0\r\nX: y\n\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\nX: y\r\n\n",
        b"0\r\n \r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\nX: y\r\n z\r\n\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nX: \x00\r\n\r\n",
        b"0\r\nX: a\rb\r\n\r\n",
        b"0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"0\r\n" + b"X: y\r\n" * (LIMITS.trailer_bytes // 6 + 1) + b"\r\n",
        b"0\r\nX: " + b"y" * LIMITS.trailer_bytes + b"\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_chunks_that_do_not_fit_are_refused_as_soon_as_they_come(raw: bytes) -> None:
    for cut in (whole, one_by_one):
        assert verdict(Chunked(), cut(raw)) is Reason.MALFORMED_REQUEST


def test_too_many_trailers_are_refused() -> None:
    raw = b"0\r\n" + b"a:b\r\n" * (LIMITS.header_count + 1) + b"\r\n"
    assert verdict(Chunked(), [raw]) is Reason.TOO_LARGE


def test_a_line_that_never_ends_is_refused_at_its_limit() -> None:
    buffer = bytearray(b"5;" + b"a" * (LIMITS.chunk_line - 3))
    assert Chunked().take(buffer) == b""
    with pytest.raises(Refused):
        Chunked().take(buffer + b"a")


@pytest.mark.parametrize(
    "raw", [b"", b"5", b"5\r", b"5\r\n", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r\n", b"0\r\n", b"0\r\nX: y\r\n"]
)
def test_a_body_that_ends_before_its_last_chunk_is_refused(raw: bytes) -> None:
    body = Chunked()
    assert not run(body, whole(raw)).done
    with pytest.raises(Refused, match="before its last chunk"):
        body.end()


def test_data_is_passed_on_before_its_chunk_is_whole() -> None:
    body = Chunked()
    assert body.take(bytearray(b"ffff\r\nhello")) == b"5\r\nhello\r\n"


@pytest.mark.parametrize(
    "name",
    [
        "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Authorization", "Cookie", "Set-Cookie",
        "Content-Type", "Content-Encoding", "Content-Range", "Proxy-Authorization", "Upgrade", "Expect", "Alt-Svc",
        "Cache-Control", "Max-Forwards", "Keep-Alive", "TE", "hOsT",
    ],
)  # fmt: skip
def test_trailers_cannot_frame_route_or_authenticate(name: str) -> None:
    raw = f"0\r\n{name}: x\r\nX-Sum: 1\r\n\r\n".encode()
    assert run(Chunked(), whole(raw)).out == b"0\r\nx-sum: 1\r\n\r\n"


def test_trailers_of_a_request_are_read_as_strictly_and_go_nowhere() -> None:
    for cut in (whole, one_by_one):
        assert run(request_body(CHUNKED), cut(b"0\r\nX-Sum: 1\r\nX-Mode: evil\r\n\r\nGET")) == Passed(
            b"0\r\n\r\n", True, b"GET"
        )
        assert verdict(request_body(CHUNKED), cut(b"0\r\nX-Sum : 1\r\n\r\n")) is Reason.MALFORMED_REQUEST


def test_which_body_goes_with_which_length() -> None:
    assert isinstance(request_body(CHUNKED), Chunked)
    assert isinstance(request_body(5), Sized)
    assert request_body(0).done
    for as_chunks in (False, True):
        assert isinstance(response_body(UNTIL_CLOSE, as_chunks), UntilClose)
        assert isinstance(response_body(CHUNKED, as_chunks), Chunked)
        assert isinstance(response_body(5, as_chunks), Sized)


# Any body, any cut


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A chunked body and its data."""
    raw = data = b""
    for piece in draw(st.lists(st.binary(min_size=1, max_size=40), max_size=5)):
        extension = draw(st.sampled_from([b"", b";", b" ;a=b", b';q="\\""', b"\t; \x80"]))
        size = draw(st.sampled_from([b"%x", b"%X", b"0%x", b"00000%X"])) % len(piece)
        raw, data = raw + size + extension + b"\r\n" + piece + b"\r\n", data + piece
    trailers = draw(st.lists(st.sampled_from([b"x-a: 1\r\n", b"x-b: \xff\r\n", b"X-C:\t z\t\r\n"]), max_size=2))
    return raw + b"0\r\n" + b"".join(trailers) + b"\r\n", data


@FUZZ
@given(st.data())
def test_any_chunks_give_their_data_however_they_are_cut(data: st.DataObject) -> None:
    (raw, plain), behind = data.draw(chunked()), data.draw(st.binary(max_size=10))
    chunks = data.draw(cuttings(raw + behind))
    framed = verdict(Chunked(), chunks)
    assert isinstance(framed, Passed)
    assert (framed.out.rpartition(b"|")[0], framed.done, framed.left) == (plain, True, behind)
    assert run(Chunked(as_chunks=False), chunks) == Passed(plain, True, behind)


_EDITS = st.sampled_from(
    [b"\r", b"\n", b"\r\n", b"\0", b" ", b";", b"0", b"0x", b"+", b"f" * 16, b"0\r\n\r\n", b"x: y\r\n"]
)


@FUZZ
@given(st.data())
def test_mutated_chunks_pass_or_are_refused_the_same_however_they_are_cut(data: st.DataObject) -> None:
    raw, _ = data.draw(chunked())
    for _ in range(data.draw(st.integers(1, 3))):
        at, size = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 3))
        raw = raw[:at] + data.draw(_EDITS | st.binary(max_size=2)) + raw[at + size :]
    assert verdict(Chunked(), data.draw(cuttings(raw))) == verdict(Chunked(), whole(raw))


@FUZZ
@given(st.binary(max_size=60), st.integers(0, 70), st.data())
def test_any_length_takes_its_bytes_however_they_are_cut(raw: bytes, length: int, data: st.DataObject) -> None:
    passed = run(Sized(length), data.draw(cuttings(raw)) if raw else [])
    assert passed == Passed(raw[:length], len(raw) >= length, raw[length:])


@FUZZ
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
def test_until_the_end_is_the_same_as_chunks(pieces: list[bytes]) -> None:
    body = UntilClose(as_chunks=True)
    out = run(body, pieces).out + body.end()
    assert run(Chunked(as_chunks=False), whole(out)) == Passed(b"".join(pieces), True, b"")


def test_a_thousand_small_chunks_in_one_read_are_a_thousand_chunks() -> None:
    raw = b"".join(itertools.repeat(b"1\r\nx\r\n", 1000)) + b"0\r\n\r\n"
    assert run(Chunked(as_chunks=False), whole(raw)) == Passed(b"x" * 1000, True, b"")
