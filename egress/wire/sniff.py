"""Which protocol a client speaks, by its first byte.

One listener serves them all, and their first bytes cannot be confused: an HTTP request starts with a
character of its method, SOCKS with its version, TLS with the record type of a handshake.
"""

from __future__ import annotations

from enum import Enum


class Protocol(Enum):
    HTTP = "http"
    SOCKS5 = "socks5"
    SOCKS4 = "socks4"
    TLS = "tls"
    OTHER = "other"


# RFC 9110 section 5.6.2: what a method is made of.
_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_BY_FIRST_BYTE: dict[int, Protocol] = {
    **dict.fromkeys(_TOKEN, Protocol.HTTP),
    0x05: Protocol.SOCKS5,
    0x04: Protocol.SOCKS4,
    0x16: Protocol.TLS,
}


def protocol(first: int) -> Protocol:
    return _BY_FIRST_BYTE.get(first, Protocol.OTHER)
