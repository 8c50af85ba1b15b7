"""Hellos that no one would write, against two readers that know nothing of ours.

Whatever is accepted must mean to a plain walk over the bytes, and to OpenSSL's server, what it means
to the gate; and it must be accepted or refused the same way however it is cut.
"""

from __future__ import annotations

import contextlib
import ssl
import struct
from collections.abc import Callable
from typing import TypeVar

import hellos
from hellos import alpn, ech, extension, hello, key_share, message, record, records, server_names, sni, vector
from hypothesis import given
from hypothesis import strategies as st
from wiredrive import FUZZ, STARVED, Refusal, cuttings, one_by_one, outcome, whole

from egress.wire import clienthello
from egress.wire.clienthello import ClientHello

T = TypeVar("T")
EARLY_DATA = record(b"early data", kind=23)


def plain_walk(data: bytes) -> bytes | None:
    """The name in a hello that is known to be well-formed."""
    joined, at = b"", 0
    while at < len(data):
        (length,) = struct.unpack_from(">H", data, at + 3)
        joined += data[at + 5 : at + 5 + length]
        at += 5 + length
    at = 38
    at += 1 + joined[at]
    at += 2 + struct.unpack_from(">H", joined, at)[0]
    at += 1 + joined[at] + 2
    while at < len(joined):
        kind, length = struct.unpack_from(">HH", joined, at)
        if kind == 0:
            return joined[at + 9 : at + 4 + length]
        at += 4 + length
    return None


class Oracle:
    """What OpenSSL, as a server, takes the name in a hello to be."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.sni_callback = self._note
        self.seen: list[str | None] = []

    def _note(self, _sock: object, name: str | None, _context: object) -> int:
        self.seen.append(name)
        return ssl.AlertDescription.ALERT_DESCRIPTION_ACCESS_DENIED

    def names(self, data: bytes) -> list[str | None]:
        """The name it saw, None for none; nothing if it gave up before it looked."""
        self.seen.clear()
        incoming = ssl.MemoryBIO()
        incoming.write(data)
        with contextlib.suppress(ssl.SSLError):
            self.context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
        return list(self.seen)


ORACLE = Oracle()
REAL = [
    hellos.openssl_hello("allowed.test", ("h2", "http/1.1")),
    hellos.openssl_hello("allowed.test", newest=ssl.TLSVersion.TLSv1_2),
    hellos.openssl_hello(None),
    hello(extension(hellos.GREASE), key_share(1216), ech(), alpn(b"h2"), sni("allowed.test")),
    records(message(sni("allowed.test"), alpn(b"h2")), 60),
]


def check_against_the_oracles(data: bytes, value: object) -> None:
    """A hello that was accepted means the same to everyone; anything else was refused, or goes on."""
    if not isinstance(value, ClientHello):
        assert value == STARVED or isinstance(value, Refusal)
        return
    walked = plain_walk(data[: value.size])
    assert value.name == (None if walked is None else walked.decode("ascii").lower())
    for name in ORACLE.names(data):
        assert value.name == (None if name is None else name.lower())


# What a mutation does to the data at a place, with a little noise to do it with.
EDITS: tuple[Callable[[bytes, int, bytes], bytes], ...] = (
    lambda data, at, noise: data[:at] + noise[:1] + data[at + 1 :],
    lambda data, at, noise: data[:at] + bytes([data[at] ^ 1 << noise[0] % 8]) + data[at + 1 :],
    lambda data, at, noise: data[:at] + bytes([(data[at] + noise[0] % 3 - 1) % 256]) + data[at + 1 :],
    lambda data, at, noise: data[:at] + noise + data[at:],
    lambda data, at, noise: data[:at] + data[at + len(noise) :],
    lambda data, at, noise: data[: at + 4 * len(noise)] + data[at:],
    lambda data, at, _noise: data[: at + 1],
)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A real hello with bytes changed, put in, taken out or doubled."""
    data = draw(st.sampled_from(REAL))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1) | st.integers(0, min(150, len(data) - 1)))
        data = draw(st.sampled_from(EDITS))(data, at, draw(st.binary(min_size=1, max_size=8))) or b"\x16"
    return data


