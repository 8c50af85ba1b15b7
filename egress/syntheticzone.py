"""The nameserver in a sandbox: every name has an address of its own, and nobody is asked about it.

A denied name gets one too. Its connection then arrives and is refused there, with its port and with words
that the client can show; here it would be a name that mysteriously does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.dnsregister import Register
from egress.model import Host
from egress.refusals import Reason
from egress.synthetic import SyntheticNames
from egress.wire.dnsanswer import NODATA, Answer, refusal
from egress.wire.dnsmsg import Rcode, Type


class SyntheticZone:
    def __init__(
        self,
        register: Register,
        names: SyntheticNames,
        loop: asyncio.AbstractEventLoop,
        ipv6: bool = True,
        limits: DnsLimits = DNS_LIMITS,
    ) -> None:
        self._register, self._names, self._loop = register, names, loop
        self._types = (Type.A, Type.AAAA) if ipv6 else (Type.A,)
        self._ttl = limits.synthetic_ttl

    def answer(self, host: Host, qtype: int, reply: Callable[[Answer], None]) -> None:
        decision = self._register.decide(host)
        if not decision.allowed:
            decision = self._register.refuse(host, decision)
        if decision.reason is Reason.LIMIT:
            reply(refusal(decision.reason, host, self._register.persona))
        elif qtype in self._types:
            reply(self._address(host, qtype))
        else:
            reply(NODATA)

    async def close(self) -> None:
        """There is nothing under way."""

    def _address(self, host: Host, qtype: int) -> Answer:
        pair = self._names.allot(host, self._loop.time())
        if pair is None:
            self._register.full(host)
            return refusal(Reason.LIMIT, host, self._register.persona)._replace(rcode=Rcode.SERVFAIL)
        return Answer(addresses=(pair.v4 if qtype == Type.A else pair.v6,), ttl=self._ttl)
