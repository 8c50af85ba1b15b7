"""A log in short: for each host what was refused and what was let through.

A connection counts once, by the last word on it: an allow that was followed by a denial under the same id
is a denial. A question to the nameserver counts only where no connection came after it.

There are only so many rows. A flood of names is one more thing that a log is full of, so past that number a
name is counted with the others below its parent, as `*.evil.example`, and past twice that number with all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from egress.auditread import Entry, Passages, Process
from egress.floods import parent_of
from egress.model import Verdict
from egress.refusals import Reason

MOST_ROWS = 10_000
MOST_PORTS = 16  # of one row; who asks for more is looking for an open one
_MOST_PROGRAMS = 4
_MOST_WALLS = 16
_LIFTED = frozenset({Reason.OBSERVED.value, Reason.ANSWERED.value})  # let through, though no rule allowed it
_FAILURES = frozenset(reason.value for reason in Reason if reason.is_failure)


class Row:
    """One host as one persona asked for it, and one reason, where it was refused or no rule had allowed it."""

    __slots__ = (
        "asked", "connections", "down", "failures", "first", "host", "is_many", "last", "persona", "ports",
        "programs", "reason", "rule", "up",
    )  # fmt: skip

    def __init__(self, host: str, persona: str, reason: str, first: str, is_many: bool) -> None:
        self.host, self.persona, self.reason = host, persona, reason
        self.is_many = is_many  # it stands for more names than there were rows for
        self.first = self.last = first
        self.connections = self.asked = self.up = self.down = 0
        self.ports: set[int] = set()
        self.rule: str | None = None
        self.failures: Counter[str] | None = None  # these two are rare, and rows are many
        self.programs: dict[str, str] | None = None  # what was run, by executable

    @property
    def count(self) -> int:
        """Connections, or, where none followed, questions to the nameserver."""
        return self.connections or self.asked

    def note(self, entry: Entry) -> None:
        if entry.via == "dns":
            self.asked += 1
        else:
            self.connections += 1
        if entry.port is not None and len(self.ports) < MOST_PORTS:
            self.ports.add(entry.port)
        self.last = max(self.last, entry.ts)
        self.rule = entry.rule
        if entry.process is not None:
            self._note_program(entry.process)

    def end(self, entry: Entry) -> None:
        self.up += entry.up
        self.down += entry.down
        if entry.outcome in _FAILURES:
            self.failures = self.failures or Counter()
            self.failures[entry.outcome] += 1

    def _note_program(self, process: Process) -> None:
        self.programs = {} if self.programs is None else self.programs
        name = process.exe or process.command or f"pid {process.pid}"
        if name in self.programs or len(self.programs) < _MOST_PROGRAMS:
            self.programs[name] = process.command or ""


class Rows:
    """The rows of one verdict."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Row] = {}

    def of(self, entry: Entry, reason: str = "") -> Row:
        key = (entry.host, entry.persona, reason)
        row = self._rows.get(key)
        if row is None:
            row = self._rows.get(key := self._place(*key))
        if row is None:
            row = self._rows[key] = Row(*key, entry.ts, is_many=len(self._rows) >= MOST_ROWS)
        return row

    def ranked(self) -> list[Row]:
        """The most frequent first, and of those the latest."""
        rows = (row for row in self._rows.values() if row.count > 0)
        return sorted(rows, key=lambda row: (row.count, row.last), reverse=True)

    def _place(self, host: str, persona: str, reason: str) -> tuple[str, str, str]:
        """Where a host is counted that has no row."""
        if len(self._rows) < MOST_ROWS:
            return host, persona, reason
        key = (f"*.{parent_of(host)}", persona, reason)
        return key if key in self._rows or len(self._rows) < 2 * MOST_ROWS else ("*", "", "")


class Summary:
    def __init__(self) -> None:
        self.lost = 0  # records that the gate could not write
        self.weaker: dict[tuple[str, tuple[str, ...]], None] = {}  # backends that did not enforce all, and what not
        self._blocked, self._allowed = Rows(), Rows()
        self._open = Passages[Row]()

    @property
    def blocked(self) -> list[Row]:
        return self._blocked.ranked()

    @property
    def allowed(self) -> list[Row]:
        return self._allowed.ranked()

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.event == "decision":
                self._decision(entry)
            elif entry.event == "end":
                if (row := self._open.end(entry)) is not None:
                    row.end(entry)
            elif entry.event == "gap":
                self.lost += entry.lost

    def _decision(self, entry: Entry) -> None:
        if entry.verdict == Verdict.ALLOW:
            row = self._allowed.of(entry, entry.reason if entry.reason in _LIFTED else "")
            self._open.begin(entry, row)
        else:
            if (taken_back := self._open.end(entry)) is not None:
                taken_back.connections -= 1
            row = self._blocked.of(entry, entry.reason)
        row.note(entry)
        if entry.lacks and len(self.weaker) < _MOST_WALLS:
            self.weaker[entry.backend, entry.lacks] = None
