"""The control side of a running gate: up to three listeners, and one desk behind them.

    page     127.0.0.1, a port that the kernel chose    for a browser that has the link
    socket   a Unix socket in the runtime directory     for `egress watch` of the same user
    metrics  an address that the operator chose         for Prometheus: numbers only, and nobody is asked who they are

None of them can be reached through the gate: each is put among its own listeners before it answers anybody.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from aiohttp import web

from egress import controlsocket
from egress.auditrecords import Record
from egress.control.counting import count
from egress.control.desk import Desk
from egress.control.feed import Feed
from egress.control.guard import Guard, admit_own_user, harden
from egress.gateway import Gateway
from egress.metrics import Metrics
from egress.oversight import Desks, open_desks
from egress.questions import Questions
from egress.reception import with_listener

_LARGEST_BODY = 4096
_GOODBYE = 1.0  # seconds for answers that are on their way when it closes


class Control:
    """`doors` are the personas that the gate is open for; `metrics` is what times are to be told to."""

    def __init__(self, gate: Gateway, questions: Questions | None = None, doors: Iterable[str] = ()) -> None:
        self._gate = gate
        self.feed = Feed()
        self.metrics = Metrics(lambda: gate.live.policy.personas)
        self.listeners: list[socket.socket] = []
        self.link = ""
        self._desk = Desk(gate, questions, self.feed, self.metrics, doors)
        self._servers: list[asyncio.AbstractServer] = []
        self._runners: list[web.AppRunner] = []
        self._unsubscribe = [gate.audit.subscribe(self._note)]
        if questions is not None:
            self._unsubscribe.append(questions.subscribe(self.feed.wake))

    async def start(self, *, page: bool = True, unix: str | None = None, metrics: tuple[str, int] | None = None) -> str:
        """Open what is wanted; the link to the page, if that is. `unix` is a path, see `controlsocket`."""
        return await self.serve(open_desks(page=page, unix=unix, metrics=metrics))

    async def serve(self, desks: Desks) -> str:
        """What is open already."""
        if desks.unix is not None:
            await self._open(desks.unix, self._desk.routes(), admit_own_user)
        if desks.metrics is not None:
            await self._open(desks.metrics, self._desk.public_routes())
        if desks.page is not None:
            guard = Guard(self._gate.audit.session, desks.page.getsockname()[1])
            await self._open(desks.page, self._desk.routes(), guard.admit)
            self.link = guard.link
        return self.link

    async def close(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe.clear()
        self.feed.close()
        for sock in self.listeners:
            if sock.family == socket.AF_UNIX:
                with suppress(OSError):
                    os.unlink(sock.getsockname())
        for server in self._servers:
            server.close()
        for runner in self._runners:
            await runner.cleanup()

    def _note(self, record: Record) -> None:
        count(record, self.metrics)
        self.feed.add(record)

    async def _open(self, sock: socket.socket, routes: list[web.RouteDef], *guards: Any) -> None:
        self.listeners.append(sock)
        self._gate.listeners = with_listener(self._gate.listeners, sock)
        application = web.Application(middlewares=guards, client_max_size=_LARGEST_BODY)
        application.add_routes(routes)
        application.on_response_prepare.append(harden)
        runner = web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=_GOODBYE)
        self._runners.append(runner)
        await runner.setup()
        assert runner.server is not None  # noqa: S101  # setup has made it
        loop, unix = self._gate.loop, sock.family == socket.AF_UNIX
        serve = loop.create_unix_server if unix else loop.create_server
        self._servers.append(await serve(runner.server, sock=sock))


def socket_path(session: str) -> str:
    """Where the socket of a session belongs; OSError where there is no such place."""
    return controlsocket.make_path(session, os.environ)
