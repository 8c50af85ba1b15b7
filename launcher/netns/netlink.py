"""Netlink's framing: messages to and from the kernel, as bytes.

A message is a header, a fixed structure and then attributes: a length, a kind and a value, padded to
four bytes, where a value may be attributes again (linux/netlink.h). We write them ourselves because
starting `ip` and `nft` costs more than everything else that happens to a sandbox's network, and
because then neither needs to be installed.

What we say is kept as a tree, since it is also what the kernel's answer is compared with: kernels add
attributes to what they read back, so all that was said must be there, and more may be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from egress.record import NamedTuple

REQUEST, ACK, EXCLUSIVE, CREATE, APPEND, DUMP = 0x1, 0x4, 0x200, 0x400, 0x800, 0x300
ERROR, DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_NESTED, _KIND = 0x8000, 0x3FFF


class Attribute(NamedTuple):
    kind: int
    value: bytes | tuple[Attribute, ...]


class Message(NamedTuple):
    kind: int
    head: bytes  # the fixed structure in front of the attributes
    attributes: tuple[Attribute, ...] = ()
    flags: int = ACK


class Reply(NamedTuple):
    kind: int
    body: bytes


def text(kind: int, words: str) -> Attribute:
    return Attribute(kind, words.encode() + b"\0")


def number(kind: int, value: int, size: int = 4) -> Attribute:
    """In network order, as netfilter has all its numbers."""
    return Attribute(kind, value.to_bytes(size, "big", signed=value < 0))


def nested(kind: int, *attributes: Attribute) -> Attribute:
    return Attribute(kind, attributes)


def encode(attributes: Iterable[Attribute]) -> bytes:
    return b"".join(map(_encode, attributes))


def _encode(attribute: Attribute) -> bytes:
    kind, value = attribute
    if not isinstance(value, bytes):
        kind, value = kind | _NESTED, encode(value)
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def decode(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the value of each attribute; a broken length ends the reading."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _KIND, data[at + _ATTRIBUTE.size : at + length]
        at += length + 3 & ~3


def holds(data: bytes, said: Iterable[Attribute]) -> bool:
    """Whether these encoded attributes have all that was said, each with the same value."""
    there = dict(decode(data))
    return all(attribute.kind in there and _same(there[attribute.kind], attribute.value) for attribute in said)


def _same(data: bytes, value: bytes | tuple[Attribute, ...]) -> bool:
    return data == value if isinstance(value, bytes) else holds(data, value)


def pack(messages: Iterable[Message]) -> bytes:
    """The messages one after the other, numbered from one."""
    return b"".join(_pack(message, place) for place, message in enumerate(messages, 1))


def _pack(message: Message, sequence: int) -> bytes:
    body = message.head + encode(message.attributes)
    flags = message.flags | REQUEST
    return _HEADER.pack(_HEADER.size + len(body), message.kind, flags, sequence, 0) + body


def unpack(data: bytes) -> Iterator[Reply]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield Reply(kind, data[at + _HEADER.size : at + length])
        at += length + 3 & ~3
