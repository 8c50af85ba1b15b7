"""A stub resolver for `--dns-server`: one question to one server, deaf to everybody else.

A forger off the path wins by being heard. So every try is a new socket, its port drawn at random by the
kernel, connected, so that no other source is heard, with an id from `secrets`; and a packet counts only
if id, opcode and question are ours. That is judged on the bytes, before any parser sees them. Of a
packet that counts, only the chain of aliases that starts at the question is read, and the SOA that says
how long a "no" holds; other records are not believed. What does not count is dropped and the wait goes
on; when too much of it comes, somebody is guessing, and the next try has another port and id.

A cut answer is asked for again over TCP, with the same checks. EDNS (RFC 6891) offers 1232 bytes, which
no path fragments.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

from egress.limits import LIMITS, Limits
from egress.model import Candidate, Host
from egress.names import Malformed, as_address, parse_authority
from egress.net.dialer import dial, operator_chose
from egress.net.stream import Stream
from egress.refusals import Reason, Refused
from egress.wire.handshake import Handshake, take

NOERROR, NXDOMAIN = 0, 3
_PORT = 53
_TRIES = 3
_ALIASES = 16  # CNAMEs in a row
_STRAYS = 100  # packets that are not ours, in one try
_HEADER = struct.Struct("!6H")
_RECURSE, _TRUNCATED = 0x0100, 0x0200
_KIND_BITS, _RESPONSE = 0xF800, 0x8000  # QR and opcode: a response to a plain query
_IN, _OPT_TYPE = 1, 41
_OPT = b"\0" + struct.pack("!HHIH", _OPT_TYPE, 1232, 0, 0)
_FOR_EVER = 0xFFFFFFFF


class DnsServer(NamedTuple):
    ip: str
    port: int = _PORT

    def __str__(self) -> str:
        return f"{self.ip} port {self.port}"

    @classmethod
    def parse(cls, text: str) -> DnsServer:
        """`1.1.1.1`, `127.0.0.1:5353`, `::1`, `[::1]:53`."""
        bare_v6 = text.count(":") > 1 and not text.startswith("[")
        host, port = parse_authority(f"[{text}]" if bare_v6 else text, _PORT)
        if as_address(host) is None:
            raise Malformed(f"DNS server {text!r} is a name; write its address, such as 1.1.1.1 or [::1]:53")
        return cls(host, port)


class Record(NamedTuple):
    type: str
    ttl: int
    data: Any  # A and AAAA: the address as text; else dnslib's RD, ready to be packed into an answer


class Answer(NamedTuple):
    """What the server says of the name, at the end of its aliases."""

    rcode: int
    records: tuple[Record, ...] = ()
    ttl: int | None = None  # the shortest on the way; of an empty answer its SOA's; None: not said
    truncated: bool = False


class Question(NamedTuple):
    """One try at a question; its id serves once."""

    id: int
    name: bytes  # in wire form
    type: int

    @property
    def packet(self) -> bytes:
        return _HEADER.pack(self.id, _RECURSE, 1, 0, 0, 1) + self.name + self._type_and_class + _OPT

    @property
    def _type_and_class(self) -> bytes:
        return struct.pack("!HH", self.type, _IN)

    def is_answered_by(self, packet: bytes) -> bool:
        if len(packet) < _HEADER.size:
            return False
        ident, flags, questions, *_ = _HEADER.unpack_from(packet)
        end = _HEADER.size + len(self.name)
        return (
            (ident, flags & _KIND_BITS, questions) == (self.id, _RESPONSE, 1)
            and packet[_HEADER.size : end].lower() == self.name
            and packet[end : end + 4] == self._type_and_class
        )


class DnsClient:
    """Asks one server. The operator chose it, so its address is not vetted."""

    __slots__ = ("_limits", "_loop", "_patience", "server")

    def __init__(self, server: DnsServer, loop: asyncio.AbstractEventLoop, limits: Limits = LIMITS) -> None:
        self.server = server
        self._loop = loop
        self._limits = limits
        self._patience = limits.resolve / (_TRIES + 2)

    async def query(self, name: Host, qtype: str) -> Answer:
        """The answer, whatever its code; `Refused` where there is none."""
        trouble = ""
        for _ in range(_TRIES):
            try:
                answer = await self._over_udp(ask(name, qtype))
                return await self._over_tcp(ask(name, qtype)) if answer.truncated else answer
            except TimeoutError:
                trouble = "no reply in time"
            except OSError as error:
                trouble = (error.strerror or str(error)).lower()
            except Refused as error:
                trouble = error.detail
        raise Refused(Reason.UNRESOLVED, f"no answer from the DNS server {self.server}: {trouble}")

    async def _over_udp(self, question: Question) -> Answer:
        stream = Stream(self._udp_socket(), self._loop)
        stream.expire_in(self._patience)
        try:
            await stream.send(question.packet)
            for _ in range(_STRAYS):
                await stream.fill()
                answer = read(bytes(stream.buffer), question)
                stream.buffer.clear()
                if answer is not None:
                    return answer
        finally:
            stream.close()
        raise OSError(f"{_STRAYS} packets came that are no answer")

    async def _over_tcp(self, question: Question) -> Answer:
        vetted = operator_chose([Candidate(*self.server)])
        stream = Stream(await dial(vetted, self._loop, self._limits._replace(connect=self._patience)), self._loop)
        stream.expire_in(self._patience)
        try:
            return await stream.run(_exchange(stream.buffer, question))
        finally:
            stream.close()

    def _udp_socket(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.server.ip else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            sock.connect(self.server)
        except OSError:
            sock.close()
            raise
        return sock


def ask(name: Host, qtype: str) -> Question:
    from dnslib import QTYPE  # 12 ms, and only a gate with its own DNS server needs it

    labels = name.encode("ascii").split(b".")
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return Question(secrets.randbelow(1 << 16), wire, getattr(QTYPE, qtype))


def read(packet: bytes, question: Question) -> Answer | None:
    """The answer that a packet is; None where it is not ours, or not a whole message."""
    if not question.is_answered_by(packet):
        return None
    if _HEADER.unpack_from(packet)[1] & _TRUNCATED:
        return Answer(NOERROR, truncated=True)
    from dnslib import DNSRecord

    try:
        return _answer(DNSRecord.parse(packet), question)
    except Exception:  # dnslib has many ways to fail on bad bytes, RecursionError among them
        return None


def rcode_name(code: int) -> str:
    from dnslib import RCODE

    return str(RCODE.get(code))


def _exchange(buffer: bytearray, question: Question) -> Handshake[Answer]:
    """RFC 1035 section 4.2.2: each message behind its length."""
    packet = question.packet
    yield len(packet).to_bytes(2, "big") + packet
    for _ in range(_STRAYS):
        size = int.from_bytes((yield from take(buffer, 2)), "big")
        answer = read((yield from take(buffer, size)), question)
        if answer is not None and not answer.truncated:
            return answer
    raise OSError(f"{_STRAYS} messages came that are no answer")


def _answer(message: Any, question: Question) -> Answer:
    from dnslib import QTYPE

    believed = [rr for rr in message.rr if rr.rclass == _IN]
    name, life = message.q.qname, _FOR_EVER
    if question.type != QTYPE.CNAME:
        name, life = _follow({rr.rname: rr for rr in reversed(believed) if rr.rtype == QTYPE.CNAME}, name)
    records = tuple(
        Record(QTYPE.get(rr.rtype), min(rr.ttl, life), _data(rr))
        for rr in believed
        if rr.rname == name and rr.rtype == question.type
    )
    ttl = min((record.ttl for record in records), default=_negative_ttl(message, life))
    return Answer(message.header.rcode | _extended_rcode(message), records, ttl)


def _follow(aliases: dict[Any, Any], name: Any) -> tuple[Any, int]:
    """The name at the end of its aliases, and the shortest time to live on the way."""
    life = _FOR_EVER
    for _ in range(_ALIASES):
        if name not in aliases:
            break
        name, life = aliases[name].rdata.label, min(life, aliases[name].ttl)
    return name, life


def _data(rr: Any) -> Any:
    from dnslib import AAAA, A

    if isinstance(rr.rdata, A):
        return str(IPv4Address(bytes(rr.rdata.data)))
    return str(IPv6Address(bytes(rr.rdata.data))) if isinstance(rr.rdata, AAAA) else rr.rdata


def _negative_ttl(message: Any, life: int) -> int | None:
    """RFC 2308 section 5: the lesser of the SOA's own time to live and its last field."""
    from dnslib import SOA

    return next((min(rr.ttl, rr.rdata.times[4], life) for rr in message.auth if isinstance(rr.rdata, SOA)), None)


def _extended_rcode(message: Any) -> int:
    """RFC 6891 section 6.1.3: the upper eight bits of the code stand in the OPT record."""
    return next((int(rr.ttl) >> 24 << 4 for rr in message.ar if rr.rtype == _OPT_TYPE), 0)
