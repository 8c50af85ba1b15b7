"""A passage: one request that was let in, from its decision to its end.

It knows its number in the log, its two sockets and its counts, and it is over exactly once. `Traffic`
is all of them: what a policy edit re-judges, what a stop ends, and what a sweep once a second checks
against the limits (which is why nothing on the path of a byte looks at a clock).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from egress.audit import Audit
from egress.auditrecords import Process
from egress.ledger import Row, alone
from egress.limits import LIMITS, Limits
from egress.model import Decision, Target, Verdict, Via
from egress.net.pipepool import Pipes
from egress.net.relay import Outcome, Relay
from egress.net.stream import Closed, Stream
from egress.net.upstream import Upstream
from egress.refusals import Reason, Refused
from egress.rules import Rule


class Carrier(Protocol):
    """What moves a passage's bytes: a relay, or those who look into its requests."""

    def counts(self) -> tuple[int, int]: ...
    def stop(self, outcome: Outcome) -> None: ...
    def lost_a_peer(self) -> bool: ...


class Passage:
    __slots__ = (
        "_audit", "_begun", "_idle", "_seen", "_stopped", "carrier", "client", "decision", "down", "ip", "number",
        "over", "persona", "process", "proxy", "request", "status", "target", "up", "upstream", "via",
    )  # fmt: skip

    def __init__(
        self,
        audit: Audit,
        persona: str,
        via: Via,
        target: Target,
        decision: Decision,
        client: Stream,
        now: float,
        request: tuple[str, str] | None = None,
    ) -> None:
        self.number = audit.next_id()
        self.persona, self.via, self.target, self.decision = persona, via, target, decision
        self.client = client
        self.request = request  # method and path as put on record, where it is looked into
        self.status: int | None = None  # of the answer to that
        self.process: Process | None = None  # that asked, where it was looked for
        self.upstream: Stream | None = None
        self.ip: str | None = None
        self.proxy: Upstream | None = None  # the operator's, where plain requests go through one
        self.carrier: Carrier | None = None
        self.up = self.down = 0
        self.over = False
        self._audit, self._begun = audit, now
        self._seen, self._idle = 0, now
        self._stopped: Outcome | None = None

    @property
    def rule(self) -> Rule:
        assert self.decision.rule is not None  # noqa: S101  # an allow has its rule
        return self.decision.rule

    @property
    def is_stopped(self) -> bool:
        return self._stopped is not None

    def connected(self, upstream: Stream, ip: str | None = None) -> Stream:
        """It has an upstream; Closed, if it was stopped on the way there."""
        self.upstream = upstream
        if self.is_stopped:
            raise Closed("stopped before it was connected")
        try:
            self.ip = ip or upstream.sock.getpeername()[0]
        except OSError:
            raise Refused(Reason.UNREACHABLE, "it closed the connection at once") from None
        return upstream

    def announce(self) -> None:
        """Put the decision on record; Refused if it was an allow and could not be."""
        try:
            self._record(self.decision)
        except Refused as refused:
            self._deny(refused)  # kept until it can be
            raise

    def refuse(self, refused: Refused, now: float) -> None:
        """It was allowed by name, and then something else was wrong: say so under the same number."""
        if refused.reason.is_failure:
            self.finish(refused.reason.value, now)
        elif not self.over:
            self.over = True
            self._deny(refused)
            self._audit.tally.allowed -= 1  # it had been counted as such
            if any(self.counts()):  # and what had gone by then is not lost from the log
                self._end(Outcome.REFUSED, now)

    def _deny(self, refused: Refused) -> None:
        self._record(Decision(Verdict.DENY, refused.reason, self.decision.rule))

    def _record(self, decision: Decision) -> None:
        self._audit.decision(self.number, self.persona, self.via, *self.target, decision, self.request, self.process)

    def finish(self, outcome: str, now: float) -> None:
        if not self.over:
            self.over = True
            self._end(self._stopped or outcome, now)

    def _end(self, outcome: str, now: float) -> None:
        up, down = self.counts()
        took = round((now - self._begun) * 1000)
        status = self.status if self.request is not None else None
        self._audit.end(self.number, self.persona, self.ip, up, down, took, outcome, status)

    def counts(self) -> tuple[int, int]:
        if self.carrier is None:
            return self.up, self.down
        up, down = self.carrier.counts()
        return self.up + up, self.down + down

    def stop(self, outcome: Outcome) -> None:
        """End it from outside; whoever drives it finds its sockets closed and writes the end."""
        self._stopped = outcome
        if self.carrier is not None:
            self.carrier.stop(outcome)
        else:
            self.client.abort()
            if self.upstream is not None:
                self.upstream.abort()

    def check(self, now: float, limits: Limits) -> None:
        """The once-a-second look: limits, and a peer that died unseen."""
        moved = sum(self.counts())
        if moved != self._seen:
            self._seen, self._idle = moved, now
        if now - self._begun > limits.lifetime:
            self.stop(Outcome.LIFETIME)
        elif now - self._idle > limits.idle:
            self.stop(Outcome.IDLE)
        elif self._peer_is_gone():
            self.stop(Outcome.RESET)

    def _peer_is_gone(self) -> bool:
        if self.carrier is not None:
            return self.carrier.lost_a_peer()
        return self.upstream is not None and _hung_up(self.client)


class Traffic:
    """Every open passage."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits = LIMITS, row: Row | None = None) -> None:
        self.pipes = Pipes()
        self._loop, self._limits = loop, limits
        self._open: set[Passage] = set()
        self._row = row or alone(limits.connections)
        self._timer = loop.call_later(1, self._sweep)

    def __len__(self) -> int:
        """Of this worker; `everywhere` of all."""
        return len(self._open)

    @property
    def everywhere(self) -> int:
        return self._row.ledger.open()

    @property
    def is_full(self) -> bool:
        """Whether this process has as many as it can have, or all workers have as many as they may."""
        return len(self._open) >= self._limits.connections or self._row.is_full()

    def enter(self, passage: Passage) -> None:
        self._open.add(passage)
        self._row.note_open(len(self._open))

    def leave(self, passage: Passage) -> None:
        self._open.discard(passage)
        self._row.note_open(len(self._open))

    async def relay(self, passage: Passage) -> Outcome:
        """Both ways, until both ends are done."""
        assert passage.upstream is not None  # noqa: S101  # it was let through to somewhere
        passage.carrier = relay = Relay(passage.client, passage.upstream, self.pipes, self._loop)
        return await relay.done

    def stop(self, outcome: Outcome, unless: Callable[[Passage], bool] = lambda _: False) -> int:
        """End all passages but those that `unless` holds for; how many were ended."""
        ended = [passage for passage in self._open if not unless(passage)]
        for passage in ended:
            passage.stop(outcome)
        return len(ended)

    def close(self) -> None:
        self._timer.cancel()
        self.stop(Outcome.STOPPED)
        self.pipes.close()

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(1, self._sweep)  # first: whatever happens, there is a next one
        now = self._loop.time()
        for passage in list(self._open):
            passage.check(now, self._limits)


def _hung_up(client: Stream) -> bool:
    """A client that waits for an answer and has closed its side has left (HTTP clients do not half-close)."""
    try:
        return not client.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
