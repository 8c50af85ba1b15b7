"""A summary of the log for a spreadsheet: one line per row, nothing cut."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TextIO

from egress.advice import words_for
from egress.auditsummary import Row
from egress.commands.paper import visible
from egress.model import Verdict

_HEAD = (
    "verdict", "host", "ports", "persona", "reason", "connections", "questions", "up", "down", "first", "last",
    "program", "rule", "allow",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@")


def write(blocked: Iterable[Row], allowed: Iterable[Row], file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_HEAD)
    for verdict, rows in ((Verdict.DENY, blocked), (Verdict.ALLOW, allowed)):
        writer.writerows(map(_cell, _values(verdict, row)) for row in rows)


def _values(verdict: Verdict, row: Row) -> tuple[str | int, ...]:
    words = [] if row.is_many else words_for(row.host, row.ports, row.reason)
    return (
        *(verdict, row.host, " ".join(map(str, sorted(row.ports))), row.persona, row.reason),
        *(row.connections, row.asked, row.up, row.down, row.first, row.last),
        *(", ".join(row.programs or ()), row.rule or "", " ".join(words)),
    )


def _cell(value: str | int) -> str | int:
    """A spreadsheet runs what looks like a formula, and a host is what a stranger typed: a quote keeps it text."""
    if isinstance(value, int):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
