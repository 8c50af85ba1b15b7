"""What one decision costs, and that it costs the same with ten rules and with a million.

Times are the best of several rounds: on a shared machine the best is the one least disturbed.
"""

from __future__ import annotations

import timeit
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import OURS, Figure, Goal
from benchmarks.scale import Scale
from egress.model import Source, Target
from egress.names import parse_host
from egress.policy import Persona
from egress.rules import parse_rule

FEW, MANY, MANY_IN_HASTE = 10, 1_000_000, 100_000
ASKED = {
    "exact host": Target(parse_host("host7.example.com"), 443),
    "below a wildcard": Target(parse_host("a.b.wild.example.org"), 443),
    "not listed": Target(parse_host("www.evil.example.net"), 443),
    "denied": Target(parse_host("gist.example.org"), 443),
    "address": Target(parse_host("203.0.113.9"), 443),
}


def persona(size: int) -> Persona:
    names = (f"host{number}.example.com" for number in range(size - 1))
    rules = [parse_rule(name, Source("bench.yaml", line)) for line, name in enumerate(names, 1)]
    rules.append(parse_rule("*.wild.example.org", Source("bench.yaml", size)))
    return Persona("bench", rules, [parse_rule("gist.example.org")._replace(all_ports=True)])


def microseconds(statement: object) -> float:
    rounds = timeit.repeat(statement, number=20_000, repeat=7)  # type: ignore[arg-type]
    return min(rounds) / 20_000 * 1e6


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    many = MANY if scale.every_peer else MANY_IN_HASTE
    rounds = {OURS: [costliest(many)], f"{FEW} rules": [costliest(FEW)]}
    goals = (Goal("", 3), Goal(f"{FEW} rules", 1.5))
    yield Figure("decision", f"a decision, {many:,} rules", "µs", False, rounds, goals)


def costliest(size: int) -> float:
    """Of all kinds of questions."""
    asked = persona(size)
    return max(microseconds(lambda target=target: asked.decide(target)) for target in ASKED.values())
