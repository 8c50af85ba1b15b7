"""A summary of the log as a table for a person: what was blocked, and then what was let through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from egress.advice import remedy
from egress.auditsummary import Row
from egress.commands.paper import Ink, Paper, visible
from egress.model import Host, Target
from egress.refusals import TABLE, Reason

_PORTS_SHOWN = 3
_PROGRAMS_SHOWN = 3
_LONGEST_PERSONA = 12
_SHORTEST_HOST = 16
_WORDS = {reason.value: told.sentence for reason, told in TABLE.items()}
_GAP = "  "
_CUT = "..."


class Column(NamedTuple):
    title: str
    is_number: bool = False


_COUNT, _HOST, _PORTS, _PERSONA = Column("COUNT", True), Column("HOST"), Column("PORTS"), Column("PERSONA")
_UP, _DOWN, _LAST = Column("UP", True), Column("DOWN", True), Column("LAST")
_BLOCKED = (_COUNT, _HOST, _PORTS, _PERSONA, _LAST)
_ALLOWED = (_COUNT, _HOST, _PORTS, _PERSONA, _UP, _DOWN, _LAST)


def blocked_section(rows: Sequence[Row], top: int, paper: Paper, now: datetime) -> Iterator[str]:
    yield paper.paint(f"blocked: {_totals(rows)}", Ink.BOLD)
    shown = rows[:top] if top else rows
    cells = [(_count(row), visible(row.host), ports_of(row), _persona(row), ago(row.last, now)) for row in shown]
    yield from _section(_BLOCKED, cells, [_why(row) for row in shown], Ink.RED, paper)
    yield from _more(rows[len(shown) :])


def allowed_section(rows: Sequence[Row], top: int, paper: Paper, now: datetime) -> Iterator[str]:
    up, down = sum(row.up for row in rows), sum(row.down for row in rows)
    carried = f", {volume(up)} up, {volume(down)} down" if rows else ""
    yield paper.paint(f"allowed: {_totals(rows)}{carried}", Ink.BOLD)
    shown = rows[:top] if top else rows
    cells = [
        (
            *(_count(row), visible(row.host), ports_of(row), _persona(row)),
            *(volume(row.up), volume(row.down), ago(row.last, now)),
        )
        for row in shown
    ]
    yield from _section(_ALLOWED, cells, [_how(row) for row in shown], Ink.GREEN, paper)
    yield from _more(rows[len(shown) :])


def sentence(row: Row, reason: str) -> str:
    """A reason in words; in its own word, where the log has one that we do not know."""
    if reason not in _WORDS:
        return visible(reason)
    target = str(Target(Host(row.host), min(row.ports))) if len(row.ports) == 1 else row.host
    return _WORDS[reason].format(target=visible(target) or "the target", persona=visible(row.persona) or "unknown")


def programs_of(row: Row) -> str:
    """`/usr/bin/curl (curl -s https://evil.example)`, and the others."""
    known = list((row.programs or {}).items())
    shown = [f"{exe} ({command})" if command and command != exe else exe for exe, command in known[:_PROGRAMS_SHOWN]]
    more = [_CUT] if len(known) > len(shown) else []
    return visible(", ".join([*shown, *more]))


def ports_of(row: Row) -> str:
    if not row.ports:
        return "dns" if row.asked else "-"
    ports = sorted(row.ports)
    more = [_CUT] if len(ports) > _PORTS_SHOWN else []
    return ",".join([*map(str, ports[: _PORTS_SHOWN - len(more)]), *more])


def ago(moment: str, now: datetime) -> str:
    """`5s ago`, `12m ago`, `3d ago`."""
    try:
        passed = now - datetime.fromisoformat(moment)
    except (ValueError, TypeError):  # no time, or one that does not say where
        return "?"
    for unit, length in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1))):
        if passed >= length:
            return f"{passed // length}{unit} ago"
    return f"{max(0, passed // timedelta(seconds=1))}s ago"


def volume(count: int) -> str:
    """`999 B`, `1.2 kB`, `12 kB`, `3.4 GB`."""
    amount, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while amount >= 999.5 and (larger := next(units, None)):
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}" if unit != "B" and amount < 9.95 else f"{amount:.0f} {unit}"


def _totals(rows: Sequence[Row]) -> str:
    if not rows:
        return "nothing"
    return f"{_many(sum(row.connections for row in rows), 'connection')}, {_many(len({r.host for r in rows}), 'host')}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _count(row: Row) -> str:
    return f"{row.count:,}"


def _persona(row: Row) -> str:
    name = visible(row.persona) or "-"
    return name if len(name) <= _LONGEST_PERSONA else name[: _LONGEST_PERSONA - len(_CUT)] + _CUT


def _why(row: Row) -> list[str]:
    lines = [sentence(row, row.reason), *_programs(row)]
    if not row.is_many:
        lines += [f"to allow: {visible(line)}" for line in remedy(row.host, row.ports, row.reason, row.rule)]
    return lines


def _programs(row: Row) -> list[str]:
    return [f"program: {programs_of(row)}"] if row.programs else []


def _how(row: Row) -> list[str]:
    """By what else than a rule it was let through, and what became of it."""
    lines = [f"{count:,} failed: {sentence(row, outcome)}" for outcome, count in (row.failures or {}).items()]
    lines += _programs(row)
    if not row.reason:
        return lines
    lifted = [] if row.is_many else remedy(row.host, row.ports, Reason.NOT_LISTED, None)
    return [sentence(row, row.reason), *lines, *(f"to allow: {visible(line)}" for line in lifted)]


def _more(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield f"and {_many(len(rows), 'row')} more (--top 0 shows all)"


def _section(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], below: Iterable[list[str]], ink: Ink, paper: Paper
) -> Iterator[str]:
    if not cells:
        return
    widths = _widths([[column.title for column in columns], *cells], paper)
    yield _line([column.title for column in columns], columns, widths, Ink.PLAIN, paper)
    for row, lines in zip(cells, below, strict=True):
        yield _line(row, columns, widths, ink, paper)
        for line in lines:
            yield from _detail(line, widths[0] + len(_GAP), paper)


def _detail(line: str, indent: int, paper: Paper) -> list[str]:
    """What is for pasting stays on one line, however long."""
    return [" " * indent + line] if line.startswith("to allow: ") else paper.indented(line, indent)


def _widths(rows: Iterable[Sequence[str]], paper: Paper) -> list[int]:
    """As wide as what stands there; the host gives way where that is wider than the paper."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if paper.width is not None:
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - paper.width
        widths[1] = min(widths[1], max(_SHORTEST_HOST, widths[1] - max(0, excess)))
    return widths


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], ink: Ink, paper: Paper) -> str:
    padded = [
        _fit(cell, width).rjust(width) if column.is_number else _fit(cell, width).ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return _GAP.join([padded[0], paper.paint(padded[1], ink), *padded[2:]]).rstrip()


def _fit(text: str, width: int) -> str:
    """The end of a name says whose it is, so it is cut at its start."""
    return text if len(text) <= width else _CUT + text[len(text) - width + len(_CUT) :]
