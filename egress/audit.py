"""The audit trail: JSON Lines, appended whole, with one write(2) for a record or for several.

Nothing passes unlogged: an allow that cannot be written is refused instead (`audit_unavailable`).
Records about what is already over (ends, denials) cannot be refused; while the log is unavailable they
wait in a bounded queue and are written first when it is back, so an outage shortens the log only if
it outlasts the queue, and then a `gap` record says by how much. Ends may wait in that queue also for others of
the same turn of the event loop, and go with them or with the next decision, whichever comes first.

Each record first makes sure that the file it holds open is still the one at its path. So rotation by
rename needs no signal, and a log that was deleted, or replaced by a symlink, a FIFO or a directory, is
noticed before the next connection is let through rather than after.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import count

import msgspec
from msgspec import UNSET

from egress.auditrecords import DecisionRecord, EndRecord, FloodRecord, GapRecord, PolicyRecord, Process, Record
from egress.logfile import Cut, LogFile
from egress.model import Decision, Verdict, Via
from egress.refusals import Reason, Refused
from egress.tally import Tally

_WAITING = 4096
_HOST_LENGTH = 300


class Audit:
    """One file, one session. `path` may be shared with other gates: appends do not mix."""

    def __init__(
        self,
        path: str,
        session: str,
        report: Callable[[str], None] = lambda _: None,
        soon: Callable[[Callable[[], None]], object] = lambda call: call(),
        backend: str = "",
        lacks: tuple[str, ...] = (),
        next_id: Callable[[], int] | None = None,
    ) -> None:
        self.path = path
        self._report = report
        self._soon = soon  # calls something when this turn is over
        self._due = False  # it has been asked to
        self.session = session
        self._backend, self._lacks = backend or UNSET, lacks or UNSET
        self.next_id = next_id or count(1).__next__
        self.failing: str | None = None  # why the last write failed, while it does
        self.elsewhere: dict[int, str | None] = {}  # the same of other workers, where it is known
        self._encode = msgspec.json.Encoder().encode
        self._file = LogFile(path)
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self.tally = Tally()
        self._readers: list[Callable[[Record], None]] = []

    def subscribe(self, reader: Callable[[Record], None]) -> Callable[[], None]:
        """Show every record from now on to `reader`, once it is written or kept; call the result to end that."""
        self._readers.append(reader)
        return lambda: self._readers.remove(reader)

    @property
    def trouble(self) -> str | None:
        """Why the log cannot be written, by this worker or any other."""
        return self.failing or next(filter(None, self.elsewhere.values()), None)

    def decision(
        self,
        number: int,
        persona: str,
        via: Via,
        host: str,
        port: int | None,
        decision: Decision,
        request: tuple[str, str] | None = None,
        process: Process | None = None,
    ) -> None:
        """Write a verdict down. An allow is on its way to the disk when this returns, or refused."""
        rule = None if decision.rule is None else str(decision.rule)
        method, path = request or (UNSET, UNSET)
        record = DecisionRecord(
            ts=timestamp(), session=self.session, persona=persona, id=number,
            backend=self._backend, lacks=self._lacks,
            via=via, host=host, port=port, verdict=decision.verdict, reason=decision.reason, rule=rule,
            would_deny=decision.would_deny or UNSET, method=method, path=path, process=process or UNSET,
        )  # fmt: skip
        if decision.verdict is Verdict.ALLOW:
            self._must_write(record)
            self.tally.allow()
        else:
            self._write_or_keep(record)
            if via is not Via.DNS:  # the connection that follows is what counts
                self.tally.deny(host)

    def flood(self, number: int, persona: str, host: str, decision: Decision, count: int) -> None:
        """Sum up denials of the nameserver that would drown the log one by one."""
        record = FloodRecord(
            ts=timestamp(), session=self.session, persona=persona, id=number,
            backend=self._backend, lacks=self._lacks, via=Via.DNS, host=host, port=None,
            verdict=decision.verdict, reason=decision.reason, rule=None, count=count,
        )  # fmt: skip
        self._write_or_keep(record)

    def end(
        self,
        number: int,
        persona: str,
        ip: str | None,
        up: int,
        down: int,
        ms: int,
        outcome: str,
        status: int | None = None,
    ) -> None:
        record = EndRecord(
            ts=timestamp(), session=self.session, persona=persona, id=number,
            backend=self._backend, lacks=self._lacks,
            ip=ip, up=up, down=down, ms=ms, outcome=outcome, status=status or UNSET,
        )  # fmt: skip
        self._keep(record)
        if not self._due:
            self._due = True
            self._soon(self._flush_if_due)
        self.show(record)

    def policy(self, generation: int, error: str | None) -> None:
        self._write_or_keep(
            PolicyRecord(
                ts=timestamp(),
                session=self.session,
                persona="",
                id=self.next_id(),
                backend=self._backend,
                lacks=self._lacks,
                generation=generation,
                error=error,
            )
        )

    def probe(self) -> None:
        """Refused, if the log cannot be opened now."""
        try:
            self._file.ready()
        except OSError as error:
            raise Refused(Reason.AUDIT_UNAVAILABLE, f"{self.path}: {error.strerror or error}") from None

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _must_write(self, record: Record) -> None:
        try:
            if self._lost:
                self._drain()
            self._drain(self._encode(record) + b"\n")
        except OSError as error:
            raise self._unavailable(error) from None
        self._available()
        self.show(record)

    def _write_or_keep(self, record: Record) -> None:
        self._keep(record)
        self._flush()
        self.show(record)

    def _keep(self, record: Record) -> None:
        self._waiting.append(self._encode(record) + b"\n")
        if len(self._waiting) > _WAITING:
            self._waiting.popleft()
            self._lost += 1

    def _flush_if_due(self) -> None:
        self._due = False
        if self._waiting:  # a decision may have taken them along
            self._flush()

    def show(self, record: Record) -> None:
        """Also those that another worker of the gate has written."""
        for reader in self._readers:
            reader(record)

    def _flush(self) -> None:
        try:
            self._drain()
            self._available()
        except OSError as error:
            self._unavailable(error)

    def _drain(self, *last: bytes) -> None:
        """Write what waits, and these."""
        if lines := (*self._waiting, *last):
            try:
                self._file.append(lines)
            except Cut as cut:
                for _ in range(cut.whole):
                    self._waiting.popleft()
                raise
            self._waiting.clear()
        if self._lost:
            gap = GapRecord(
                ts=timestamp(), session=self.session, persona="", id=self.next_id(),
                backend=self._backend, lacks=self._lacks, lost=self._lost,
            )  # fmt: skip
            self._file.append((self._encode(gap) + b"\n",))
            self._lost = 0

    def _unavailable(self, error: OSError) -> Refused:
        words = error.strerror or str(error)
        if self.failing is None:
            self._report(f"error: nothing passes: the audit log {self.path} cannot be written: {words}")
        self.failing = words
        return Refused(Reason.AUDIT_UNAVAILABLE, f"{self.path}: {words}")

    def _available(self) -> None:
        if self.failing is not None:
            self._report(f"the audit log {self.path} can be written again")
        self.failing = None


_second, _prefix = -1, ""


def timestamp() -> str:
    """Now, as 2026-11-18T06:00:00.123456Z; the calendar is worked out once a second."""
    global _second, _prefix  # a cache of one value
    micros = time.time_ns() // 1000
    second, micros = divmod(micros, 1_000_000)
    if second != _second:
        _second, _prefix = second, time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
    return f"{_prefix}{micros:06d}Z"


def printable(text: str, length: int = _HOST_LENGTH) -> str:
    """What a client wrote, as ASCII on one line, however it tried to break out of it."""
    return ascii(text[:length])[1:-1]  # not a codec: its first use imports, which fails without descriptors
