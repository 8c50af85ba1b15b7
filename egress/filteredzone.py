"""The nameserver by itself: allowed names are resolved, and their addresses vetted; of others nothing is asked.

Only addresses are ever asked for upstream. All other types are answered with no data: HTTPS and SVCB
could carry ECH keys and other endpoints, TXT and NULL are what tunnels are made of, and a client that may
reach a name needs its addresses.

A question waits for its look-up without holding a decision: policy may change meanwhile, and is asked
again when the look-up lands.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial

from egress.dnsregister import Register
from egress.model import Decision, Host, Verdict
from egress.net.dnslookup import Found, Lookups, Question
from egress.policy import Listeners, vet
from egress.refusals import Reason, Refused
from egress.wire.dnsanswer import NODATA, Answer, refusal
from egress.wire.dnsmsg import Rcode, Type

_NOBODY = {Type.A: "0.0.0.0", Type.AAAA: "::"}
_SINKHOLE_TTL = 10
_NO_LISTENERS = Listeners()  # they are about ports; all of them are on addresses that need `private`
Reply = Callable[[Answer], None]


class Blocked(StrEnum):
    """How a denied name is answered. Some clients take REFUSED for a broken server and try another."""

    REFUSED = "refused"
    NXDOMAIN = "nxdomain"
    SINKHOLE = "sinkhole"


class FilteredZone:
    def __init__(self, register: Register, lookups: Lookups, blocked: Blocked = Blocked.REFUSED) -> None:
        self._register, self._lookups, self._blocked = register, lookups, blocked

    def answer(self, host: Host, qtype: int, reply: Reply) -> None:
        decision = self._register.decide(host)
        if not decision.allowed:
            reply(self._refuse(host, qtype, decision))
        elif qtype not in _NOBODY:
            reply(NODATA)
        else:
            self._resolve(Question(host, Type(qtype)), decision, reply)

    async def close(self) -> None:
        await self._lookups.close()

    def _resolve(self, question: Question, decision: Decision, reply: Reply) -> None:
        found = self._lookups.known(question, self._register.live.policy.hosts)
        if found is not None:
            reply(self._tell(question, decision, found))
            return
        if not self._lookups.is_under_way(question):
            try:
                decision = self._register.permit(question.host, decision)
            except Refused as refused:
                decision = Decision(Verdict.DENY, refused.reason)
        if decision.allowed:
            self._lookups.ask(question, partial(self._land, question, reply))
        else:
            reply(refusal(decision.reason, question.host, self._register.persona))

    def _land(self, question: Question, reply: Reply, found: Found) -> None:
        decision = self._register.decide(question.host)
        if decision.allowed:
            reply(self._tell(question, decision, found))
        else:
            reply(self._refuse(question.host, question.type, decision))

    def _tell(self, question: Question, decision: Decision, found: Found) -> Answer:
        if not found.places or decision.rule is None:
            return self._say_no(question.host, found)
        try:
            vetted = vet(found.places, decision.rule, _NO_LISTENERS)
        except Refused as refused:
            denial = Decision(Verdict.DENY, refused.reason, decision.rule)
            return self._refuse(question.host, question.type, denial)
        return Answer(addresses=tuple(place.ip for place in vetted.addresses), ttl=found.ttl)

    def _say_no(self, host: Host, found: Found) -> Answer:
        if found.rcode is Rcode.SERVFAIL:
            return refusal(Reason.UNRESOLVED, host, self._register.persona)
        return Answer(found.rcode)

    def _refuse(self, host: Host, qtype: int, decision: Decision) -> Answer:
        decision = self._register.refuse(host, decision)
        answer = refusal(decision.reason, host, self._register.persona)
        if decision.reason is Reason.LIMIT or self._blocked is Blocked.REFUSED:
            return answer
        if self._blocked is Blocked.NXDOMAIN:
            return answer._replace(rcode=Rcode.NXDOMAIN)
        nobody = tuple(ip for wanted, ip in _NOBODY.items() if wanted == qtype)
        return answer._replace(rcode=Rcode.NOERROR, addresses=nobody, ttl=_SINKHOLE_TTL)
