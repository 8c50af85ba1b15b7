"""Tunnels a second through two workers, beside the same gate with one.

The load generator and its far end take about a core between them, so on a machine with two cores the workers share
what is left of the second: the goal is what remains of doubling there. With more cores it says less than they gain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import gate as ours
from benchmarks.figures import OURS, Figure, Goal, compare
from benchmarks.generator import origin, tunnels
from benchmarks.scale import Scale

ONE = "one worker"
AT_ONCE, COUNT = 64, 6000
GOAL = 1.3


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    with ExitStack() as stack:
        echo = stack.enter_context(origin("echo"))
        text = ours.policy({ours.ECHO: echo})
        ports = {
            name: stack.enter_context(ours.gate(work, text, "--workers", many, name=f"workers{many}")).port
            for name, many in ((OURS, "2"), (ONE, "1"))
        }
        contestants = {name: partial(_rate, port, echo) for name, port in ports.items()}
        values, missing = compare(scale.rounds, contestants)
    yield Figure("workers", "tunnels through two workers", "/s", True, values, (Goal(ONE, GOAL),), missing)


def _rate(port: int, echo: int) -> float:
    return COUNT / tunnels("run", f"connect:{port}", ours.ECHO, echo, AT_ONCE, COUNT)["seconds"]
