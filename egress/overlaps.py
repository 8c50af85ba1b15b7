"""Rules of one list that are for the same host and port, and what that makes of them.

Of plain rules the first speaks. Where one looks at requests, all that do are asked in their order, and plain
ones no longer count: they would undo it. Each finding is a rule and what is to be said about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from egress.rules import Pattern, Rule

Found = Iterator[tuple[Rule, str]]
Place = tuple[Pattern, int]


def silent(rules: Iterable[Rule]) -> Found:
    """Rules for which one before them always speaks."""
    heard: dict[Place, list[Rule]] = {}
    for rule in rules:
        speakers = [_speaker(heard.setdefault((rule.pattern, port), []), rule) for port in rule.ports]
        first = speakers[0]
        if first and all(speakers):
            same = "requests" if rule.needs_inspection else "host and ports"
            yield rule, f"never speaks: {first.source} has the same {same}"


def overridden(rules: Collection[Rule]) -> Found:
    """Plain rules that add nothing, because another looks at the requests to the same host and ports."""
    looking = _first(rules)
    for rule in rules:
        others = [looking.get((rule.pattern, port)) for port in rule.ports]
        if not rule.needs_inspection and others[0] and all(others):
            yield rule, f"never speaks: {others[0].source} looks at the requests to it, and a plain rule adds none"


def at_odds(rules: Collection[Rule]) -> Found:
    """Rules that look at requests, and say of the connection what the first of them does not."""
    first = _first(rules)
    for rule in rules:
        for port in sorted(rule.ports) if rule.needs_inspection else ():
            speaker = first[rule.pattern, port]
            if rule.private > speaker.private or rule.expects_tls(port) != speaker.expects_tls(port):
                yield rule, f"has another tls or private than {speaker.source}, which speaks for the connection"
                break


def _first(rules: Iterable[Rule]) -> dict[Place, Rule]:
    """By host and port, the first rule that looks at requests."""
    found: dict[Place, Rule] = {}
    for rule in rules:
        for port in rule.ports if rule.needs_inspection else ():
            found.setdefault((rule.pattern, port), rule)
    return found


def _speaker(heard: list[Rule], rule: Rule) -> Rule | None:
    """Who among those heard leaves a rule nothing to say; if nobody does, it is heard itself."""
    speaker = next((other for other in heard if _covers(other, rule)), None)
    if speaker is None:
        heard.append(rule)
    return speaker


def _covers(one: Rule, other: Rule) -> bool:
    """Whether one allows and brings all that the other does, for the same host and port."""
    mine, its = one.requests, other.requests
    if mine is None or its is None:
        return mine is its
    if its.secret not in (None, mine.secret) or mine.only_brings_a_secret != its.only_brings_a_secret:
        return False
    headers = mine.headers is None or mine.headers == its.headers
    return headers and _takes_in(mine.methods, its.methods) and _takes_in(mine.paths, its.paths)


def _takes_in(mine: Collection[str], its: Collection[str]) -> bool:
    """An empty list stands for everything."""
    return not mine or (bool(its) and set(its) <= set(mine))
