"""A DNS query, read strictly: RFC 1035 section 4, and RFC 6891 for EDNS.

What a stub resolver sends is a header, one question and at most one OPT record. So there is nothing that
a compression pointer could point at and no record to skip, and whatever differs is no query: it gets an
error made from its header alone, and no other parser ever sees it. The bytes of the question are kept as
they came, because the answer repeats them: a client that plays with the case of its names (0x20) looks
for its own spelling.

Any bytes may stand in a label of DNS, dots and NUL too. Only those of a host name go on to policy.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from egress.model import Host
from egress.names import Malformed, as_address, parse_host

UDP_ROOM = 1232  # which no path fragments
LEAST_ROOM = 512  # RFC 1035 section 2.3.4: what every client can take
TCP_ROOM = 65535
_HEADER = struct.Struct("!6H")
_TYPE_AND_CLASS = struct.Struct("!HH")
_OPT = struct.Struct("!BHHIH")
_OPTION = struct.Struct("!HH")
RESPONSE = 0x8080  # of a server that recurses, as ours does for whoever asks
_OPCODE, _RECURSE, _UNCHECKED = 0x7800, 0x0100, 0x0010
_OPT_TYPE, _IN, _MOST_NAME = 41, 1, 255
_LABEL = re.compile(rb"[A-Za-z0-9_-]+")


class Rcode(IntEnum):
    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5
    BADVERS = 16


class Type(IntEnum):
    """Of the types of question, those that have an answer."""

    A = 1
    AAAA = 28


class Edns(NamedTuple):
    size: int  # of a datagram that the client can take
    version: int
    dnssec: bool  # an answer repeats this, and that is all


class Query(NamedTuple):
    id: int
    flags: int  # those that an answer repeats: RD and CD
    labels: tuple[bytes, ...]
    type: int
    qclass: int
    edns: Edns | None

    @property
    def name(self) -> str:
        """For people; only `subject` makes a host."""
        return b".".join(self.labels).decode("latin-1")

    def room(self, udp: bool) -> int:
        """The size of the largest answer that will arrive."""
        if not udp:
            return TCP_ROOM
        return LEAST_ROOM if self.edns is None else min(max(self.edns.size, LEAST_ROOM), UDP_ROOM)


class Subject(NamedTuple):
    """The host that a question is about; `service`: a name below it, such as _http._tcp.example.com."""

    host: Host
    service: bool


class Rejected(Exception):
    """Bytes that are no query of ours; the client is told this code."""

    def __init__(self, rcode: Rcode) -> None:
        super().__init__(rcode.name)
        self.rcode = rcode


def parse(packet: bytes) -> Query | None:
    """The query; None for what must not be answered at all, lest two servers talk for ever."""
    if len(packet) < _HEADER.size or packet[2] & 0x80:
        return None
    ident, flags, questions, answers, authorities, additional = _HEADER.unpack_from(packet)
    if flags & _OPCODE:
        raise Rejected(Rcode.NOTIMP)
    if (questions, answers, authorities) != (1, 0, 0) or additional > 1:
        raise Rejected(Rcode.FORMERR)
    try:
        labels, at = _read_name(packet, _HEADER.size)
        qtype, qclass = _TYPE_AND_CLASS.unpack_from(packet, at)
        edns, at = _read_opt(packet, at + 4) if additional else (None, at + 4)
    except (IndexError, struct.error):  # it ended too soon
        raise Rejected(Rcode.FORMERR) from None
    if at != len(packet):
        raise Rejected(Rcode.FORMERR)
    return Query(ident, flags & (_RECURSE | _UNCHECKED), labels, qtype, qclass, edns)


def rejection(packet: bytes, rcode: Rcode) -> bytes:
    """An error that repeats nothing but the id, the opcode and RD."""
    ident, flags, *_ = _HEADER.unpack_from(packet)
    return _HEADER.pack(ident, RESPONSE | flags & (_OPCODE | _RECURSE) | rcode, 0, 0, 0, 0)


def objection(query: Query) -> Rcode | None:
    """What is wrong with a well-formed query, before anyone asks about its name."""
    if query.edns is not None and query.edns.version:
        return Rcode.BADVERS
    # RFC 6895 section 3.1: types from 128 on ask for zones or for everything, and OPT is no question.
    if query.qclass != _IN or 128 <= query.type <= 255 or query.type in (0, _OPT_TYPE):
        return Rcode.REFUSED
    return None


def subject(query: Query) -> Subject:
    """The host that policy is asked about, or `Malformed`."""
    if not all(map(_LABEL.fullmatch, query.labels)):
        raise Malformed(f"host {query.name!r} is not letters, digits and hyphens between dots")
    labels = list(dropwhile(_is_service, query.labels))
    host = parse_host(b".".join(labels).decode("ascii"))
    if as_address(host) is not None:
        raise Malformed(f"host {host!r} is an address, which DNS has no names for")
    return Subject(host, len(labels) < len(query.labels))


def _is_service(label: bytes) -> bool:
    return label.startswith(b"_")


def _read_name(packet: bytes, start: int) -> tuple[tuple[bytes, ...], int]:
    labels, at = [], start
    while size := packet[at]:
        end = at + 1 + size
        if size > 63 or end - start >= _MOST_NAME:  # a pointer, a label of another kind, or too long
            raise Rejected(Rcode.FORMERR)
        labels.append(packet[at + 1 : end])
        at = end
    return tuple(labels), at + 1


def _read_opt(packet: bytes, at: int) -> tuple[Edns, int]:
    root, rtype, size, ttl, length = _OPT.unpack_from(packet, at)
    end = at + _OPT.size + length
    if root or rtype != _OPT_TYPE:
        raise Rejected(Rcode.FORMERR)
    _check_options(packet, at + _OPT.size, end)
    return Edns(size, ttl >> 16 & 0xFF, bool(ttl & 0x8000)), end


def _check_options(packet: bytes, at: int, end: int) -> None:
    """What they say is of no interest; that they fill their record exactly is."""
    while at < end:
        _, length = _OPTION.unpack_from(packet, at)
        at += _OPTION.size + length
    if at != end:
        raise Rejected(Rcode.FORMERR)
