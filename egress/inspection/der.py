"""DER, written: as much of it as a certificate and a private key need.

`cryptography.x509` would write them too, but takes 25 ms to load, and a command waits for the authority that
is made here; elliptic curves alone take 8. What is written here is read back in tests, by that library and others.
"""

from __future__ import annotations

import time
from binascii import b2a_base64

_LINE = 48  # bytes that make a line of 64 characters


def tlv(tag: int, *parts: bytes) -> bytes:
    """A tag, the length of what follows, and that."""
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def sequence(*parts: bytes) -> bytes:
    return tlv(0x30, *parts)


def set_of(part: bytes) -> bytes:
    return tlv(0x31, part)


def integer(value: int) -> bytes:
    """Not negative: a leading zero byte keeps the sign away."""
    return tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def boolean(value: bool) -> bytes:
    return tlv(0x01, b"\xff" if value else b"\0")


def octets(value: bytes) -> bytes:
    return tlv(0x04, value)


def bits(value: bytes, unused: int = 0) -> bytes:
    return tlv(0x03, bytes((unused,)), value)


def utf8(text: str) -> bytes:
    return tlv(0x0C, text.encode())


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    return tlv(0x06, bytes((40 * first + second,)), *map(_base128, rest))


def moment(seconds: int) -> bytes:
    """UTCTime, whose years end in 2049, or GeneralizedTime (RFC 5280, 4.1.2.5)."""
    when = time.gmtime(seconds)
    short = when.tm_year < 2050
    text = time.strftime("%y%m%d%H%M%SZ" if short else "%Y%m%d%H%M%SZ", when)
    return tlv(0x17 if short else 0x18, text.encode())


def explicit(number: int, *parts: bytes) -> bytes:
    """Parts in a tag of their context."""
    return tlv(0xA0 | number, *parts)


def implicit(number: int, value: bytes) -> bytes:
    """A plain value whose own tag gives way to one of its context."""
    return tlv(0x80 | number, value)


def pem(label: str, data: bytes) -> bytes:
    lines = b"".join(b2a_base64(data[start : start + _LINE]) for start in range(0, len(data), _LINE))
    return f"-----BEGIN {label}-----\n".encode() + lines + f"-----END {label}-----\n".encode()


def _base128(number: int) -> bytes:
    """Seven bits a byte, and in all but the last the eighth is set."""
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(0x80 | number & 0x7F)
    return bytes(reversed(digits))
