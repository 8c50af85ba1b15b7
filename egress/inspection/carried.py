"""One connection that the engine has, as the gate sees it: its requests, each with its record, and its end."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from egress.attribution import Ends
from egress.auditrecords import Process
from egress.gateway import Gateway
from egress.inspection.channel import Channel
from egress.inspection.messages import Ask, Budget, Closed, Done, Moved, Pairs, Reach, Reached, Stop, Unreached, Verdict
from egress.model import Decision, Via
from egress.model import Verdict as Judgement
from egress.net.relay import Outcome
from egress.passage import Passage
from egress.refusals import Reason, Refused
from egress.requestdesk import HTTPS, Ruling, check_host
from egress.requestpolicy import Asked
from egress.wire import answers
from egress.wire.http1 import Field

_UNSUPPORTED = 405


class Pending(NamedTuple):
    """A request that was allowed and is not over."""

    number: int
    decision: Decision
    shown: tuple[str, str]
    begun: float


class Carried:
    def __init__(self, gate: Gateway, passage: Passage, channel: Channel, conn: int, ends: Ends | None = None) -> None:
        self._gate, self._passage, self._channel, self._conn, self._ends = gate, passage, channel, conn, ends
        self._pending: dict[int, Pending] = {}
        self._moved = 0, 0
        self._reaching: set[asyncio.Task[None]] = set()
        self._unreached: Refused | None = None
        self._outcome: Outcome | None = None
        self.done: asyncio.Future[str] = gate.loop.create_future()

    # ---- what the passage asks

    def counts(self) -> tuple[int, int]:
        return self._moved

    def stop(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._channel.send(Stop(self._conn))

    def lost_a_peer(self) -> bool:
        return False  # the engine sees to that

    # ---- what the engine says

    def hear(self, message: Ask | Reach | Done | Moved | Closed) -> None:
        match message:
            case Ask():
                self.answer(message)
            case Reach():
                self.reach(message)
            case Done():
                self.over(message)
            case Moved() | Closed():
                self._moved = message.up, message.down
                if isinstance(message, Closed):
                    self._end(message)

    def answer(self, ask: Ask) -> None:
        """May this request go? On record before the engine hears of it."""
        fields = tuple(Field(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in ask.fields)
        asked = Asked(ask.method, ask.path.decode("latin-1"), fields)
        ruling = self._judge(ask, asked)
        try:
            self._announce(ask.request, asked, ruling)
        except Refused as refused:
            self._channel.send(self._refusal(ask.request, refused, asked))
            return
        put, masks = ruling.exchange
        budget = None if ruling.budget is None else Budget(*ruling.budget)
        self._channel.send(Verdict(self._conn, ask.request, put=_pairs(put), mask=list(masks), budget=budget))

    def reach(self, wish: Reach) -> None:
        task = self._gate.loop.create_task(self._reach(wish.serial))
        self._reaching.add(task)
        task.add_done_callback(self._reaching.discard)

    def over(self, done: Done) -> None:
        """A request's end, or that it was refused on its way after all."""
        pending = self._pending.pop(done.request, None)
        if pending is None:
            return
        refused = self._afterthought(done)
        if refused is not None and not refused.reason.is_failure:
            denial = Decision(Judgement.DENY, refused.reason, pending.decision.rule)
            self._record(pending.number, denial, pending.shown)
            self._gate.audit.tally.allowed -= 1  # it had been counted as such
            if not done.up and not done.down:
                return
        outcome = done.outcome if refused is None or not refused.reason.is_failure else refused.reason.value
        took = round((self._gate.loop.time() - pending.begun) * 1000)
        self._gate.audit.end(
            pending.number, self._passage.persona, self._passage.ip, done.up, done.down, took, outcome, done.status
        )

    def cut_off(self) -> None:
        self._finish(Outcome.RESET)

    # ---- how

    def _judge(self, ask: Ask, asked: Asked) -> Ruling:
        passage, gate = self._passage, self._gate
        try:
            check_host(ask.authority.decode("latin-1"), passage.target, HTTPS)
            if ask.scheme.lower() != HTTPS:
                raise Refused(Reason.HOST_MISMATCH, f"its scheme is {ask.scheme[:20]!r}")
            persona = gate.live.persona(passage.persona)
            return gate.desk.judge(persona, passage.target, HTTPS, asked, ask.length or 0)
        except Refused as refused:
            return Ruling(Decision(Judgement.DENY, refused.reason, passage.rule), refused.detail)

    def _announce(self, request: int, asked: Asked, ruling: Ruling) -> None:
        """Put the decision on record; Refused if it is no, or cannot be."""
        number, shown, decision = self._gate.audit.next_id(), self._gate.desk.shown(asked), ruling.decision
        try:
            self._record(number, decision, shown)
            if not decision.allowed:
                raise Refused(decision.reason, ruling.detail)
        except Refused as refused:
            if decision.allowed:
                self._record(number, Decision(Judgement.DENY, refused.reason, decision.rule), shown)
            refused.rule = decision.rule
            raise
        self._pending[request] = Pending(number, decision, shown, self._gate.loop.time())

    def _record(self, number: int, decision: Decision, shown: tuple[str, str]) -> None:
        passage = self._passage
        self._gate.audit.decision(
            number, passage.persona, Via.INSPECT, *passage.target, decision, shown, self._asker(decision)
        )

    def _asker(self, decision: Decision) -> Process | None:
        """The program behind the connection, looked for at its first refusal."""
        attribution, ends = self._gate.attribution, self._ends
        if attribution is not None and ends is not None and attribution.wants(decision):
            self._passage.process = self._passage.process or attribution.behind(ends)
            return self._passage.process
        return None

    def _refusal(self, request: int, refused: Refused, asked: Asked) -> Verdict:
        refused.request = self._gate.desk.named(HTTPS, self._passage.target, asked)
        status, fields, body = answers.answer(refused, str(self._passage.target), self._passage.persona, asked.fields)
        return Verdict(self._conn, request, status, _pairs(fields), body)

    async def _reach(self, serial: int) -> None:
        try:
            upstream = await self._gate.reach(self._passage)
        except Refused as refused:
            self._unreached = refused
            status, fields, body = answers.answer(refused, str(self._passage.target), self._passage.persona)
            self._channel.send(Unreached(self._conn, serial, status, _pairs(fields), body, refused.reason.value))
        except OSError:
            self._channel.send(Stop(self._conn))
        else:
            self._passage.upstream = None
            self._channel.send(Reached(self._conn, serial), upstream.surrender())

    def _afterthought(self, done: Done) -> Refused | None:
        """Why a request that was allowed came to nothing."""
        if done.outcome == Outcome.REFUSED:
            return Refused(Reason.UNSUPPORTED if done.status == _UNSUPPORTED else Reason.UPLOAD_LIMIT)
        return self._unreached if done.outcome == "unreached" else None

    def _end(self, closed: Closed) -> None:
        if closed.flooded and self._outcome is None and not self.done.done():
            refused = Refused(Reason.LIMIT, "more frames of HTTP/2 than a connection may send")
            refused.told = True
            self.done.set_exception(refused)
        self._finish(Outcome.CLOSED if closed.failure is None else Outcome.RESET)

    def _finish(self, outcome: Outcome) -> None:
        for request in list(self._pending):
            self.over(Done(self._conn, request, None, 0, 0, Outcome.RESET))
        for task in self._reaching:
            task.cancel()
        if not self.done.done():
            self.done.set_result(self._outcome or outcome)


def _pairs(fields: object) -> Pairs:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]  # type: ignore[attr-defined]
