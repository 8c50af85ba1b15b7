"""The second hello, after a HelloRetryRequest (RFC 8446 sections 4.1.2 and 4.1.4).

A server that cannot use any key share of a hello asks for another hello. The two must agree but for a
few fields, and the name is not one of those; yet servers do not compare it, and OpenSSL's go by the
second. So whoever checks the first alone is led astray by a client that names an allowed host with a
key share that the server will not take, and then another host of that server. To check both:

    forward the first hello, `size` bytes and no more
    ask `is_retry` of the server's answer, then forward that
    where it is one, `read` the second from the client, verify it like the first, and forward it

A hello inside an encrypted connection (renegotiation, TLS 1.2 and older) is out of sight; servers have
long stopped taking those from clients.
"""

from __future__ import annotations

from egress.limits import LIMITS
from egress.wire import clienthello
from egress.wire.handshake import NOTHING, Handshake

_HANDSHAKE, _SERVER_HELLO = 22, 2
_SKIPPED = (20, 23)  # a ChangeCipherSpec for old middleboxes; early data, which the server skips too
_TYPE, _RANDOM = 5, 11  # where they stand in a record with a ServerHello
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def is_retry(buffer: bytearray) -> Handshake[bool]:
    """Whether a server's answer, which stays in its buffer, asks for a second hello."""
    yield from _arrival(buffer, 1)
    if buffer[0] != _HANDSHAKE:  # an alert, most likely
        return False
    yield from _arrival(buffer, _RANDOM + len(_RETRY))
    return buffer[_TYPE] == _SERVER_HELLO and buffer[_RANDOM : _RANDOM + len(_RETRY)] == _RETRY


def read(buffer: bytearray, limit: int = LIMITS.client_hello) -> Handshake[clienthello.ClientHello]:
    """The second hello; its size includes what may stand before it."""
    at = 0
    yield from _arrival(buffer, 1)
    while buffer[at] in _SKIPPED:
        yield from _arrival(buffer, at + 5)
        at += 5 + int.from_bytes(buffer[at + 3 : at + 5], "big")
        if at >= limit:
            raise clienthello.too_long(limit)
        yield from _arrival(buffer, at + 1)
    return (yield from clienthello.read(buffer, limit, at))


def _arrival(buffer: bytearray, size: int) -> Handshake[None]:
    while len(buffer) < size:
        yield NOTHING
