"""What was measured, as values, and what may be said of it.

A machine that others share has good and bad minutes, so no time means anything by itself. The contestants take
turns, each round meets all of them with the same weather, and what counts is the median over the rounds of
*ours divided by theirs*. `higher` says which way is better; a goal is a bound on such a ratio, or, against
nobody, on our own median.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

OURS = "egress"
WORSE = 0.75  # of what was recorded: below that, something broke
Measure = Callable[[], float]


class Failed(Exception):
    """A contestant could not be measured; the text says why."""


class Goal(NamedTuple):
    against: str  # a peer; empty: the figure itself is bounded
    bound: float


class Figure(NamedTuple):
    key: str
    what: str
    unit: str
    higher: bool
    rounds: Mapping[str, list[float]]  # of ours and of every peer, as many each
    goals: tuple[Goal, ...] = ()
    missing: Mapping[str, str] = {}  # peers that could not be measured, and why

    def median(self, name: str = OURS) -> float:
        return statistics.median(self.rounds[name])

    def ratio(self, peer: str) -> float:
        pairs = zip(self.rounds[OURS], self.rounds[peer], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def ratios(self) -> dict[str, float]:
        return {peer: self.ratio(peer) for peer in self.rounds if peer != OURS}

    def reached(self, goal: Goal) -> float | None:
        """What the goal is about, as measured; None where its peer is missing."""
        if not goal.against:
            return self.median()
        return self.ratio(goal.against) if goal.against in self.rounds else None

    def meets(self, goal: Goal) -> bool | None:
        reached = self.reached(goal)
        if reached is None:
            return None
        return reached >= goal.bound if self.higher else reached <= goal.bound


def compare(rounds: int, contestants: Mapping[str, Measure]) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Everybody's values, round by round, and why some have none. The order turns around with every round."""
    values: dict[str, list[float]] = {name: [] for name in contestants}
    missing: dict[str, str] = {}
    for number in range(rounds):
        for name in list(values) if number % 2 == 0 else reversed(list(values)):
            try:
                values[name].append(contestants[name]())
            except Failed as failed:
                if name == OURS:
                    raise
                missing[name] = str(failed)
                del values[name]
    return values, missing


def as_json(figures: Iterable[Figure]) -> dict[str, Any]:
    return {
        figure.key: {
            "what": figure.what,
            "unit": figure.unit,
            "higher_is_better": figure.higher,
            "medians": {name: _rounded(figure.median(name)) for name in figure.rounds},
            "ratios": {peer: _rounded(ratio) for peer, ratio in figure.ratios().items()},
            "goals": [
                {**goal._asdict(), "reached": _rounded(figure.reached(goal)), "met": figure.meets(goal)}
                for goal in figure.goals
            ],
            "missing": dict(figure.missing),
        }
        for figure in figures
    }


def as_table(figures: Iterable[Figure]) -> str:
    """Markdown, for a terminal and for a page alike."""
    lines = ["| figure | egress | beside (egress is so many times that) | goal |", "|---|---|---|---|"]
    lines += [
        f"| {each.what} | {_number(each.median())} {each.unit} | {_peers(each)} | {_goals(each)} |" for each in figures
    ]
    return "\n".join(lines)


def _peers(figure: Figure) -> str:
    there = [f"{peer} {_number(figure.median(peer))} ({ratio:.2f} ×)" for peer, ratio in figure.ratios().items()]
    return ", ".join([*there, *(f"{peer} missing: {why}" for peer, why in figure.missing.items())]) or "–"


def _goals(figure: Figure) -> str:
    return "; ".join(_goal(figure, goal) for goal in figure.goals) or "–"


def _goal(figure: Figure, goal: Goal) -> str:
    words = "at least" if figure.higher else "at most"
    wanted = f"{words} {goal.bound:.3g} × {goal.against}" if goal.against else f"{words} {goal.bound:.3g} {figure.unit}"
    reached = figure.reached(goal)
    if reached is None:
        return f"{wanted}: not measured"
    return f"{wanted}: {'met' if figure.meets(goal) else '**not met**'} ({_number(reached)})"


def record(figures: Iterable[Figure]) -> dict[str, dict[str, float]]:
    """The ratios to be compared with another day's: those that a goal is about."""
    return {figure.key: kept for figure in figures if (kept := _bounded(figure))}


def _bounded(figure: Figure) -> dict[str, float]:
    named = {goal.against for goal in figure.goals}
    return {peer: round(ratio, 4) for peer, ratio in figure.ratios().items() if peer in named}


def fallen(figures: Iterable[Figure], recorded: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What has become worse than it was by more than a quarter, in words."""
    return [
        f"{figure.key}: {ratio:.3f} × {peer}, recorded was {recorded[figure.key][peer]:.3f}"
        for figure in figures
        for peer, ratio in figure.ratios().items()
        if peer in recorded.get(figure.key, {}) and _is_worse(figure, ratio, recorded[figure.key][peer])
    ]


def _is_worse(figure: Figure, ratio: float, before: float) -> bool:
    return ratio < before * WORSE if figure.higher else ratio > before / WORSE


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
