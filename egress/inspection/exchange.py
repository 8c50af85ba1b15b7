"""One request that was asked about, and its answer: what was decided, and what has passed so far.

The engine tells the gate exactly once how an allowed request ended.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from egress.counts import Counts
from egress.inspection.messages import Budget, Done, Verdict
from egress.inspection.replies import Reply
from egress.wire.masking import Inflated, Masker

EXCHANGE = "egress"  # where a flow has its own


class Outcome(StrEnum):
    CLOSED = "closed"
    RESET = "reset"
    REFUSED = "refused"
    UNREACHED = "unreached"
    BAD_RESPONSE = "bad_response"
    BAD_CERTIFICATE = "bad_certificate"


class Exchange:
    __slots__ = (
        "_budget", "_counts", "_inflated", "_tell", "allowed", "answered", "conn", "down", "is_over", "masker",
        "number", "refusal", "status", "up", "whole",
    )  # fmt: skip

    def __init__(self, conn: int, number: int, counts: Counts, tell: Callable[[Done], None]) -> None:
        self.conn, self.number = conn, number
        self.allowed = self.answered = self.is_over = False
        self.whole = True  # nothing of the request is to come
        self.refusal: Reply | None = None  # what the client is told instead of an answer of the server's
        self.status: int | None = None
        self.up = self.down = 0
        self.masker: Masker | None = None
        self._inflated: Inflated | None = None
        self._budget: Budget | None = None
        self._counts, self._tell = counts, tell

    def decided(self, verdict: Verdict) -> None:
        if verdict.status:
            self.refusal = Reply(verdict.status, tuple(verdict.fields), verdict.body)
            return
        self.allowed = True
        self._budget = verdict.budget
        if any(verdict.mask):
            self.masker = Masker(verdict.mask)

    def may_send(self, size: int) -> bool:
        """Count what is about to go up; False if that would be more than may."""
        self.up += size
        budget = self._budget
        if budget is None:
            return True
        if budget.request is not None and self.up > budget.request:
            return False
        if budget.slot < 0:
            return True
        if budget.session is not None and self._counts.total(budget.slot) + size > budget.session:
            return False
        self._counts.add(budget.slot, size)
        return True

    def inflate(self) -> None:
        """The answer comes compressed, and must be looked through."""
        self._inflated = Inflated()

    def download(self, piece: bytes) -> bytes | list[bytes]:
        """A piece of the answer's body as the client may see it; an empty one is its end (mitmproxy's convention)."""
        if self.masker is not None:
            piece = self._looked_through(self.masker, piece)
        self.down += len(piece)
        return piece or []  # an empty chunk would read as the end of a chunked body

    def _looked_through(self, masker: Masker, piece: bytes) -> bytes:
        if self._inflated is None:
            return masker.feed(piece)
        if not piece:
            self._inflated.finish()
            return masker.feed(b"")
        inflated = self._inflated.feed(piece)
        return masker.feed(inflated) if inflated else b""  # which is not yet the end

    def finish(self, outcome: Outcome) -> None:
        if self.allowed and not self.is_over:
            self._tell(Done(self.conn, self.number, self.status, self.up, self.down, outcome.value))
        self.is_over = True
