"""The worker that leads: it hears what the others see, and has their questions asked. See `colleagues`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec

from egress.auditrecords import DecisionRecord, EndRecord, FloodRecord, GapRecord, PolicyRecord, Record
from egress.colleagues import Answer, Ask, Counted, Here, Line, Message, PutUp, Withdraw, Written
from egress.gateway import Gateway
from egress.metrics import Metrics
from egress.model import Host, Target
from egress.questions import NotAsked, Questions

_KINDS: dict[str, type[Record]] = {
    "decision": DecisionRecord,
    "end": EndRecord,
    "policy": PolicyRecord,
    "gap": GapRecord,
}


class _Kind(msgspec.Struct, frozen=True):
    event: str
    count: int | None = None


class Leading:
    def __init__(self, lines: Sequence[Line], gate: Gateway, questions: Questions | None) -> None:
        self._lines, self._gate, self._questions = lines, gate, questions
        self._asking: dict[tuple[int, int], asyncio.Task[None]] = {}
        for number, line in enumerate(lines):
            line.serve(partial(self._hear, number))
            line.send(Here())

    def put_up(self) -> None:
        """There is another policy; who does not hear it looks by itself, once a second."""
        for line in self._lines:
            line.send(PutUp())

    async def close(self) -> None:
        for line in self._lines:
            line.close()
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _hear(self, line: int, message: Message) -> None:
        if isinstance(message, Written):
            for record in map(read_record, message.lines):
                self._gate.audit.show(record)
        elif isinstance(message, Counted):
            self._count(line, message)
        elif isinstance(message, Ask):
            self._ask(line, message)
        else:
            self._withdraw(line, message)

    def _count(self, line: int, counted: Counted) -> None:
        audit = self._gate.audit
        audit.tally.allowed += counted.allowed
        audit.tally.blocked[""] += counted.blocked
        audit.elsewhere[line] = counted.failing
        if isinstance(self._gate.timings, Metrics):
            self._gate.timings.add(counted.times)

    def _ask(self, line: int, asked: Ask) -> None:
        key = line, asked.number
        if key in self._asking:  # repeated, for it did not know whom it had asked
            return
        task = self._asking[key] = self._gate.loop.create_task(self._answer(line, asked))
        task.add_done_callback(lambda _: self._asking.pop(key, None))

    async def _answer(self, line: int, asked: Ask) -> None:
        target = Target(Host(asked.host), asked.port)
        try:
            if self._questions is None:
                raise NotAsked("nobody asks")
            choice = await self._questions.ask(asked.persona, target, asked.reason)
        except NotAsked:
            self._lines[line].send(Answer(asked.number, None, asked=False))
        else:
            self._lines[line].send(Answer(asked.number, choice))

    def _withdraw(self, line: int, message: Message) -> None:
        """One question, or all of a worker that begins anew."""
        for (where, number), task in tuple(self._asking.items()):
            if where == line and (isinstance(message, Here) or message == Withdraw(number)):
                task.cancel()


def read_record(line: bytes) -> Record:
    """A record as it was before it was written."""
    kind = msgspec.json.decode(line, type=_Kind)
    return msgspec.json.decode(line, type=FloodRecord if kind.count is not None else _KINDS[kind.event])
