"""The ClientHello: what a TLS client says in the clear, read without a byte of it being changed.

RFC 8446 sections 4.1.2 and 5.1. A hello is one handshake message in one or more records:

    record     16  03 0x  length  | piece of the message                         1 … 2^14 bytes each
    message    01  length | version random session ciphers compression extensions
    extension  type length | …    0 server_name (RFC 6066), 16 ALPN (RFC 7301), 0xfe0d ECH (RFC 9849)

A filter that reads only what came in the first segment, or in the first record, lets through whoever
cuts the message before the name; one that shrugs at bad lengths, doubled extensions or a second name
sees another name than the server does. So the message is joined whole, every length must fit exactly,
and what is ambiguous is refused. What is unknown but well-formed, such as GREASE (RFC 8701), passes.
Refusal comes with the first wrong byte: an ssh client on this port is told at once, not after a timeout.

ECH. Its inner name cannot be read, and a browser sends a made-up ECH (GREASE) that nobody can tell
from a real one, so ECH by itself cannot be refused without refusing browsers. It is accepted where the
outer name is the host that was asked for, and only there. That stops every client that does ECH by the
book: its outer name is the provider's public name, and our DNS hands out no ECH keys to begin with. It
does not stop a program that brings the key of a provider, writes an allowed name of the same provider
outside and another inside, if that provider does not compare the two (RFC 9849 section 7.1: it may).

The server may ask for a second hello, and may go by the name in that one: see `helloretry`.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from egress.limits import LIMITS
from egress.model import Host
from egress.names import MAX_NAME, Malformed, as_address, parse_host
from egress.refusals import Reason, Refused
from egress.wire.handshake import NOTHING, Handshake

_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
# What the first bytes of a handshake record may be, however few of them are there: its type, a version, a length.
# The version means nothing any more; 03 00 is what older GnuTLS writes there.
_HEADER = re.compile(rb"(?:\x16(?:\x03(?:[\x00-\x03](?:[\x00-\x40].?)?)?)?)?", re.DOTALL)
_EXTENSION = Struct("!HH")  # its type and its length
_MAX_RECORD = 1 << 14
_CLIENT_HELLO = 1
_SHORTEST = 2 + 32 + 1 + 4 + 2  # version, random, no session, one cipher suite, one compression method
_SERVER_NAME, _ALPN, _ECH = 0, 16, 0xFE0D
# Encrypted names of earlier drafts: no client of today sends them, and who knows what still reads them.
_ABANDONED = frozenset({0xFFCE, 0xFE08, 0xFE09, 0xFE0A, 0xFE0B, 0xFE0C})


class ClientHello(NamedTuple):
    name: Host | None
    ech: bool
    alpn: tuple[str, ...]
    size: int  # bytes of the buffer up to its end, the headers of its records included


def alert(description: int) -> bytes:
    """A fatal alert, as a record of its own (RFC 8446 section 6)."""
    return bytes((21, 3, 3, 0, 2, 2, description))


ALERT_ACCESS_DENIED = alert(49)


def read(buffer: bytearray, limit: int = LIMITS.client_hello, start: int = 0) -> Handshake[ClientHello]:
    """The hello that starts there in the buffer, which is left as it is: the bytes are still to be forwarded.

    One that does not end within `limit` is refused with LIMIT: it may well be TLS, so the advice that
    goes with NOT_TLS, to expect other things on this port, would be wrong.
    """
    message, size = yield from _message(buffer, start, limit)
    extensions = _extensions(_extension_block(message))
    if not _ABANDONED.isdisjoint(extensions):
        raise Refused(Reason.ECH, "the ClientHello has an encrypted name of an abandoned draft")
    name, alpn, ech = (extensions.get(kind) for kind in (_SERVER_NAME, _ALPN, _ECH))
    if ech is not None:
        _check_ech(ech)
    return ClientHello(
        name=None if name is None else _server_name(name),
        ech=ech is not None,
        alpn=() if alpn is None else _protocols(alpn),
        size=size,
    )


def verify(hello: ClientHello, host: Host) -> None:
    """The hello must say what a plain hello for this host says: its name, or for an address no name at all."""
    expected = None if as_address(host) else host
    if hello.name == expected:
        return
    named = "no server" if hello.name is None else repr(hello.name)
    detail = f"the ClientHello names {named}, expected {expected!r}"
    if hello.ech:
        raise Refused(Reason.ECH, f"{detail}, and has an encrypted name")
    raise Refused(Reason.NO_SNI if hello.name is None else Reason.SNI_MISMATCH, detail)


def _message(buffer: bytearray, at: int, limit: int) -> Handshake[tuple[memoryview, int]]:
    """The content of the message, joined from its records, and where the last of them ends.

    Each byte is looked at once, however many pieces it comes in.
    """
    message = bytearray()
    end = at
    while True:
        if at == end:
            at, end = yield from _record(buffer, at, limit)
        piece = buffer[at:end]
        message += piece
        at += len(piece)
        wanted = _announced(message, limit)
        if len(message) + end - at > wanted:
            raise _not_tls("the record goes on after the end of the ClientHello")
        if len(message) == wanted:
            return memoryview(message)[_MESSAGE_HEADER:], end
        if at < end:
            yield NOTHING


def _record(buffer: bytearray, at: int, limit: int) -> Handshake[tuple[int, int]]:
    """Where the content of the handshake record at `at` begins and ends."""
    while True:
        start = at + _RECORD_HEADER
        if _HEADER.fullmatch(buffer, at, start) is None:
            raise _not_tls(f"{bytes(buffer[at : at + 16])!r} does not begin a TLS handshake record")
        if len(buffer) >= start:
            break
        yield NOTHING
    length = buffer[at + 3] << 8 | buffer[at + 4]
    if not 1 <= length <= _MAX_RECORD:
        raise _not_tls(f"a record of {length} bytes, expected 1 to {_MAX_RECORD}")
    if start + length > limit:
        raise too_long(limit)
    return start, start + length


def _announced(message: bytearray, limit: int) -> int:
    """How long the message will be with its header; as long as it may be while nobody knows."""
    if message and message[0] != _CLIENT_HELLO:
        raise _not_tls(f"a handshake message of type {message[0]}, expected 1 (ClientHello)")
    if len(message) < _MESSAGE_HEADER:
        return limit
    length = int.from_bytes(message[1:_MESSAGE_HEADER], "big")
    if length < _SHORTEST:
        raise _not_tls(f"a ClientHello of {length} bytes, expected at least {_SHORTEST}")
    if length + _MESSAGE_HEADER > limit:
        raise too_long(limit)
    return length + _MESSAGE_HEADER


def _extension_block(message: memoryview) -> memoryview:
    """What stands behind the fixed fields. TLS 1.2 allows a hello without any extension."""
    version = int.from_bytes(message[:2], "big")
    if not 0x0301 <= version <= 0x0303:
        raise _not_tls(f"a ClientHello of version {version:#06x}, expected 0x0301 to 0x0303")
    session, rest = _vector(message[34:], 1, "the session id")
    ciphers, rest = _vector(rest, 2, "the list of cipher suites")
    compression, rest = _vector(rest, 1, "the list of compression methods")
    if len(session) > 32 or len(ciphers) % 2 or not (ciphers and compression):
        raise _not_tls("a ClientHello whose session id, cipher suites or compression methods are malformed")
    if not rest:
        return rest
    block, rest = _vector(rest, 2, "the list of extensions")
    if rest:
        raise _not_tls(f"{len(rest)} bytes follow the extensions of the ClientHello")
    return block


def _extensions(block: memoryview) -> dict[int, memoryview]:
    found: dict[int, memoryview] = {}
    at, end = 0, len(block)
    while at < end:
        start = at + _EXTENSION.size
        kind, length = _EXTENSION.unpack_from(block, at) if start <= end else (0, end)
        at = start + length
        if at > end:
            raise _too_short("an extension")
        if kind in found:
            raise _not_tls(f"a ClientHello with extension {kind} twice")
        found[kind] = block[start:at]
    return found


def _server_name(data: memoryview) -> Host:
    """RFC 6066 allows a list of names; it has one kind of them, and two of a kind are forbidden."""
    names, behind = _vector(data, 2, "the server name list", Reason.BAD_SNI)
    name, others = _vector(names[1:], 2, "the server name", Reason.BAD_SNI)
    text = str(name, "latin-1")
    if behind or others or names[0] != 0:
        raise _bad_name(text, "the server name extension holds more or other than one host name")
    try:
        host = parse_host(text)
    except Malformed as error:
        raise _bad_name(text, str(error)) from None
    if text.endswith(".") or as_address(host):
        raise _bad_name(text, f"server name {text!r} has a trailing dot or is an address")
    return host


def _protocols(data: memoryview) -> tuple[str, ...]:
    names, behind = _vector(data, 2, "the list of protocols")
    found = []
    while names:
        name, names = _vector(names, 1, "a protocol name")
        found.append(str(name, "latin-1"))
    if behind or not all(found) or not found:
        raise _not_tls("a ClientHello whose list of protocols is malformed")
    return tuple(found)


def _check_ech(data: memoryview) -> None:
    """Type 0 (outer), KDF, AEAD, config id, key, payload. Type 1 belongs inside the payload."""
    _, rest = _vector(data[6:], 2, "the ECH key")
    payload, behind = _vector(rest, 2, "the ECH payload")
    if data[0] != 0 or behind or not payload:
        raise _not_tls("a ClientHello whose ECH extension is malformed")


def _vector(data: memoryview, width: int, what: str, reason: Reason = Reason.NOT_TLS) -> tuple[memoryview, memoryview]:
    """The vector at the front, whose length takes `width` bytes, and what follows it."""
    end = width + int.from_bytes(data[:width], "big")
    if end > len(data):
        raise _too_short(what, reason)
    return data[width:end], data[end:]


def _not_tls(detail: str) -> Refused:
    return Refused(Reason.NOT_TLS, detail)


def _too_short(what: str, reason: Reason = Reason.NOT_TLS) -> Refused:
    return Refused(reason, f"{what} of the ClientHello is longer than what holds it")


def too_long(limit: int) -> Refused:
    return Refused(Reason.LIMIT, f"a ClientHello that does not fit into {limit} bytes")


def _bad_name(text: str, detail: str) -> Refused:
    return Refused(Reason.BAD_SNI, detail, asked=text[:MAX_NAME])
