"""What one decision costs, and that it costs the same with ten rules and with a million.

Times are the best of several rounds: on a shared machine the best is the one least disturbed.
"""

from __future__ import annotations

import json
import sys
import timeit

from egress.model import Source, Target
from egress.names import parse_authority, parse_host
from egress.policy import Persona
from egress.rules import parse_rule

SIZES = (10, 1_000, 1_000_000)
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


def main() -> None:
    figures: dict[str, dict[str, float]] = {}
    for size in SIZES:
        asked = persona(size)
        for what, target in ASKED.items():
            figures.setdefault(what, {})[f"{size:,} rules"] = microseconds(lambda a=asked, t=target: a.decide(t))
    figures["parse host:port"] = {"": microseconds(lambda: parse_authority("host7.example.com:443"))}
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    print("one decision, µs       " + "".join(f"{size:>12,} rules" for size in SIZES))
    for what, row in figures.items():
        print(f"{what:<22} " + "".join(f"{value:>18.2f}" for value in row.values()))


if __name__ == "__main__":
    main()
