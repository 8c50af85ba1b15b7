"""A person's part in a running gate: questions to answer, a page to look at, numbers to collect.

--observe    what is not denied passes, and is marked
--ask        what is not listed waits for an answer, by the page, in `egress watch`, after a notification
--ui         the live page
--metrics    numbers for Prometheus
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from egress import controlsocket
from egress.counsel import ASKING, OBSERVING, Asking, Observing
from egress.gateway import Gateway
from egress.metrics import Timings
from egress.net.listeners import open_tcp, open_unix
from egress.notify import Desktop
from egress.policysources import Sources
from egress.policywriter import Keeper
from egress.questions import Questions


class Wishes(NamedTuple):
    observe: bool = False
    ask: float | None = None  # seconds that a question waits
    page: bool = False
    metrics: tuple[str, int] | None = None

    @property
    def need_control(self) -> bool:
        return self.page or self.ask is not None or self.metrics is not None


class Desks(NamedTuple):
    """The sockets where people are answered."""

    page: socket.socket | None = None
    unix: socket.socket | None = None
    metrics: socket.socket | None = None

    def opened(self) -> Iterator[socket.socket]:
        return filter(None, self)


def open_desks(*, page: bool, unix: str | None, metrics: tuple[str, int] | None) -> Desks:
    at_metrics = None if metrics is None else open_tcp(*metrics)  # first, since it alone can be taken by others
    return Desks(open_tcp("127.0.0.1", 0) if page else None, None if unix is None else open_unix(unix), at_metrics)


class Control(Protocol):
    @property
    def metrics(self) -> Timings: ...
    async def start(self, *, page: bool, unix: str | None, metrics: tuple[str, int] | None) -> str: ...
    async def serve(self, desks: Desks) -> str: ...
    async def close(self) -> None: ...


MakeControl = Callable[[Gateway, Questions | None, Iterable[str]], Control]


class Oversight:
    """Has its word in the gate's decisions as soon as it is made; `start` opens what people look at."""

    def __init__(
        self,
        gate: Gateway,
        sources: Sources,
        wishes: Wishes,
        report: Callable[[str], None],
        desks: Desks | None = None,
    ) -> None:
        """`desks` are those that are open already."""
        self._gate, self._wishes, self._report, self._desks = gate, wishes, report, desks
        self.questions: Questions | None = None
        self._control: Control | None = None
        if wishes.observe:
            gate.counsel = Observing()
            gate.desk.observing = True
            for line in OBSERVING:
                report(line)
        elif wishes.ask is not None:
            self._keeper = Keeper(sources, gate.loop, report)
            self._desktop = Desktop(gate.loop, os.environ)
            self.questions = Questions(gate.loop, wishes.ask, self._keeper.keep, self._desktop.tell)
            gate.counsel = Asking(self.questions)
            report(ASKING.format(timeout=wishes.ask))

    async def start(self, make_control: MakeControl, personas: Iterable[str]) -> None:
        if not self._wishes.need_control:
            return
        self._control = make_control(self._gate, self.questions, personas)
        self._gate.timings = self._control.metrics
        if self._desks is not None:
            link = await self._control.serve(self._desks)
        else:
            unix = control_path(self._gate.audit.session, self._report)
            link = await self._control.start(page=self._wishes.page, unix=unix, metrics=self._wishes.metrics)
        if link:
            self._report(f"the live page is at {link}")

    async def close(self) -> None:
        if self.questions is not None:
            self.questions.close()
            await self._keeper.close()
            await self._desktop.close()
        if self._control is not None:
            await self._control.close()


def control_path(session: str, report: Callable[[str], None]) -> str | None:
    try:
        return controlsocket.make_path(session, os.environ)
    except OSError as error:
        report(f"warning: `egress watch` will only see the log: {error.filename}: {error.strerror}")
        return None
