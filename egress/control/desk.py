"""The desk: every address of the page, and who answers there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from egress import __version__, metrics
from egress.control import answers
from egress.control.feed import Feed
from egress.control.stream import MOST_STREAMS, Stream, last_seen
from egress.draft import draft
from egress.gateway import Gateway
from egress.metrics import Metrics, Now
from egress.policy import Persona
from egress.policybook import choose
from egress.problems import PolicyError
from egress.questions import Choice, Questions

_PAGE = os.path.join(os.path.dirname(__file__), "page")
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_LONGEST_TARGET = 8000


class Reply(msgspec.Struct, frozen=True):
    """What a person decided."""

    id: int
    choice: Choice


class Desk:
    def __init__(
        self, gate: Gateway, questions: Questions | None, feed: Feed, counts: Metrics, doors: Iterable[str]
    ) -> None:
        self._gate, self._questions, self._feed, self._counts = gate, questions, feed, counts
        self._doors = tuple(doors)
        self._streams = 0
        self._files = {name: _read(name) for name in os.listdir(_PAGE) if os.path.splitext(name)[1] in _TYPES}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self.page),
            web.get("/page/{name}", self.page),
            web.get("/api/events", self.events),
            web.get("/api/rules", self.rules),
            web.get("/api/why", self.why),
            web.get("/api/draft", self.draft),
            web.post("/api/answer", self.answer),
            *self.public_routes(),
        ]

    def public_routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self.metrics)]

    async def page(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        if name not in self._files:
            raise web.HTTPNotFound
        return web.Response(body=self._files[name], content_type=_TYPES[os.path.splitext(name)[1]], charset="utf-8")

    async def events(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= MOST_STREAMS:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="egress: too many are watching\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        stream = Stream(
            self._feed,
            last_seen(request, self._feed.newest),
            questions=lambda: answers.pending(self._questions),
            state=lambda: answers.state(self._gate, self._doors),
        )
        self._streams += 1
        try:
            await response.prepare(request)
            await stream.run(response)
        except ConnectionError:
            pass  # it went away
        finally:
            self._streams -= 1
        return response

    async def rules(self, request: web.Request) -> web.Response:
        return _json(answers.rules(self._persona(request)))

    async def why(self, request: web.Request) -> web.Response:
        target = request.query.get("target", "")[:_LONGEST_TARGET]
        return _json(answers.why(target, self._persona(request), self._gate))

    async def draft(self, request: web.Request) -> web.Response:
        """The policy of what was seen of a persona, as YAML."""
        name = self._persona(request).name
        records = [record for record in self._feed if record.persona == name]
        return web.Response(text=await asyncio.to_thread(draft, records, name))

    async def answer(self, request: web.Request) -> web.Response:
        try:
            reply = msgspec.json.decode(await request.read(), type=Reply)
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=f"egress: not an answer: {error}\n") from None
        taken = self._questions is not None and self._questions.answer(reply.id, reply.choice)
        return _json({"taken": taken})

    async def metrics(self, _: web.Request) -> web.Response:
        gate, questions = self._gate, self._questions
        waiting = 0 if questions is None else len(questions.pending())
        now = Now(
            __version__,
            gate.traffic.everywhere,
            waiting,
            gate.live.generation,
            audit_failing=gate.audit.trouble is not None,
        )
        return web.Response(body=self._counts.text(now).encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    def _persona(self, request: web.Request) -> Persona:
        try:
            return choose(self._gate.live.policy, request.query.get("persona", ""))
        except PolicyError as error:
            raise web.HTTPNotFound(text=f"egress: {error}\n") from None


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", charset="utf-8")


def _read(name: str) -> bytes:
    with open(os.path.join(_PAGE, name), "rb") as file:
        return file.read()
