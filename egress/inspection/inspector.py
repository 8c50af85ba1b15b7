"""The gate's side of inspection: an engine in a process of its own, kept running, and what it asks answered.

A connection is handed over with its ClientHello read and its target fixed. From then on the engine asks
about each request before it goes anywhere, and asks for each upstream connection. If it dies, what it held
is cut off and a new one is started with the same authority; meanwhile nothing that needs it passes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from egress import enginestart, tlsguard
from egress.attribution import ends_of
from egress.counts import ENGINE, GATE
from egress.enginestart import Config, Started
from egress.gateway import Gateway
from egress.inspection.carried import Carried
from egress.inspection.channel import Channel
from egress.inspection.messages import Closed, Open, Ready, ToGate
from egress.passage import Passage
from egress.refusals import Reason, Refused

_PATIENCE = 20.0  # for an engine that is being started
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0


class Inspector:
    """Starts its engine when made."""

    def __init__(self, gate: Gateway, config: Config, report: Callable[[str], None]) -> None:
        self._gate, self._config, self._report = gate, config, report
        self._held: dict[int, Carried] = {}
        self._last = 0
        self._delay = _FIRST_DELAY
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._ready: asyncio.Future[None] = gate.loop.create_future()
        self._adopt(self._start())

    def check(self, passage: Passage) -> None:
        """A rule may be newer than the certificate, which the sandbox was made with."""
        host, names = passage.target.host, self._config.names
        if names and not any(host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in names):
            raise Refused(Reason.INSPECTION_UNAVAILABLE, "its rule is newer than the sandbox: start that anew")

    async def take(self, passage: Passage) -> str:
        """Serve a client whose TLS must be opened, to its end."""
        gate, client = self._gate, passage.client
        await tlsguard.hear(client, passage.target.host, gate.limits)
        await self._wait_until_ready()
        self._last += 1
        ends = ends_of(client.sock) if gate.attribution is not None else None
        carried = self._held[self._last] = Carried(gate, passage, self._channel, self._last, ends)
        passage.carrier = carried
        self._channel.send(Open(self._last, *passage.target, bytes(client.buffer)), client.surrender())
        return await carried.done

    def close(self) -> None:
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()
        self._bury()

    async def _wait_until_ready(self) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), _PATIENCE)
        except TimeoutError:
            refused = Refused(Reason.INSPECTION_UNAVAILABLE, "it did not start in time")
            refused.told = True  # there is no protocol left to tell it in
            raise refused from None

    def _start(self) -> Started:
        counts = self._gate.desk.uploads.counts
        config = self._config._replace(column=counts.column - GATE + ENGINE, columns=counts.columns)
        return enginestart.start(config, counts.fd)

    def _adopt(self, started: Started) -> None:
        self._pid = started.pid
        self._channel = Channel(started.line, self._gate.loop, ToGate, self._hear, self._lost)

    def _hear(self, message: ToGate, _fd: int | None) -> None:
        if isinstance(message, Ready):
            self._config = self._config._replace(key=message.key, certificate=message.certificate)
            self._delay = _FIRST_DELAY
            if not self._ready.done():
                self._ready.set_result(None)
        elif (carried := self._held.get(message.conn)) is not None:  # or it was over before this was said
            carried.hear(message)
            if isinstance(message, Closed):
                del self._held[message.conn]

    def _lost(self) -> None:
        """The engine is gone, and with it every connection it had."""
        held, self._held = self._held, {}
        for carried in held.values():
            carried.cut_off()
        if self._closing:
            return
        self._channel.close()
        self._bury()
        self._report("error: the engine that looks into requests ended; another is being started")
        if self._ready.done():
            self._ready = self._gate.loop.create_future()
        self._timer = self._gate.loop.call_later(self._delay, self._restart)
        self._delay = min(self._delay * 2, _LONGEST_DELAY)

    def _restart(self) -> None:
        try:
            self._adopt(self._start())
        except OSError as error:
            self._report(f"error: it could not be started: {error.strerror}")
            self._timer = self._gate.loop.call_later(_LONGEST_DELAY, self._restart)

    def _bury(self) -> None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
