"""What a gate counts about itself, and the text form in which Prometheus reads it.

How many series there can be is known beforehand: a label holds a word of a closed vocabulary or the name of a
persona of the policy, never a host, and whatever else comes in is counted as `other`. So a client that asks for a
million names makes numbers larger, and the table no longer.

The form: Prometheus text exposition format, version 0.0.4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NOBODY, OTHER = "none", "other"
# From what a look-up in a dictionary takes to what a connection may.
_BOUNDS = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
_TIMED = "decision", "dial"

Labels = tuple[tuple[str, str], ...]


class Timings(Protocol):
    """Who wants to know how long things take."""

    def observe(self, name: str, seconds: float) -> None: ...


class Now(NamedTuple):
    """What is not counted but looked up when somebody asks."""

    version: str
    open_tunnels: int
    questions: int
    generation: int
    audit_failing: bool


class Histogram:
    """So many took at most so long."""

    def __init__(self, bounds: tuple[float, ...] = _BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def take(self) -> tuple[list[int], float]:
        """What was counted since the last time, for whoever adds it up."""
        taken = self._counts, self._sum
        self._counts, self._sum = [0] * len(taken[0]), 0.0
        return taken

    def add(self, counts: Iterable[int], total: float) -> None:
        self._counts = [mine + other for mine, other in zip(self._counts, counts, strict=True)]
        self._sum += total

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map("{:g}".format, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield _line(f"{name}_bucket", total, (("le", bound),))
        yield _line(f"{name}_sum", self._sum)
        yield _line(f"{name}_count", total)


class Times:
    """How long things took in a worker whose numbers another one collects. It is `Timings`."""

    def __init__(self) -> None:
        self._times = {name: Histogram() for name in _TIMED}

    def observe(self, name: str, seconds: float) -> None:
        self._times[name].observe(seconds)

    def take(self) -> dict[str, tuple[list[int], float]]:
        return {name: histogram.take() for name, histogram in self._times.items()}

    def add(self, times: Mapping[str, tuple[list[int], float]]) -> None:
        for name, taken in times.items():
            self._times[name].add(*taken)


class Metrics:
    """The counts of one gate; `personas` gives those that the policy has now. It is `Timings`, too."""

    def __init__(self, personas: Callable[[], Container[str]]) -> None:
        self._personas = personas
        self._decisions: Counter[Labels] = Counter()
        self._ends: Counter[Labels] = Counter()
        self._times = {name: Histogram() for name in _TIMED}
        self._up = self._down = self._lost = self._reload_errors = 0
        self._reloaded: float | None = None

    def observe(self, name: str, seconds: float) -> None:
        self._times[name].observe(seconds)

    def add(self, times: Mapping[str, tuple[list[int], float]]) -> None:
        """How long things took in another worker."""
        for name, taken in times.items():
            self._times[name].add(*taken)

    def decided(self, persona: str, verdict: str, reason: str, count: int = 1) -> None:
        known = NOBODY if not persona else persona if persona in self._personas() else OTHER
        self._decisions[(("persona", known), ("verdict", verdict), ("reason", reason))] += count

    def ended(self, up: int, down: int, outcome: str) -> None:
        self._up += up
        self._down += down
        self._ends[(("outcome", outcome),)] += 1

    def reloaded(self, moment: float, error: str | None) -> None:
        """A policy edit was read, and taken up or not."""
        if error is None:
            self._reloaded = moment
        else:
            self._reload_errors += 1

    def lost(self, records: int) -> None:
        self._lost += records

    def text(self, now: Now) -> str:
        return "\n".join([*self._counters(), *self._gauges(now), *self._histograms(), ""])

    def _counters(self) -> Iterator[str]:
        yield from _family("egress_decisions_total", "counter", "verdicts on requests", self._decisions.items())
        yield from _family("egress_ended_total", "counter", "allowed connections by how they ended", self._ends.items())
        moved = [((("direction", "up"),), self._up), ((("direction", "down"),), self._down)]
        yield from _family("egress_bytes_total", "counter", "bytes of connections that have ended", moved)
        yield from _single(
            "egress_audit_lost_records_total", "counter", "records lost while the log was away", self._lost
        )
        yield from _single(
            "egress_policy_reload_errors_total", "counter", "edits that were not taken up", self._reload_errors
        )

    def _gauges(self, now: Now) -> Iterator[str]:
        yield from _family("egress_info", "gauge", "the program", [((("version", now.version),), 1)])
        yield from _single("egress_tunnels_open", "gauge", "allowed connections that are open", now.open_tunnels)
        yield from _single("egress_questions_pending", "gauge", "connections held for a person", now.questions)
        yield from _single(
            "egress_audit_failing", "gauge", "1 while the log cannot be written and nothing passes", now.audit_failing
        )
        yield from _single(
            "egress_policy_generation", "gauge", "how many good policies there have been", now.generation
        )
        if self._reloaded is not None:
            about = "when an edit was last taken up"
            yield from _single("egress_policy_last_reload_timestamp_seconds", "gauge", about, self._reloaded)

    def _histograms(self) -> Iterator[str]:
        for name, histogram in self._times.items():
            yield from _head(f"egress_{name}_seconds", "histogram", f"how long a {name} took")
            yield from histogram.lines(f"egress_{name}_seconds")


def _single(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    return _family(name, kind, about, [((), value)])


def _family(name: str, kind: str, about: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield from _head(name, kind, about)
    yield from (_line(name, value, labels) for labels, value in sorted(samples))


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, value: float, labels: Labels = ()) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    number = f"{value:.6f}" if isinstance(value, float) else str(int(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
