"""Questions for a nameserver, and nameservers to ask, inside the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dnslib import EDNS0, QTYPE, RCODE, DNSRecord, EDNSOption
from fakedns import FakeDns
from gatekit import until

from egress import nameserver
from egress.audit import Audit
from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.filteredzone import Blocked
from egress.model import Host, Source
from egress.nameserver import Nameserver
from egress.net.dnsclient import DnsClient
from egress.net.dnssockets import open_both
from egress.net.resolver import Resolver
from egress.policy import Fixed, Persona, Policy
from egress.rules import Rule, parse_rule
from egress.sessions import Live
from egress.synthetic import SyntheticNames


def wire(*labels: bytes) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def header(ident: int = 0x1234, flags: int = 0x0100, *counts: int) -> bytes:
    return struct.pack("!6H", ident, flags, *(counts or (1, 0, 0, 0)))


def question(*labels: bytes, qtype: int = 1, qclass: int = 1) -> bytes:
    """A whole query, from labels that may hold any bytes."""
    return header() + wire(*labels) + struct.pack("!HH", qtype, qclass)


def opt(size: int = 1232, ttl: int = 0, data: bytes = b"", root: bytes = b"\0") -> bytes:
    return root + struct.pack("!HHIH", 41, size, ttl, len(data)) + data


def query(name: str, qtype: str = "A", edns: bool = True, ident: int = 0x1234) -> bytes:
    message = DNSRecord.question(name, qtype)
    message.header.id = ident
    if edns:
        message.add_ar(EDNS0(udp_len=1232))
    return bytes(message.pack())


class Heard(NamedTuple):
    """An answer, as a client sees it."""

    rcode: str
    addresses: list[str]
    ttl: int | None
    error: int | None
    words: str
    truncated: bool
    message: DNSRecord


def read(packet: bytes) -> Heard:
    message = DNSRecord.parse(packet)
    options = [option for rr in message.ar if rr.rtype == QTYPE.OPT for option in rr.rdata]
    told = next(
        (bytes(option.data) for option in options if isinstance(option, EDNSOption) and option.code == 15), None
    )
    return Heard(
        RCODE[message.header.rcode],
        [str(rr.rdata) for rr in message.rr],
        min((rr.ttl for rr in message.rr), default=None),
        None if told is None else int.from_bytes(told[:2], "big"),
        "" if told is None else told[2:].decode(),
        bool(message.header.tc),
        message,
    )


def allow(text: str, **changes: Any) -> Rule:
    return parse_rule(text, Source("test.yaml", 1))._replace(**changes)


class Clock:
    """The running loop, with a time of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Kit:
    def __init__(self, names: Nameserver, live: Live, audit: Path, clock: Clock) -> None:
        self.names, self.live, self.audit, self.clock = names, live, audit, clock

    def records(self, **wanted: Any) -> list[dict[str, Any]]:
        if not self.audit.exists():
            return []
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]

    def hosts(self, **wanted: Any) -> list[str]:
        return [record["host"] for record in self.records(**wanted)]

    def put(self, packet: bytes, udp: bool = True) -> list[bytes]:
        """What is answered at once, and later."""
        answers: list[bytes] = []
        self.names.handle(packet, udp, answers.append)
        return answers

    async def packet(self, packet: bytes, udp: bool = True) -> bytes:
        answers = self.put(packet, udp)
        await until(lambda: answers)
        (answer,) = answers
        return answer

    async def ask(self, name: str, qtype: str = "A", **more: Any) -> Heard:
        return read(await self.packet(query(name, qtype, **more)))

    def edit(self, *rules: Rule, deny: Iterable[Rule] = ()) -> None:
        self.live.replace(self.live.policy._replace(personas={"p": Persona("p", rules, deny)}))

    def listen(self) -> tuple[str, int]:
        """The address of real sockets, both ways."""
        udp, tcp = open_both("127.0.0.1", 0)
        self.names.open_udp(udp)
        self.names.open_tcp(tcp)
        address: tuple[str, int] = udp.getsockname()
        return address


Making = Callable[[Live, Audit, Clock], Nameserver]


@asynccontextmanager
async def serving(
    tmp_path: Path, rules: Iterable[Rule], deny: Iterable[Rule], hosts: Mapping[str, str], make: Making
) -> AsyncIterator[Kit]:
    fixed = {Host(name): Fixed(ip) for name, ip in hosts.items()}
    live, clock = Live(Policy({"p": Persona("p", rules, deny)}, fixed)), Clock()
    audit = Audit(str(tmp_path / "audit.jsonl"), "test")
    names = make(live, audit, clock)
    try:
        yield Kit(names, live, tmp_path / "audit.jsonl", clock)
    finally:
        await names.close()
        audit.close()


def sandbox(
    tmp_path: Path,
    *rules: Rule,
    deny: Iterable[Rule] = (),
    synthetic: SyntheticNames | None = None,
    ipv6: bool = True,
    limits: DnsLimits = DNS_LIMITS,
) -> contextlib.AbstractAsyncContextManager[Kit]:
    def make(live: Live, audit: Audit, clock: Clock) -> Nameserver:
        names = SyntheticNames(limits) if synthetic is None else synthetic
        return nameserver.in_sandbox(live, audit, "p", names, clock, ipv6, limits)  # type: ignore[arg-type]

    return serving(tmp_path, rules, deny, {}, make)


def standalone(
    tmp_path: Path,
    *rules: Rule,
    upstream: FakeDns | Resolver,
    deny: Iterable[Rule] = (),
    hosts: Mapping[str, str] | None = None,
    blocked: Blocked = Blocked.REFUSED,
    limits: DnsLimits = DNS_LIMITS,
) -> contextlib.AbstractAsyncContextManager[Kit]:
    """Resolves by a DNS server, or by a resolver that stands in for the system's."""

    def make(live: Live, audit: Audit, clock: Clock) -> Nameserver:
        loop = asyncio.get_running_loop()
        resolver = upstream if isinstance(upstream, Resolver) else Resolver(loop)
        client = None if isinstance(upstream, Resolver) else DnsClient(upstream.server, loop)
        return nameserver.standalone(live, audit, "p", resolver, client, clock, blocked, limits)  # type: ignore[arg-type]

    return serving(tmp_path, rules, deny, hosts or {}, make)


async def over_udp(address: tuple[str, int], *packets: bytes) -> list[bytes]:
    """Send all of them, then hear as many answers."""
    loop = asyncio.get_running_loop()
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(address)
        for packet in packets:
            await loop.sock_sendall(sock, packet)
        return [await asyncio.wait_for(loop.sock_recv(sock, 65535), 15) for _ in packets]
