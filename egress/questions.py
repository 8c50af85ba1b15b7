"""Questions to a person: may this persona reach that host? The connections wait until there is an answer.

    ask ─▶ settled before? ─▶ that answer
       └─▶ already asked?  ─▶ one more connection that waits for the same answer
       └─▶ a new question  ─▶ answered · not answered in time · withdrawn, when the last that waited has left

Many connections to one name and port are one question. `once` lets those through that wait now. The other
answers settle the question: whoever asks it again, as the same persona and while this gate runs, gets the
answer without anybody being asked. So a program that was told no cannot wear a person down by trying again;
who said it by mistake adds the line to the policy, which the gate takes up at once. No answer is a no as well,
but it settles nothing: perhaps nobody was there.

Only a person's answers fill the table of settled questions, so it has no bound of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from egress.model import Target

TIMEOUT = 60.0
MOST_PENDING = 16  # of one persona; past that a person does not read them
MOST_PENDING_IN_ALL = 64
MOST_WAITING = 256  # connections behind one question

Key = tuple[str, Target]


class Choice(StrEnum):
    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    NO = "no"


class Question(NamedTuple):
    """One that waits for its answer; times as in time.time()."""

    id: int
    persona: str
    host: str
    port: int
    reason: str
    asked: float
    deadline: float
    count: int  # type: ignore[assignment]  # of connections that wait; it hides tuple's own, which nobody needs


class NotAsked(Exception):
    """There are too many questions already, or nobody left to answer any."""


def _ignore(*_: object) -> None:
    pass


class Questions:
    """`on_question` is called for each new one, `on_always` for each target that is to be allowed for good."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout: float = TIMEOUT,
        on_always: Callable[[str, Target], None] = _ignore,
        on_question: Callable[[Question], None] = _ignore,
    ) -> None:
        self._loop, self._timeout = loop, timeout
        self._on_always, self._on_question = on_always, on_question
        self._pending: dict[Key, _Pending] = {}
        self._settled: dict[Key, Choice] = {}
        self._subscribers: list[Callable[[], None]] = []
        self._news: asyncio.Handle | None = None
        self._ids = 0
        self._closed = False

    async def ask(self, persona: str, target: Target, reason: str) -> Choice | None:
        """What a person answers, or answered before; None if nobody does in time. NotAsked, where it is not asked."""
        key = (persona, target)
        if key in self._settled:
            return self._settled[key]
        pending = self._pending.get(key) or self._open(key, reason)
        if len(pending.waiting) >= MOST_WAITING:
            raise NotAsked(f"{MOST_WAITING} connections wait for that answer already")
        waiter: asyncio.Future[Choice | None] = self._loop.create_future()
        pending.waiting.add(waiter)
        if len(pending.waiting) == 1:  # a question without anyone who waits is withdrawn, so this is a new one
            self._on_question(pending.question)
        self._tell()
        try:
            return await waiter
        finally:
            pending.waiting.discard(waiter)
            self._left(key, pending)

    def pending(self) -> tuple[Question, ...]:
        """The oldest first."""
        return tuple(pending.question for pending in self._pending.values())

    def answer(self, number: int, choice: Choice) -> bool:
        """Whether there was such a question to answer."""
        found = next(((key, each) for key, each in self._pending.items() if each.number == number), None)
        if found is None:
            return False
        key, _ = found
        if choice is not Choice.ONCE:
            self._settled[key] = choice
        self._close(key, choice)
        if choice is Choice.ALWAYS:
            self._on_always(*key)
        return True

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called, soon and at most once a turn of the loop, after `pending` has changed."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    def close(self) -> None:
        """Nobody answers any more."""
        self._closed = True
        for key in list(self._pending):
            self._close(key, None)
        if self._news is not None:
            self._news.cancel()

    def _open(self, key: Key, reason: str) -> _Pending:
        persona, _ = key
        if self._closed:
            raise NotAsked("the gate is about to end")
        mine = sum(each == persona for each, _ in self._pending)
        if mine >= MOST_PENDING or len(self._pending) >= MOST_PENDING_IN_ALL:
            raise NotAsked(f"{len(self._pending)} questions wait for their answers already")
        self._ids += 1
        timer = self._loop.call_later(self._timeout, self._close, key, None)
        pending = self._pending[key] = _Pending(self._ids, key, reason, self._timeout, timer)
        return pending

    def _close(self, key: Key, choice: Choice | None) -> None:
        pending = self._pending.pop(key)
        pending.timer.cancel()
        for waiter in pending.waiting:
            if not waiter.done():
                waiter.set_result(choice)
        self._tell()

    def _left(self, key: Key, pending: _Pending) -> None:
        """One that waited does no longer. Its question goes with the last of them."""
        if self._pending.get(key) is not pending:
            return
        if pending.waiting:
            self._tell()
        else:
            self._close(key, None)

    def _tell(self) -> None:
        if self._news is None and self._subscribers and not self._closed:
            self._news = self._loop.call_soon(self._tell_now)

    def _tell_now(self) -> None:
        self._news = None
        for callback in tuple(self._subscribers):
            callback()


class _Pending:
    __slots__ = ("_asked", "_key", "_reason", "_timeout", "number", "timer", "waiting")

    def __init__(self, number: int, key: Key, reason: str, timeout: float, timer: asyncio.TimerHandle) -> None:
        self.number, self.timer = number, timer
        self.waiting: set[asyncio.Future[Choice | None]] = set()
        self._key, self._reason, self._timeout = key, reason, timeout
        self._asked = time.time()

    @property
    def question(self) -> Question:
        persona, (host, port) = self._key
        until = self._asked + self._timeout
        return Question(self.number, persona, host, port, self._reason, self._asked, until, len(self.waiting))
