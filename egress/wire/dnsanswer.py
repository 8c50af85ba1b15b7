"""An answer to a DNS query: addresses or none, a code, and in words why (RFC 8914).

Addresses stand under the name that was asked for, whatever aliases led to them. An answer that is too
large first loses its words, then its addresses, and then says that it was cut, so that the client comes
back over TCP.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dnslib import AAAA, EDNS0, RR, A, DNSHeader, DNSLabel, DNSQuestion, DNSRecord, EDNSOption

from egress.refusals import TABLE, Reason
from egress.wire.dnsmsg import RESPONSE, UDP_ROOM, Query, Rcode, Type

_TRUNCATED = 0x0200
_EXTENDED_ERROR = 15
_IN = 1


class Answer(NamedTuple):
    rcode: Rcode = Rcode.NOERROR
    addresses: tuple[str, ...] = ()  # all of the family that was asked for
    ttl: int = 0
    error: int | None = None  # an info-code of RFC 8914
    words: str = ""


NODATA = Answer()
NO_SUCH_NAME = Answer(Rcode.NXDOMAIN)


def refusal(reason: Reason, name: str, persona: str) -> Answer:
    """What the table of reasons says for DNS."""
    row = TABLE[reason]
    return Answer(Rcode[row.rcode], error=row.ede, words=row.sentence.format(target=name, persona=persona))


def build(query: Query, answer: Answer, room: int) -> bytes:
    """The packet, as large as `room` at most."""
    packet = _pack(query, answer)
    if len(packet) > room and answer.words:
        packet = _pack(query, answer._replace(words=""))
    if len(packet) > room:
        packet = _pack(query, Answer(answer.rcode), _TRUNCATED)
    return packet


def _pack(query: Query, answer: Answer, flags: int = 0) -> bytes:
    flags |= RESPONSE | query.flags | answer.rcode & 15
    name = DNSLabel(query.labels)
    message = DNSRecord(
        DNSHeader(id=query.id, bitmap=flags),
        q=DNSQuestion(name, query.type, query.qclass),
        rr=[_record(name, ip, answer.ttl) for ip in answer.addresses],
        ar=[] if query.edns is None else [_opt(query.edns.dnssec, answer)],
    )
    return bytes(message.pack())


def _record(name: DNSLabel, ip: str, ttl: int) -> RR:
    if ":" in ip:
        return RR(name, Type.AAAA, _IN, ttl, AAAA(ip))
    return RR(name, Type.A, _IN, ttl, A(ip))


def _opt(dnssec: bool, answer: Answer) -> EDNS0:
    options = []
    if answer.error is not None:
        options.append(EDNSOption(_EXTENDED_ERROR, struct.pack("!H", answer.error) + answer.words.encode()))
    return EDNS0(udp_len=UDP_ROOM, ext_rcode=answer.rcode >> 4, flags="do" if dnssec else "", opts=options)
