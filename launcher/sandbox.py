"""A sandbox, as a program asks for it. See docs/python.md.

    with Sandbox(persona="implementer") as box:                 a `Box`
        done = box.run(["git", "fetch"], timeout=60)

    async with Sandbox(persona="implementer") as box:           an `AsyncBox`
        done = await box.run(["git", "fetch"], timeout=60)

A `Sandbox` is a description: it can be asked what it would be, and made as often as one likes.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Unpack

from launcher import hoststart, options, run, sandboxasync, sandboxrequest, usage
from launcher.explain import explain
from launcher.hoststart import command_line, launch
from launcher.mounts import PlanError
from launcher.plan import Plan
from launcher.sandboxasync import AsyncBox
from launcher.sandboxresults import Availability, Problem, SandboxError
from launcher.sandboxsettings import Fields, Settings
from launcher.sandboxsync import Box

_EXAMINED = 120.0  # seconds for all of the doctor's checks


class Sandbox:
    def __init__(self, settings: Settings | None = None, **changes: Unpack[Fields]) -> None:
        """From settings, from single ones by their names, or both."""
        self.settings = replace(settings or Settings(), **changes)
        self._boxes: list[Box] = []
        self._async_boxes: list[AsyncBox] = []

    @staticmethod
    def available() -> Availability:
        """What `egress doctor` finds that is needed and missing. It tries everything, which takes a second or two."""
        done = subprocess.run(
            [*command_line("egress.cli"), "doctor", "--json"],
            env=hoststart.environment(os.environ, None),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_EXAMINED,
            check=False,
        )
        try:
            checks = json.loads(done.stdout)["checks"]
        except (ValueError, KeyError):
            return Availability((Problem("egress doctor gave no answer", "egress doctor"),))
        return Availability(tuple(Problem(it["what"], it["hint"]) for it in checks if it["status"] == "fail"))

    def open(self) -> Box:
        """One to be closed by whoever opened it."""
        return Box(self.settings, launch(self.settings.words()))

    async def open_async(self) -> AsyncBox:
        return await sandboxasync.open_box(self.settings)

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The words that run a command in a sandbox like this, of its own, for who starts programs by themselves.

        Values of variables are on that command line, where every user of the machine can read them.
        """
        if sandboxrequest.is_outside(argv, self.settings):
            return [sandboxrequest.find_outside(argv[0], self.settings), *argv[1:]]
        return [*command_line("launcher.cli"), *self.settings.words(), "--", *argv]

    def plan(self, argv: Sequence[str] = ("true",)) -> Plan:
        """What will be true inside, as values."""
        words = [*self.settings.words(), "--dry-run"]  # nothing is started for it
        try:
            values = options.read(words)
            asked = options.options(values if values is not None else usage.parse(words), list(argv))
            session = run.prepare(asked)
            run.end(session)
        except PlanError as error:
            raise SandboxError(str(error), error.hint, error.status) from None
        return session.plan

    def explain(self, argv: Sequence[str] = ("true",)) -> str:
        """The same in words."""
        return explain(self.plan(argv))

    def env(self) -> dict[str, str]:
        """The variables inside. A secret is not among them: what stands there is its placeholder."""
        return dict(self.plan().env)

    def __enter__(self) -> Box:
        self._boxes.append(self.open())
        return self._boxes[-1]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._boxes.pop().close()

    async def __aenter__(self) -> AsyncBox:
        box = await self.open_async()
        self._async_boxes.append(box)
        return box

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._async_boxes.pop().close()
