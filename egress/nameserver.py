"""The nameserver: DNS that answers from policy.

    parse     bytes → one question, strictly                       else FORMERR, NOTIMP or silence
    local     names that mean this machine, or nothing, anywhere   answered here, nobody is asked
    zone      everything else: `syntheticzone` in a sandbox, `filteredzone` by itself

Both zones ask policy about the name before anything else happens. An answer is kept as bytes for a second
at most, and not beyond an edit of the policy, for whoever asks the same again (see `net.dnssockets`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol

from egress.audit import Audit
from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.dnsregister import Register
from egress.filteredzone import Blocked, FilteredZone
from egress.model import Decision, Host, Verdict
from egress.names import Malformed
from egress.net.dnsclient import DnsClient
from egress.net.dnslookup import Lookups
from egress.net.dnssockets import Conversations, Datagrams, Reply
from egress.net.resolver import Resolver
from egress.refusals import Reason
from egress.sessions import Live
from egress.synthetic import SyntheticNames
from egress.syntheticzone import SyntheticZone
from egress.wire import dnsmsg
from egress.wire.dnsanswer import NO_SUCH_NAME, NODATA, Answer, build, refusal
from egress.wire.dnsmsg import Query, Rejected, Type

_MALFORMED = Decision(Verdict.DENY, Reason.MALFORMED_HOST)
_LOCAL_TTL = 60
_LOCALHOST = {Type.A: "127.0.0.1", Type.AAAA: "::1"}  # RFC 6761 section 6.3
# The tree of reverse look-ups and of what networks tell about themselves; and the name whose absence asks
# Firefox not to send its DNS over HTTPS.
_NOWHERE = ("arpa", "use-application-dns.net")
_NO_TYPE = 0
_MOST_READY = 300  # bytes of a question worth keeping the answer for


class Zone(Protocol):
    def answer(self, host: Host, qtype: int, reply: Callable[[Answer], None]) -> None: ...

    async def close(self) -> None: ...


class Nameserver:
    """Serves sockets that others have bound, perhaps in another network namespace."""

    def __init__(
        self, register: Register, zone: Zone, loop: asyncio.AbstractEventLoop, limits: DnsLimits = DNS_LIMITS
    ) -> None:
        self._register, self._zone, self._loop, self._limits = register, zone, loop, limits
        self._sockets: list[Datagrams | Conversations] = []
        self._ready: dict[bytes, bytes] = {}
        self._ready_until, self._generation = 0.0, 0
        self._timer = loop.call_later(limits.interval, self._turn)

    def open_udp(self, sock: socket.socket) -> None:
        self._sockets.append(Datagrams(sock, self, self._loop))

    def open_tcp(self, sock: socket.socket) -> None:
        self._sockets.append(Conversations(sock, self, self._loop, self._limits))

    async def close(self) -> None:
        """Stop answering, and leave what was counted on record."""
        self._timer.cancel()
        for each in self._sockets:
            await each.close()
        await self._zone.close()
        self._register.turn()

    def ready(self) -> dict[bytes, bytes]:
        now, generation = self._loop.time(), self._register.live.generation
        if now >= self._ready_until or generation != self._generation:
            self._ready = {}
            self._ready_until, self._generation = now + self._limits.ready_for, generation
        return self._ready

    def handle(self, packet: bytes, udp: bool, reply: Reply) -> None:
        try:
            query = dnsmsg.parse(packet)
        except Rejected as rejected:
            reply(dnsmsg.rejection(packet, rejected.rcode))
            return
        if query is not None:
            self._answer(query, partial(self._send, packet, query, udp, reply))

    def _answer(self, query: Query, reply: Callable[[Answer], None]) -> None:
        if (rcode := dnsmsg.objection(query)) is not None:
            reply(Answer(rcode))
            return
        if not query.labels:  # the root itself
            reply(NODATA)
            return
        try:
            host, service = dnsmsg.subject(query)
        except Malformed:
            reply(self._refuse_malformed(query))
            return
        if (known := local(host, query.type)) is not None:
            reply(known)
        else:
            self._zone.answer(host, _NO_TYPE if service else query.type, reply)

    def _refuse_malformed(self, query: Query) -> Answer:
        decision = self._register.refuse(query.name, _MALFORMED)
        return refusal(decision.reason, ascii(query.name), self._register.persona)

    def _send(self, packet: bytes, query: Query, udp: bool, reply: Reply, answer: Answer) -> None:
        built = build(query, answer, query.room(udp))
        if udp and len(packet) <= _MOST_READY and len(self._ready) < self._limits.ready_answers:
            self._ready[packet[2:]] = built[2:]
        reply(built)

    def _turn(self) -> None:
        self._register.turn()
        self._timer = self._loop.call_later(self._limits.interval, self._turn)


def local(host: Host, qtype: int) -> Answer | None:
    """The answer for a name that is the same everywhere, or that nobody outside should hear of."""
    if host == "localhost" or host.endswith(".localhost"):
        addresses = tuple(ip for wanted, ip in _LOCALHOST.items() if wanted == qtype)
        return Answer(addresses=addresses, ttl=_LOCAL_TTL)
    if any(host == name or host.endswith(f".{name}") for name in _NOWHERE):
        return NO_SUCH_NAME
    return None


def in_sandbox(
    live: Live,
    audit: Audit,
    persona: str,
    names: SyntheticNames,
    loop: asyncio.AbstractEventLoop,
    ipv6: bool = True,
    limits: DnsLimits = DNS_LIMITS,
) -> Nameserver:
    """Answers every name with an address of `names`, which also knows the name of each address."""
    register = Register(live, audit, persona, limits)
    return Nameserver(register, SyntheticZone(register, names, loop, ipv6, limits), loop, limits)


def standalone(
    live: Live,
    audit: Audit,
    persona: str,
    resolver: Resolver,
    client: DnsClient | None,
    loop: asyncio.AbstractEventLoop,
    blocked: Blocked = Blocked.REFUSED,
    limits: DnsLimits = DNS_LIMITS,
) -> Nameserver:
    """Resolves what is allowed: by `client`, or where there is none by the system, through `resolver`."""
    register = Register(live, audit, persona, limits)
    zone = FilteredZone(register, Lookups(resolver, client, loop, limits), blocked)
    return Nameserver(register, zone, loop, limits)
