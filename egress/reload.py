"""Policy edits, taken up while the gate runs.

Files are looked at once a second and on SIGHUP. A good edit replaces the policy at once, and what it no
longer allows is closed; a bad one changes nothing, and is reported and put on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import NamedTuple

from egress.counsel import is_open
from egress.gateway import Gateway
from egress.net.relay import Outcome
from egress.passage import Passage
from egress.policy import Policy
from egress.refusals import Reason

_EVERY = 1.0


class Shared(NamedTuple):
    """How a policy is taken up by one of several workers: one announces it, the others follow."""

    generation: Callable[[], int]  # of what was loaded last
    announces: bool = True
    taken: Callable[[], None] = lambda: None  # is called afterwards


class Reloader:
    """`load` gives the policy as the files have it now, or raises ValueError with what is wrong."""

    def __init__(
        self,
        gate: Gateway,
        load: Callable[[], Policy],
        fingerprint: Callable[[], Hashable],
        report: Callable[[str], None],
        shared: Shared | None = None,
    ) -> None:
        self._shared = shared or Shared(lambda: gate.live.generation + 1)
        self._gate, self._load, self._fingerprint, self._report = gate, load, fingerprint, report
        self._seen = fingerprint()
        self._task: asyncio.Task[None] | None = None
        self._timer = gate.loop.call_later(_EVERY, self._look)

    def now(self) -> None:
        """Read everything again, whether it looks changed or not."""
        if self._task is None or self._task.done():
            self._task = self._gate.loop.create_task(self._reload())

    def close(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _look(self) -> None:
        if self._fingerprint() != self._seen:
            self.now()
        self._timer = self._gate.loop.call_later(_EVERY, self._look)

    async def _reload(self) -> None:
        self._seen = self._fingerprint()  # before reading: an edit during the reading is another edit
        try:
            policy = await asyncio.to_thread(self._load)
        except ValueError as error:
            self._gate.audit.policy(self._gate.live.generation, str(error))
            self._report(f"error: the policy was not reloaded, the last good one stays in force\n{error}")
            return
        self._gate.live.replace(policy, self._shared.generation())
        if self._shared.announces:
            self._gate.audit.policy(self._gate.live.generation, None)
        closed = self._gate.traffic.stop(Outcome.REVOKED, unless=self._still_allowed)
        if closed or self._shared.announces:
            self._report(f"policy reloaded, generation {self._gate.live.generation}, {closed} connections closed by it")
        self._shared.taken()

    def _still_allowed(self, passage: Passage) -> bool:
        decision = self._gate.live.persona(passage.persona).decide(passage.target)
        if not decision.allowed or decision.rule is None:
            by_counsel = passage.decision.reason in (Reason.OBSERVED, Reason.ANSWERED)
            return by_counsel and is_open(passage.via, passage.target, decision)  # no file had allowed it before
        port, rule = passage.target.port, passage.rule
        needs_less = rule.private <= decision.rule.private
        # what was not checked, and what was not looked into, was not
        asks_more = decision.rule.expects_tls(port) > rule.expects_tls(port)
        return needs_less and not asks_more and decision.rule.needs_inspection <= rule.needs_inspection