def mostly(right: T, *wrong: T) -> st.SearchStrategy[T]:
    """The right value nearly always: a hello has many fields, and one fault at a time goes deepest."""
    return st.sampled_from([right] * 40 + list(wrong))


lies = mostly(0, -1, 1, 100)
host_names = st.sampled_from([b"allowed.test", b"evil.test", b"ALLOWED.TEST", b"xn--bcher-kva.example"])
bad_names = st.sampled_from([b"allowed.test.", b"a\0b", b"127.0.0.1", b""]) | st.binary(max_size=12)
some_names = st.lists(st.tuples(mostly(0, 1), host_names | bad_names), min_size=1, max_size=2)
some_extensions = st.one_of(
    st.builds(sni, host_names),
    st.builds(lambda names, lie: extension(0, server_names(*names, lie=lie)), some_names, lies),
    st.builds(lambda names: alpn(*names), st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=3)),
    st.builds(lambda kind, payload: ech(kind, payload=payload), mostly(0, 1), mostly(b"x", b"")),
    st.builds(extension, st.sampled_from([23, 0x0A0A, 0x1A1A]), st.binary(max_size=8), lies),
    st.builds(extension, mostly(hellos.GREASE, hellos.ALPN, hellos.ECH, 0xFFCE), st.binary(max_size=20)),
    st.builds(key_share, st.integers(0, 40)),
)


def kind_of(ext: bytes) -> bytes:
    return ext[:2]


@st.composite
def framed(draw: st.DrawFn) -> bytes:
    """A hello built field by field, mostly right, in records of any size."""
    once = st.lists(some_extensions, max_size=5, unique_by=kind_of)
    exts = draw(once) + draw(mostly([], [sni("evil.test")], [b"\x00"]))
    content = message(
        version=draw(mostly(b"\x03\x03", b"\x03\x01", b"\x03\x04")),
        session=bytes(draw(mostly(32, 0, 33))),
        ciphers=b"\x13\x01" * draw(mostly(2, 0, 1)) + draw(mostly(b"", b"\x00")),
        compression=bytes(draw(mostly(1, 2, 0))),
        block=draw(mostly(vector(2, b"".join(exts), draw(lies)), b"", b"\x00", b"\x00\x00")),
        lie=draw(lies),
    )
    content += draw(mostly(b"", b"\x00", content))
    data, at = b"", 0
    while at < len(content):
        size = draw(st.sampled_from([1, 3, 50, 1000, 1000, 1000]))
        data += record(content[at : at + size], draw(mostly(22, 20, 23)), draw(mostly(b"\x03\x01", b"\x03\x03")))
        at += size
    return data + draw(st.sampled_from([b"", EARLY_DATA]))


@FUZZ
@given(mutations(), st.data())
def test_a_mutated_hello_is_refused_or_means_the_same_to_everyone(hello: bytes, data: st.DataObject) -> None:
    value = outcome(clienthello.read, whole(hello)).value
    check_against_the_oracles(hello, value)
    assert outcome(clienthello.read, data.draw(cuttings(hello))).value == value


@FUZZ
@given(framed(), st.data())
def test_a_built_hello_is_refused_or_means_the_same_to_everyone(hello: bytes, data: st.DataObject) -> None:
    value = outcome(clienthello.read, whole(hello)).value
    check_against_the_oracles(hello, value)
    assert outcome(clienthello.read, data.draw(cuttings(hello))).value == value
    assert outcome(clienthello.read, one_by_one(hello)).value == value


@FUZZ
@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_wait(data: bytes) -> None:
    value = outcome(clienthello.read, whole(data)).value
    check_against_the_oracles(data, value)
    assert outcome(clienthello.read, one_by_one(data)).value == value


def test_the_oracle_has_eyes() -> None:
    """The properties above would hold of an oracle that never answers."""
    assert [ORACLE.names(data) for data in REAL[:3]] == [["allowed.test"], ["allowed.test"], [None]]
    assert ORACLE.names(hello(sni("evil.test"), alpn(b"h2"))) == ["evil.test"]
    assert ORACLE.names(records(message(sni("evil.test")), 60)) == ["evil.test"]
