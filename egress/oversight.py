"""A person's part in a running gate: questions to answer, a page to look at, numbers to collect.

--observe    what is not denied passes, and is marked
--ask        what is not listed waits for an answer, by the page, in `egress watch`, after a notification
--ui         the live page
--metrics    numbers for Prometheus
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from egress import controlsocket
from egress.counsel import ASKING, OBSERVING, Asking, Observing
from egress.gateway import Gateway
from egress.metrics import Timings
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


class Control(Protocol):
    @property
    def metrics(self) -> Timings: ...
    async def start(self, *, page: bool, unix: str | None, metrics: tuple[str, int] | None) -> str: ...
    async def close(self) -> None: ...


MakeControl = Callable[[Gateway, Questions | None, Iterable[str]], Control]


class Oversight:
    """Has its word in the gate's decisions as soon as it is made; `start` opens what people look at."""

    def __init__(self, gate: Gateway, sources: Sources, wishes: Wishes, report: Callable[[str], None]) -> None:
        self._gate, self._wishes, self._report = gate, wishes, report
        self._questions: Questions | None = None
        self._control: Control | None = None
        if wishes.observe:
            gate.counsel = Observing()
            gate.desk.observing = True
            for line in OBSERVING:
                report(line)
        elif wishes.ask is not None:
            self._keeper = Keeper(sources, gate.loop, report)
            self._desktop = Desktop(gate.loop, os.environ)
            self._questions = Questions(gate.loop, wishes.ask, self._keeper.keep, self._desktop.tell)
            gate.counsel = Asking(self._questions)
            report(ASKING.format(timeout=wishes.ask))

    async def start(self, make_control: MakeControl, personas: Iterable[str]) -> None:
        if not self._wishes.need_control:
            return
        self._control = make_control(self._gate, self._questions, personas)
        self._gate.timings = self._control.metrics
        link = await self._control.start(page=self._wishes.page, unix=self._path(), metrics=self._wishes.metrics)
        if link:
            self._report(f"the live page is at {link}")

    async def close(self) -> None:
        if self._questions is not None:
            self._questions.close()
            await self._keeper.close()
            await self._desktop.close()
        if self._control is not None:
            await self._control.close()

    def _path(self) -> str | None:
        try:
            return controlsocket.make_path(self._gate.audit.session, os.environ)
        except OSError as error:
            self._report(f"warning: `egress watch` will only see the log: {error.filename}: {error.strerror}")
            return None
