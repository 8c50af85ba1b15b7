"""The story of one request.

    weigh     may this persona reach this name and port, by this request?    pure, see policy
    admit     the decision is on record before anything goes out
    reach     resolve once, vet what came, dial what was vetted
    relay     where TLS is expected, once it has named the target; until both ends are done
      or      what must be looked into goes, request by request, through `inspection`

The faces (`httpface`, `socksface`) speak the client's protocol and call these in order.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Protocol

from egress import tlsguard
from egress.attendance import unless_gone
from egress.attribution import Attribution
from egress.audit import Audit, printable
from egress.auditrecords import Process
from egress.limits import LIMITS, Limits
from egress.metrics import Timings
from egress.model import Candidate, Decision, Target, Verdict, Vetted, Via
from egress.names import as_address
from egress.net.dialer import dial, operator_chose
from egress.net.relay import Outcome
from egress.net.resolver import Resolver
from egress.net.stream import Stream
from egress.net.upstream import NO_UPSTREAM, Upstream, Upstreams, open_tunnel, route
from egress.passage import Passage, Traffic
from egress.policy import Listeners, vet
from egress.refusals import Reason, Refused
from egress.requestdesk import HTTP, Desk, Ruling
from egress.requestpolicy import Asked
from egress.sessions import Live
from egress.users import Doorkeeper


class Counsel(Protocol):
    """Has a second word on what policy refuses: by asking a person, or in order to learn."""

    async def consider(self, persona: str, via: Via, target: Target, refusal: Decision) -> Decision: ...


class Inspection(Protocol):
    """Serves an admitted client whose requests must be looked into, to its end; `check` refuses what it could not."""

    def check(self, passage: Passage) -> None: ...
    async def carry(self, gate: Gateway, passage: Passage) -> str: ...


class Gateway:
    """Everything a request needs on its way."""

    def __init__(
        self,
        live: Live,
        audit: Audit,
        resolver: Resolver,
        traffic: Traffic,
        desk: Desk,
        loop: asyncio.AbstractEventLoop,
        users: Doorkeeper | None = None,
        upstreams: Upstreams = NO_UPSTREAM,
        limits: Limits = LIMITS,
    ) -> None:
        self.live, self.audit, self.resolver, self.traffic, self.desk = live, audit, resolver, traffic, desk
        self.users, self.upstreams, self.limits = users, upstreams, limits
        self.loop = loop
        self.listeners = Listeners()
        self.counsel: Counsel | None = None
        self.inspection: Inspection | None = None
        self.timings: Timings | None = None
        self.attribution: Attribution | None = None

    async def carry(self, client: Stream, persona: str, via: Via, target: Target, welcome: bytes = b"") -> None:
        """A whole tunnel; `welcome` is what tells the client that it may begin."""
        ruling = await self.weigh(client, persona, via, target)
        await self.carry_on(self.admit(client, persona, via, target, ruling.decision), welcome)

    async def carry_on(self, passage: Passage, welcome: bytes = b"") -> None:
        try:
            if passage.rule.needs_inspection:
                self.leave(passage, await self._look_into(passage, welcome))
                self.audit.tally.allowed -= 1  # its requests are what counts
            else:
                await self.reach(passage)
                await passage.client.send(welcome)
                self.leave(passage, await self._pass_through(passage))
        except Refused as refused:
            self.fail(passage, refused)
            raise
        finally:
            self.leave(passage, Outcome.RESET)

    async def weigh(
        self, client: Stream, persona: str, via: Via, target: Target, asked: Asked | None = None, length: int = 0
    ) -> Ruling:
        """The one decision, about a connection or, where one is `asked` for, a request in the clear."""
        decision = self._judge(persona, via, target) if self.timings is None else self._timed(persona, via, target)
        if self.counsel is not None and not decision.allowed:
            decision = await unless_gone(client, self.counsel.consider(persona, via, target, decision), decision)
            client.expire_in(self.limits.handshake)  # a person's time is not the client's
        if asked is None or decision.rule is None or not decision.allowed or not decision.rule.needs_inspection:
            return Ruling(decision)
        return self.desk.judge(self.live.persona(persona), target, HTTP, asked, length)

    def admit(
        self,
        client: Stream,
        persona: str,
        via: Via,
        target: Target,
        decision: Decision,
        request: tuple[str, str] | None = None,
    ) -> Passage:
        """Put a decision on record and act on it: a passage for what is allowed, Refused for any other."""
        if decision.allowed and self.traffic.is_full:
            decision = Decision(Verdict.DENY, Reason.LIMIT, decision.rule)
        passage = Passage(self.audit, persona, via, target, decision, client, self.loop.time(), request)
        passage.process = self._asker(client, decision)
        try:
            passage.announce()
            if not decision.allowed:
                raise Refused(decision.reason)
        except Refused as refused:
            refused.rule, refused.logged = decision.rule, True
            raise
        self.traffic.enter(passage)
        return passage

    async def reach(self, passage: Passage) -> Stream:
        """The passage's upstream: resolved once, vetted, and dialled at a vetted address."""
        passage.proxy = None
        proxy = route(self.upstreams, passage.target, passage.rule.expects_tls(passage.target.port))
        if proxy is not None and passage.target.host not in self.live.policy.hosts:
            return await self._reach_through(passage, proxy)
        vetted = vet(await self._resolve(passage.target), passage.rule, self.listeners)
        if passage.is_stopped:  # by an edit, while the name was looked up
            raise Refused(Reason.REVOKED)
        return passage.connected(await self._dial(vetted))

    def fail(self, passage: Passage, refused: Refused) -> None:
        """What was allowed by name is refused, or failed, on its way."""
        refused.rule, refused.logged = passage.rule, True
        if self.attribution is not None and not refused.reason.is_failure:
            passage.process = self.attribution.process(passage.client.sock)
        passage.refuse(refused, self.loop.time())

    def leave(self, passage: Passage, outcome: str) -> None:
        """Whatever happened, it is over, on record and closed. Only the first word counts."""
        self.depart(passage, outcome)
        if passage.upstream is not None:
            passage.upstream.close()

    def depart(self, passage: Passage, outcome: str) -> None:
        """It is over and on record; its upstream connection lives on, no longer its own."""
        passage.finish(outcome, self.loop.time())
        self.traffic.leave(passage)

    async def persona_of(self, credentials: tuple[str, str] | None) -> str | None:
        """Whom a name and password stand for."""
        if credentials is None or self.users is None:
            return None
        return await self.users.persona(*credentials)

    def note(self, refused: Refused, persona: str, via: Via, client: Stream | None = None) -> None:
        """Put a refusal on record that never became a passage."""
        if not refused.logged:
            decision = Decision(Verdict.DENY, refused.reason, refused.rule)
            asker = None if client is None else self._asker(client, decision)
            self.audit.decision(
                self.audit.next_id(), persona, via, printable(refused.asked), None, decision, process=asker
            )
            refused.logged = True

    async def _pass_through(self, passage: Passage) -> str:
        if passage.rule.expects_tls(passage.target.port):
            await tlsguard.watch(passage, self.limits)
        passage.client.expire_in(None)
        return await self.traffic.relay(passage)

    async def _look_into(self, passage: Passage, welcome: bytes) -> str:
        if self.inspection is None:
            raise Refused(Reason.INSPECTION_UNAVAILABLE)
        self.inspection.check(passage)
        await passage.client.send(welcome)
        return await self.inspection.carry(self, passage)

    def _timed(self, persona: str, via: Via, target: Target) -> Decision:
        begun = perf_counter()
        decision = self._judge(persona, via, target)
        if self.timings is not None:
            self.timings.observe("decision", perf_counter() - begun)
        return decision

    def _judge(self, persona: str, via: Via, target: Target) -> Decision:
        decision = self.live.persona(persona).decide(target)
        if via is Via.HTTP and decision.allowed and decision.rule and decision.rule.expects_tls(target.port):
            return Decision(Verdict.DENY, Reason.NOT_TLS, decision.rule)
        return decision

    def _asker(self, client: Stream, decision: Decision) -> Process | None:
        """The program behind a decision, where that is wanted."""
        if self.attribution is None or not self.attribution.wants(decision):
            return None
        return self.attribution.process(client.sock)

    async def _resolve(self, target: Target) -> tuple[Candidate, ...]:
        hosts = self.live.policy.hosts
        return self.resolver.known(target, hosts) or await self.resolver.resolve(target, hosts)

    async def _dial(self, vetted: Vetted) -> Stream:
        begun = perf_counter()
        sock = await dial(vetted, self.loop, self.limits)
        if self.timings is not None:
            self.timings.observe("dial", perf_counter() - begun)
        return Stream(sock, self.loop)

    async def _reach_through(self, passage: Passage, proxy: Upstream) -> Stream:
        """By way of the operator's own proxy, which gets the name: only an address can be vetted here."""
        if as_address(passage.target.host) is not None:
            vet(await self._resolve(passage.target), passage.rule, self.listeners)
        chosen = operator_chose(await self._resolve(proxy.target), self.listeners)
        stream = passage.connected(await self._dial(chosen))
        if passage.via is Via.HTTP:
            passage.proxy = proxy  # which takes plain requests as they are
        else:
            await open_tunnel(stream, proxy, passage.target, self.limits)
        return stream
