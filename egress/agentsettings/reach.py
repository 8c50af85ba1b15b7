"""Which hosts of a persona an agent's own sandbox can be told of.

It knows hosts and `*.` patterns, with the meaning that they have here, and denials that win. It knows no ports, no
methods, no paths and no IPv6 addresses. So a host is *whole*, if on 443 or 80 no rule looks at which requests; what
a rule narrows is *partial*, and to allow it there would allow more than the persona may. A pattern that is whole may
cover hosts that are partial (`*.example.com` beside `api.example.com` with methods): those have to be denied
there, unless a gate stands behind which knows better.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from egress.policy import Persona
from egress.rules import DEFAULT_PORTS, Pattern, Rule
from egress.ruletext import ports_of, requests_of


class Part(NamedTuple):
    """A host of which only this may be reached."""

    pattern: Pattern
    terms: str


class Reach(NamedTuple):
    whole: tuple[Pattern, ...]
    narrowed: tuple[Pattern, ...]  # on the web, but not with every request
    parts: tuple[Part, ...]
    denied: tuple[Pattern, ...]

    @property
    def taken_in(self) -> tuple[Pattern, ...]:
        """Of the narrowed, those that a whole pattern covers."""
        return tuple(one for one in self.narrowed if any(_covers(pattern, one) for pattern in self.whole))


def reach_of(persona: Persona) -> Reach:
    narrowed = _unique(rule.pattern for rule in persona.allow if _on_the_web(rule) and _narrows(rule))
    return Reach(
        _unique(rule.pattern for rule in persona.allow if _on_the_web(rule) and rule.pattern not in narrowed),
        narrowed,
        tuple(dict.fromkeys(part for rule in persona.allow for part in _parts(rule))),
        _unique(rule.pattern for rule in persona.deny if rule.all_ports or rule.ports & DEFAULT_PORTS),
    )


def _on_the_web(rule: Rule) -> bool:
    return bool(rule.ports & DEFAULT_PORTS) and ":" not in rule.pattern.host


def _narrows(rule: Rule) -> bool:
    said = rule.requests
    return said is not None and bool(said.methods or said.paths or said.headers or said.upload_limit)


def _parts(rule: Rule) -> Iterable[Part]:
    ports = "" if rule.ports <= DEFAULT_PORTS else f" on port {ports_of(rule)}"
    if _narrows(rule):
        yield Part(rule.pattern, f"{requests_of(rule)}{ports}")
    elif not _on_the_web(rule) or ports:
        yield Part(rule.pattern, f"port {ports_of(rule)}")


def _covers(pattern: Pattern, one: Pattern) -> bool:
    return pattern.below and one.host.endswith(f".{pattern.host}")


def _unique(patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
    return tuple(dict.fromkeys(patterns))
