"""Server-sent events: what the page and `egress watch` are told as it happens.

    records     a list of records of the log, some or many; the event's id is the number of the last
    missed      so many records were there once and are no longer
    state       what is counted: open tunnels, the policy's generation, and the like; and the gate's clock
    questions   all that wait for a person now; deadlines are by that clock

A browser that lost its connection comes again by itself and says which event was its last (Last-Event-ID; WHATWG HTML,
section 9.2). What comes within a moment is one event: a thousand decisions a second are twenty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from aiohttp import web

from egress.control.feed import Feed

MOST_STREAMS = 32
_MOMENT = 0.05
_HEARTBEAT = 5.0
_BATCH = 500

_encode = msgspec.json.Encoder().encode
Look = Callable[[], Any]


def event(kind: str, data: Any, number: int | None = None) -> bytes:
    marked = "" if number is None else f"id: {number}\n"
    return f"event: {kind}\n{marked}data: ".encode() + _encode(data) + b"\n\n"  # JSON as we write it has no line breaks


class Stream:
    """One watcher, from the record after `number` on. `questions` and `state` look at how things are."""

    def __init__(self, feed: Feed, number: int, questions: Look, state: Look) -> None:
        self._feed, self._number = feed, number
        self._questions, self._state = questions, state
        self._asked: Any = None

    def news(self) -> Iterator[bytes]:
        """What has not been told yet; the state in any case, which is also a sign of life."""
        if self._number + 1 < self._feed.oldest:
            yield event("missed", self._feed.oldest - 1 - self._number)
        while self._number < self._feed.newest:
            self._number, records = self._feed.after(self._number, _BATCH)
            yield event("records", records, self._number)
        yield event("state", self._state())
        asked = self._questions()
        if asked != self._asked:
            self._asked = asked
            yield event("questions", asked)

    async def run(self, response: web.StreamResponse) -> None:
        while not self._feed.closed:
            for piece in self.news():
                await response.write(piece)
            await self._feed.changed(_HEARTBEAT)
            await asyncio.sleep(_MOMENT)


def last_seen(request: web.Request, newest: int) -> int:
    """The number after which a watcher wants to hear: what it had, or so many of the newest, or all there is."""
    had = _number(request.headers.get("Last-Event-ID") or request.query.get("after", ""))
    tail = _number(request.query.get("tail", ""))
    if had is not None:
        return min(had, newest)
    return 0 if tail is None else max(0, newest - tail)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
