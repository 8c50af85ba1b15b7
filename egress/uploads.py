"""How much was sent: by a request, and by a session to the hosts of a rule."""

from __future__ import annotations

import os
from typing import NamedTuple

from egress.counts import SLOTS, Counts
from egress.refusals import Reason, Refused
from egress.rules import Rule


class Budget(NamedTuple):
    """What is left to a request, by itself and of its session's; `slot` is where the session is counted."""

    request: int | None
    session: int | None
    slot: int


class Meter:
    """The uploads of one request against its budget."""

    __slots__ = ("_budget", "_counts", "sent")

    def __init__(self, budget: Budget, counts: Counts) -> None:
        self._budget, self._counts, self.sent = budget, counts, 0

    def expect(self, size: int) -> None:
        """Refused, if this much more would be too much."""
        request, session, slot = self._budget
        if request is not None and self.sent + size > request:
            raise Refused(Reason.UPLOAD_LIMIT, f"at most {request} bytes in one request")
        if session is not None and self._counts.total(slot) + size > session:
            raise Refused(Reason.UPLOAD_LIMIT, f"at most {session} bytes in one session")

    def add(self, size: int) -> None:
        """Count what is about to be sent, unless it is too much."""
        self.expect(size)
        self.sent += size
        if self._budget.session is not None:
            self._counts.add(self._budget.slot, size)


class Uploads:
    """The gate's side: slots are given out here, one for the hosts of a pattern and persona."""

    def __init__(self, counts: Counts | None = None) -> None:
        self._counts = counts
        self._slots: dict[tuple[str, str], int] = {}

    @property
    def counts(self) -> Counts:
        """Made when first needed, unless an engine has them already."""
        if self._counts is None:
            self._counts = Counts.make(SLOTS)
        return self._counts

    def budget(self, persona: str, rule: Rule) -> Budget | None:
        limit = rule.requests and rule.requests.upload_limit
        if not limit:
            return None
        slot = -1 if limit.session is None else self._slot(persona, rule)
        return Budget(limit.request, limit.session, slot)

    def close(self) -> None:
        if self._counts is not None:
            self._counts.close()
            os.close(self._counts.fd)

    def _slot(self, persona: str, rule: Rule) -> int:
        key = persona, str(rule.pattern)
        if key not in self._slots:
            slot = self.counts.slot(" ".join(key))
            if slot is None:
                raise Refused(Reason.LIMIT, "more rules with an upload limit for a session than can be counted")
            self._slots[key] = slot
        return self._slots[key]
