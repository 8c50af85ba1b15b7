"""Which records are wanted.

Every record has a session, a persona and a time of its own. A host and a verdict only decisions have: what
else a connection left behind goes with the decision that let it through. A time is compared as text, which
is what its one spelling (UTC, all digits written out) is for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from egress.auditread import Entry, Passages, Recent
from egress.model import Host, Verdict
from egress.rules import Pattern

_AGO = re.compile(r"(?:[0-9]+[smhdw])+")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST_SESSIONS = 50_000

Test = Callable[[Entry], bool]


class Selection(NamedTuple):
    """What was asked for; None and the empty text ask for nothing in particular."""

    session: str | None = None
    persona: str | None = None
    since: str = ""
    until: str = ""
    host: Pattern | None = None
    port: int | None = None
    verdict: Verdict | None = None

    def sift(self, entries: list[Entry]) -> list[Entry]:
        """Those wanted, whatever their verdict. Of other records than decisions, all that may belong to one."""
        for test in self.about_all():
            entries = list(filter(test, entries))
        for test in self.about_target():
            entries = [entry for entry in entries if entry.event != "decision" or test(entry)]
        return entries

    def about_all(self) -> Iterator[Test]:
        session, persona, since, until = self[:4]
        if session is not None:
            yield lambda entry: entry.session == session
        if persona is not None:
            yield lambda entry: entry.persona == persona
        if since:
            yield lambda entry: entry.ts >= since
        if until:
            yield lambda entry: entry.ts < until

    def about_target(self) -> Iterator[Test]:
        pattern, port = self.host, self.port
        if pattern is not None:
            yield lambda entry: pattern.matches(Host(entry.host))  # canonical, or it matches nothing
        if port is not None:
            yield lambda entry: entry.port == port


class Sieve:
    """Takes records one by one, and the end of a connection with its beginning."""

    def __init__(self, selection: Selection) -> None:
        self._about_all = tuple(selection.about_all())
        self._about_decisions = (*selection.about_target(), *_about_verdict(selection.verdict))
        self._passages = Passages[bool]()

    def takes(self, entry: Entry) -> bool:
        if not all(test(entry) for test in self._about_all):
            return False
        if not self._about_decisions:
            return True
        if entry.event == "end":
            return self._passages.end(entry) is not None
        if entry.event != "decision" or not all(test(entry) for test in self._about_decisions):
            return False
        self._passages.begin(entry, True)
        return True


def _about_verdict(verdict: Verdict | None) -> Iterator[Test]:
    if verdict is not None:
        yield lambda entry: entry.verdict == verdict


def newest_session(batches: Iterable[list[Entry]], persona: str | None) -> str | None:
    """The one that began last, of those of a persona if one is given."""
    seen: Recent[str, bool] = Recent(_MOST_SESSIONS)
    newest = None
    for entry in (entry for entries in batches for entry in entries):
        if entry.session not in seen and persona in (None, entry.persona):
            seen.put(entry.session, True)
            newest = entry.session
    return newest


def parse_moment(text: str, now: datetime) -> str:
    """`30m`, `2h` or `1d12h` ago, or a time in ISO 8601, local unless it says otherwise; as the log writes it."""
    try:
        moment = now - _span(text) if _AGO.fullmatch(text) else datetime.fromisoformat(text)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is neither a time ago, such as 30m, 2h or 3d, nor a time, such as 2026-11-18T06:00"
        ) from None


def _span(text: str) -> timedelta:
    parts = re.findall("([0-9]+)([smhdw])", text)
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())
