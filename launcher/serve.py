"""The gate, while the sandbox runs: its sockets are the sandbox's, its life is the command's."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress

import uvloop

from egress import app
from egress.attribution import attributing
from egress.audit import Audit
from egress.policy import Policy
from egress.problems import PolicyError
from egress.sessions import Door
from egress.users import OneGuest
from egress.vault import Vault
from launcher.backends.place import Place, Watching
from launcher.doors import Doors
from launcher.mint import config
from launcher.mounts import PlanError
from launcher.oversee import wishes
from launcher.publish import Publisher
from launcher.routes import routes
from launcher.run import Session
from launcher.terminal import Terminal

_SOON = 0.05


def serve(session: Session, room: Place, terminal: Terminal | None, warnings: tuple[str, ...]) -> int:
    gc.freeze()
    gc.enable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(Serving(session, room, terminal, warnings).run())


class Serving:
    """One session: from the first connection that waits to the last word on what was blocked."""

    def __init__(self, session: Session, room: Place, terminal: Terminal | None, warnings: tuple[str, ...]) -> None:
        self._session, self._room, self._terminal, self._warnings = session, room, terminal, warnings
        self._persona = session.options.persona or ""
        self._entered: set[int] = set()  # processes inside that did not come with the first command

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        watch = self._room.watch(self._terminal, loop)
        relayed = self._terminal.relay(loop) if self._terminal is not None else None
        setup = self._setup()
        gate = app.Gate(setup, self._policy(setup), loop)
        doors = Doors(gate, self._persona, loop)
        self._open(gate, doors)
        await gate.start((self._persona,))
        publisher = self._publish(gate, loop)
        self._report_start()
        self._attend(gate, watch, loop)
        try:
            code = await watch.ended
            if self._terminal is not None and relayed is not None:
                await relayed
                self._terminal.restore()
        finally:
            if publisher is not None:
                await publisher.close()
            await doors.close()
            await gate.close()
        self._report_end(gate.audit, watch)
        return code

    def _attend(self, gate: app.Gate, watch: Watching, loop: asyncio.AbstractEventLoop) -> None:
        """All is open; what is left is to wait for the end."""
        self._vanish_when_running(watch, loop)
        if self._session.options.resources.timeout:
            watch.end_in(self._session.options.resources.timeout)

    def _vanish_when_running(self, watch: Watching, loop: asyncio.AbstractEventLoop) -> None:
        """bwrap makes its mounts after the release: the relay's socket must be there until the command runs."""
        if self._session.relay is not None and not watch.ended.done():
            if watch.is_running():
                self._session.relay.vanish()
            else:
                loop.call_later(_SOON, self._vanish_when_running, watch, loop)

    def _policy(self, setup: app.Setup) -> Policy:
        """The files themselves, now that there is time to read them."""
        try:
            return setup.load()
        except PolicyError as error:
            raise PlanError(str(error), "egress policy lint", status=2) from None

    def _setup(self) -> app.Setup:
        server, upstreams = routes(self._session.options.dns_server, self._session.options.upstream)
        options, mint, site = self._session.options, self._session.mint, self._session.site
        return app.Setup(
            self._session.sources,
            self._session.audit,
            self._say,
            Vault(),
            dns_server=server,
            upstreams=upstreams,
            log_queries=options.log_queries,
            wishes=wishes(options),
            attribution=attributing(options.attribute, self._room.sandbox, self._entered),
            authority=(lambda: config(mint)) if mint else None,
            users=self._guest(),
            backend=site.fit.backend if site else "bwrap",
            lacks=tuple(site.fit.lacks) if site else (),
        )

    def _guest(self) -> OneGuest | None:
        entrance = self._room.entrance
        return OneGuest(entrance.name, entrance.password, self._persona) if entrance else None

    def _open(self, gate: app.Gate, doors: Doors) -> None:
        handover = self._room.handover
        doors.open(handover.listeners if handover else ())
        if self._room.entrance is not None:
            gate.open(self._room.entrance.sock, Door(None))
        if self._session.relay is not None:
            gate.open(self._session.relay.sock, Door(self._persona, frozenset({os.getuid()})))

    def _publish(self, gate: app.Gate, loop: asyncio.AbstractEventLoop) -> Publisher | None:
        openings = self._session.openings
        if not openings or self._room.connector is None:
            return None
        publisher = Publisher(self._room.connector, gate.traffic.pipes, loop)
        for opening in openings:
            publisher.open(opening)
        return publisher

    def _report_start(self) -> None:
        missing = self._room.handover.missing if self._room.handover else ()
        for line in (*missing, *self._warnings, *self._session.plan.warnings):
            self._say(f"warning: {line}")
        if self._session.options.verbose:
            for note in self._session.plan.notes:
                self._say(note)

    def _report_end(self, audit: Audit, watch: Watching) -> None:
        options = self._session.options
        if watch.timed_out:
            self._say(f"error: the command was ended after {options.resources.timeout:g} s")
            self._say("hint: give it longer with --timeout SECONDS")
        if watch.could_not_run:
            self._say(f"error: {options.command[0]!r} cannot be executed")
            self._say("hint: see what is said above; for a script, whether the program in its first line is there")
        for path in self._room.changed():
            self._say(f"warning: {path} is protected, and was changed")
        if (audit.tally.blocked and not options.quiet) or options.verbose:
            where = f" --audit {options.audit}" if options.audit else ""
            self._say(f"{audit.tally} (egress audit --session {audit.session}{where})")

    def _say(self, message: str) -> None:
        """The terminal is raw while the command runs: a line needs its own return."""
        end = "\r\n" if self._terminal is not None and not self._terminal.is_restored else "\n"
        text = "".join(f"egress: {line}{end}" for line in message.splitlines())
        with suppress(OSError):  # nobody reads it any more, and the command goes on
            os.write(2, text.encode(errors="replace"))
