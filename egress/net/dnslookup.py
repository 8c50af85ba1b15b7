"""Look-ups for the nameserver: cached, joined when they are the same, and bounded.

The operator's DNS server is asked for just the type that the client wants, and its times to live are
kept. The system's resolver knows files and services besides DNS and tells no times to live: of it we know
the addresses, or in words why there are none, and keep that for a moment.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.limits import LIMITS
from egress.model import Candidate, Host, Target
from egress.net.dnsclient import Answer, DnsClient
from egress.net.resolver import Resolver
from egress.policy import Fixed
from egress.refusals import Refused
from egress.wire.dnsmsg import Rcode, Type

_SYSTEM_TTL = 5
_FIXED_TTL = 60
_NEGATIVE_TTL, _FAILURE_TTL = 30, 5
_LEAST_TTL, _MOST_TTL = 1, 3600  # whatever a DNS server says
_NO_PORT = 0
# How the resolver says that there is an answer, and that it is no.
_CLEAR = {"no such name": Rcode.NXDOMAIN, "the name has no address": Rcode.NOERROR}


class Question(NamedTuple):
    host: Host
    type: Type


class Found(NamedTuple):
    """What was found, before anyone has said that it may be told. `places` are all of the type asked for."""

    rcode: Rcode
    ttl: int
    places: tuple[Candidate, ...] = ()


FAILED = Found(Rcode.SERVFAIL, _FAILURE_TTL)
Landed = Callable[[Found], None]


class Lookups:
    __slots__ = ("_cache", "_client", "_flights", "_limits", "_loop", "_resolver", "_tasks", "_waiting")

    def __init__(
        self,
        resolver: Resolver,
        client: DnsClient | None,
        loop: asyncio.AbstractEventLoop,
        limits: DnsLimits = DNS_LIMITS,
    ) -> None:
        self._resolver, self._client, self._loop, self._limits = resolver, client, loop, limits
        self._cache: dict[Question, tuple[float, Found]] = {}  # with the time it holds until, the oldest first
        self._flights: dict[Question, list[Landed]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0

    def known(self, question: Question, hosts: Mapping[Host, Fixed]) -> Found | None:
        """What needs no look-up now, with the time that it still holds."""
        if question.host in hosts:
            places = self._resolver.known(Target(question.host, _NO_PORT), hosts) or ()
            return Found(Rcode.NOERROR, _FIXED_TTL, _of_type(places, question.type))
        until, found = self._cache.get(question, (0.0, FAILED))
        left = until - self._loop.time()
        return found._replace(ttl=math.ceil(left)) if left > 0 else None

    def is_under_way(self, question: Question) -> bool:
        return question in self._flights

    def ask(self, question: Question, landed: Landed) -> None:
        """Look it up, or join who does so already. What is too much has failed at once."""
        joined = self._flights.get(question)
        if self._waiting >= self._limits.waiting or (joined is None and len(self._flights) >= self._limits.lookups):
            landed(FAILED)
            return
        self._waiting += 1
        if joined is not None:
            joined.append(landed)
            return
        self._flights[question] = [landed]
        task = self._loop.create_task(self._fly(question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fly(self, question: Question) -> None:
        found = FAILED
        try:
            found = await (self._ask_system(question) if self._client is None else self._ask(self._client, question))
        except Refused:
            pass
        finally:
            self._keep(question, found)
            waiting = self._flights.pop(question)
            self._waiting -= len(waiting)
            for landed in waiting:
                landed(found)

    async def _ask(self, client: DnsClient, question: Question) -> Found:
        answer = await client.query(question.host, question.type.name)
        if answer.rcode not in (Rcode.NOERROR, Rcode.NXDOMAIN):
            return FAILED
        places = self._places(answer) if answer.rcode == Rcode.NOERROR else ()
        return Found(Rcode(answer.rcode), _lifetime(answer), _of_type(places, question.type))

    async def _ask_system(self, question: Question) -> Found:
        try:
            places = await self._resolver.resolve(Target(question.host, _NO_PORT), {})
        except Refused as refused:
            return Found(_CLEAR.get(refused.detail, Rcode.SERVFAIL), _SYSTEM_TTL)
        return Found(Rcode.NOERROR, _SYSTEM_TTL, _of_type(places, question.type))

    def _places(self, answer: Answer) -> tuple[Candidate, ...]:
        """Of an address the resolver says, without looking anything up, whether it is this host's own."""
        addresses = [Host(record.data) for record in answer.records[: LIMITS.addresses]]
        return tuple(place for ip in addresses for place in self._resolver.known(Target(ip, _NO_PORT), {}) or ())

    def _keep(self, question: Question, found: Found) -> None:
        self._cache.pop(question, None)
        self._cache[question] = (self._loop.time() + found.ttl, found)
        if len(self._cache) > self._limits.cache:
            del self._cache[next(iter(self._cache))]


def _of_type(places: tuple[Candidate, ...], wanted: Type) -> tuple[Candidate, ...]:
    return tuple(place for place in places if (":" in place.ip) is (wanted is Type.AAAA))


def _lifetime(answer: Answer) -> int:
    ttl = _NEGATIVE_TTL if answer.ttl is None else answer.ttl
    return min(max(ttl, _LEAST_TTL), _MOST_TTL)
