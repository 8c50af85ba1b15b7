"""What `egress watch` shows, as lines for a terminal of some size. It only computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime

from egress.auditread import Entry
from egress.commands.paper import Ink, Paper, visible
from egress.commands.watchsource import Asked, News, Pending, State
from egress.model import Host, Target, Verdict

KEPT = 1000
ARMED_AFTER = 0.4  # seconds for which a question has stood there before a key can answer it
_NARROW = 60
_ANSWERS = "y once  s session  a always  n no"
_FOOT = "q quit  b blocked only  space hold  Tab next question"


class Board:
    """The newest decisions, and the question that keys answer."""

    def __init__(self) -> None:
        self.blocked_only = False
        self.held = False
        self.notice = ""
        self.state: State | None = None
        self.asked: list[Pending] = []
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._waiting: list[Entry] = []  # that came while the list was held still
        self._allowed = self._blocked = 0
        self._chosen: int | None = None
        self._since = 0.0

    def take(self, news: News, now: float) -> None:
        if isinstance(news, State):
            self.state = news
        elif isinstance(news, Asked):
            self._ask(news.pending, now)
        else:
            self._note(entry for entry in news if entry.event == "decision")

    def forget_gate(self) -> None:
        """It has ended: nothing waits for an answer any more."""
        self.state, self.asked = None, []

    def hold(self) -> None:
        self.held = not self.held
        self._entries.extend(self._waiting)
        self._waiting.clear()

    @property
    def question(self) -> Pending | None:
        return next((each for each in self.asked if each.id == self._chosen), None)

    def armed(self, now: float) -> Pending | None:
        """The question, once a key can be meant for it."""
        return self.question if now - self._since >= ARMED_AFTER else None

    def next_question(self, now: float) -> None:
        numbers = [each.id for each in self.asked]
        if self._chosen in numbers:
            self._choose(numbers[(numbers.index(self._chosen) + 1) % len(numbers)], now)

    def lines(self, columns: int, rows: int, paper: Paper, now: float, clock: float) -> list[str]:
        """`now` is for how long things stand there, `clock` is the time of day."""
        top = [*self._head(columns, paper), *self._asking(columns, paper, now, clock)]
        room = max(0, rows - len(top) - 2)
        shown = [entry for entry in self._entries if not self.blocked_only or entry.verdict == Verdict.DENY]
        table = [_row(entry, columns, paper) for entry in shown[max(0, len(shown) - room) :]] if room else []
        filler = [""] * (room - len(table))
        return [*top, paper.paint(_titles(columns), Ink.BOLD), *table, *filler, self._foot(columns)][:rows]

    def _note(self, entries: Iterator[Entry]) -> None:
        for entry in entries:
            allowed = entry.verdict == Verdict.ALLOW
            self._allowed += allowed
            self._blocked += not allowed
            (self._waiting if self.held else self._entries).append(entry)
        del self._waiting[:-KEPT]

    def _ask(self, pending: list[Pending], now: float) -> None:
        self.asked = pending
        if self.question is None and pending:
            self._choose(pending[0].id, now)

    def _choose(self, number: int, now: float) -> None:
        self._chosen, self._since = number, now

    def _head(self, columns: int, paper: Paper) -> Iterator[str]:
        allowed, blocked = (self.state.allowed, self.state.blocked) if self.state else (self._allowed, self._blocked)
        counts = f"{allowed} allowed  {blocked} blocked"
        if self.state:
            counts += f"  {self.state.open} open"
        yield paper.paint(_spread(visible(self.notice), counts, columns), Ink.BOLD)
        if self.state and self.state.failing:
            words = f"nothing passes: the audit log cannot be written: {visible(self.state.failing)}"
            yield paper.paint(words[:columns], Ink.RED)

    def _asking(self, columns: int, paper: Paper, now: float, clock: float) -> Iterator[str]:
        question = self.question
        if question is None:
            return
        left = max(0, round(question.deadline - clock))
        place = f"{[each.id for each in self.asked].index(question.id) + 1} of {len(self.asked)}"
        target = str(Target(Host(visible(question.host)), question.port))
        waiting = "1 connection waits" if question.count == 1 else f"{question.count} connections wait"
        keys = _ANSWERS if self.armed(now) else ""
        yield paper.paint(_spread(f"? may {visible(question.persona)} reach {target}", place, columns), Ink.BOLD)
        yield f"  {visible(question.reason)}; {waiting}, {left} s left"[:columns]
        yield paper.paint(f"  {keys}"[:columns], Ink.BOLD)

    def _foot(self, columns: int) -> str:
        words = _FOOT if self.asked else _FOOT.rpartition("  ")[0]
        held = f"held, {len(self._waiting)} more" if self.held else "blocked only" if self.blocked_only else ""
        return _spread(words, held, columns)


def _titles(columns: int) -> str:
    return _line("TIME", "", "HOST", "PERSONA", "WHY", columns)


def _row(entry: Entry, columns: int, paper: Paper) -> str:
    """Its colours are put on last: they take no room."""
    allowed = entry.verdict == Verdict.ALLOW
    word = "allowed" if allowed else "blocked"
    host = visible(entry.host) or "-"
    target = host if entry.port is None else str(Target(Host(host), entry.port))
    line = _line(_time(entry.ts), word, target, visible(entry.persona), visible(entry.reason), columns)
    return line.replace(word, paper.paint(word, Ink.GREEN if allowed else Ink.RED), 1)


def _line(time: str, verdict: str, host: str, persona: str, why: str, columns: int) -> str:
    if columns < _NARROW:
        return f"{time[:8]:8} {verdict:7} {_cut(host, max(8, columns - 17))}"[:columns]
    why_room = 18 if columns < 100 else 24
    room = columns - 8 - 7 - 12 - why_room - 5
    return f"{time[:8]:8} {verdict:7} {_cut(host, room):{room}}  {persona[:12]:12} {why[:why_room]}"[:columns]


def _cut(text: str, room: int) -> str:
    """A long name says least at its start."""
    return text if len(text) <= room else "~" + text[len(text) - room + 1 :]


def _spread(left: str, right: str, columns: int) -> str:
    gap = columns - len(left) - len(right)
    return f"{left}{' ' * gap}{right}" if gap > 0 else f"{left} {right}"[:columns]


def _time(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError):
        return visible(moment)
