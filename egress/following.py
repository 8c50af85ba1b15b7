"""A worker that does not lead: it tells the one that does what it sees, and has its questions asked there.

See `colleagues` for what is said. Records go in batches, so a thousand decisions a second are twenty messages.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count

import msgspec

from egress.audit import Audit
from egress.auditrecords import Record
from egress.colleagues import Answer, Ask, Counted, Here, Line, Message, PutUp, Withdraw, Written
from egress.counsel import Asking, Observing
from egress.gateway import Gateway
from egress.metrics import Times
from egress.model import Target
from egress.oversight import MakeControl, Wishes
from egress.questions import Choice, NotAsked

_MOMENT = 0.05
_EVERY = 1.0
_KEPT = 10_000  # records while the line is full: as many as whoever watches is shown
_BATCH = 32 * 1024  # bytes


class Following:
    """`on_policy` is called when there is another one."""

    def __init__(self, line: Line, loop: asyncio.AbstractEventLoop, on_policy: Callable[[], None]) -> None:
        self._line, self._on_policy = line, on_policy
        self.questions = Elsewhere(line, loop)
        self.news: News | None = None
        line.serve(self._hear)
        line.send(Here())

    def tell(self, gate: Gateway) -> None:
        """From now on, for a gate that is watched."""
        self.news = News(self._line, gate)

    def close(self) -> None:
        if self.news is not None:
            self.news.close()
        self._line.close()

    def _hear(self, message: Message) -> None:
        if isinstance(message, PutUp):
            self._on_policy()
        elif isinstance(message, Answer):
            self.questions.hear(message)
        elif isinstance(message, Here):
            self.questions.repeat()


class Overseen:
    """`Oversight`, where the page and the questions are another worker's."""

    questions = None

    def __init__(self, gate: Gateway, wishes: Wishes, following: Following) -> None:
        self._gate, self._wishes, self._following = gate, wishes, following
        if wishes.observe:
            gate.counsel = Observing()
            gate.desk.observing = True
        elif wishes.ask is not None:
            gate.counsel = Asking(following.questions)

    async def start(self, _: MakeControl, __: Iterable[str]) -> None:
        if self._wishes.need_control:
            self._following.tell(self._gate)

    async def close(self) -> None:
        self._following.close()


class Elsewhere:
    """Questions that another worker asks. Those that its predecessor had, a new one is asked again."""

    def __init__(self, line: Line, loop: asyncio.AbstractEventLoop) -> None:
        self._line, self._loop = line, loop
        self._numbers = count(secrets.randbits(48))  # an answer to a worker that died must not be one to its successor
        self._waiting: dict[int, tuple[Ask, asyncio.Future[Answer]]] = {}

    async def ask(self, persona: str, target: Target, reason: str) -> Choice | None:
        asked = Ask(next(self._numbers), persona, *target, reason)
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[asked.number] = asked, answered
        try:
            if not self._line.send(asked):
                raise NotAsked("the worker that asks is not there")
            answer = await answered
        except asyncio.CancelledError:
            self._line.send(Withdraw(asked.number))
            raise
        finally:
            del self._waiting[asked.number]
        if not answer.asked:
            raise NotAsked("there are too many questions already")
        return answer.choice

    def hear(self, answer: Answer) -> None:
        if answer.number in self._waiting and not (answered := self._waiting[answer.number][1]).done():
            answered.set_result(answer)

    def repeat(self) -> None:
        for asked, answered in self._waiting.values():
            if not self._line.send(asked) and not answered.done():
                answered.set_result(Answer(asked.number, None, asked=False))


class News:
    """What a worker tells of itself."""

    def __init__(self, line: Line, gate: Gateway) -> None:
        self._line, self._audit, self._loop = line, gate.audit, gate.loop
        self._encode = msgspec.json.Encoder().encode
        self._kept: deque[bytes] = deque(maxlen=_KEPT)
        self._last = Totals.of(gate.audit)
        gate.timings = self._times = Times()
        self._unsubscribe = gate.audit.subscribe(self._note)
        self._flush: asyncio.TimerHandle | None = None
        self._timer = self._loop.call_soon(self._count)

    def close(self) -> None:
        self._unsubscribe()
        self._timer.cancel()
        if self._flush is not None:
            self._flush.cancel()

    def _note(self, record: Record) -> None:
        self._kept.append(self._encode(record))
        if self._flush is None:
            self._flush = self._loop.call_later(_MOMENT, self._send)

    def _send(self) -> None:
        self._flush = None
        while self._kept:
            batch = self._batch()
            if not self._line.send(Written(batch)):
                self._kept.extendleft(reversed(batch))
                self._flush = self._loop.call_later(_MOMENT, self._send)
                return

    def _batch(self) -> list[bytes]:
        batch, size = [], 0
        while self._kept and size < _BATCH:
            batch.append(self._kept.popleft())
            size += len(batch[-1])
        return batch

    def _count(self) -> None:
        self._timer = self._loop.call_later(_EVERY, self._count)
        now = Totals.of(self._audit)
        counted = Counted(
            now.allowed - self._last.allowed, now.blocked - self._last.blocked, self._audit.failing, self._times.take()
        )
        if self._line.send(counted):
            self._last = now
        else:
            self._times.add(counted.times)


class Totals(msgspec.Struct, frozen=True):
    allowed: int
    blocked: int

    @classmethod
    def of(cls, audit: Audit) -> Totals:
        return cls(audit.tally.allowed, sum(audit.tally.blocked.values()))
