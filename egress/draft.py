"""A persona that may do what was seen and nothing else, as YAML for a person to read through.

Each line is for a host and the ports that were seen, and says why it is there. Three hosts side by side on one
port become `*.parent` for that port, unless anyone may have a name there, unless that would take in a host that
was refused, and never for what led to an address that is not public. Where requests were looked into, their
methods and paths are the rule; those of one path are not lent to another.

Nothing from the log is copied into the text but canonical hosts and paths; all else stands in comments, as
visible ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import msgspec

from egress.draftrequests import Group, grouped
from egress.hazards import SHARED, hazard_at, hazard_below, parents
from egress.model import Host, Target
from egress.names import as_address
from egress.rules import DEFAULT_PORTS
from egress.sightings import Evidence, Sightings
from egress.suffixes import is_public_suffix, suffixes_below

SIBLINGS = 3
_MOST_NAMED = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PLAIN = re.compile(r"[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+(?::[0-9]+)?")
_HOW = {"observed": "would have been blocked", "answered": "allowed by a person who was asked"}
_INDENT = " " * 6

Seen = Mapping[Target, Evidence]


def draft(records: Iterable[msgspec.Struct], name: str) -> str:
    """The text of a policy with a persona of that name, from the records of a log (`auditread`, `audit`)."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no name for a persona: letters, digits, - _ and . are")
    sightings = Sightings()
    sightings.add(records)
    body = list(_lines(sightings))
    lines = [
        *_head(sightings),
        "version: 1",
        "",
        "personas:",
        f"  {_key(name)}:",
        f"    allow:{'' if body else ' []'}",
    ]
    return "\n".join([*lines, *body, *_notes(sightings), ""])


def _head(sightings: Sightings) -> Iterator[str]:
    sessions = ", ".join(map(visible, sightings.sessions)) or "none"
    until = f" until {visible(sightings.last[:19])}" if sightings.last else ""
    yield f"# What was let through in session {sessions}{until}, and nothing else."
    yield "# Look at each line before you keep it: a program that was tricked has asked for what its tricker wanted."


def _lines(sightings: Sightings) -> Iterator[str]:
    seen = sightings.targets
    plain = {target: evidence for target, evidence in seen.items() if not evidence.looked_into}
    wide = _wildcards(plain, sightings)
    covered = {target for targets in wide.values() for target in targets}
    rules = [
        *_requests({target: evidence for target, evidence in seen.items() if evidence.looked_into}),
        *_exact({target: evidence for target, evidence in plain.items() if target not in covered}),
        *_below(wide, seen),
    ]
    for _, lines in sorted(rules, key=lambda rule: rule[0]):
        yield from (_INDENT + line for line in lines)


Placed = tuple[tuple[object, ...], list[str]]  # lines, and what they are sorted by


def _place(host: str) -> tuple[object, ...]:
    """Names by what they end in, so that those of one owner stand together; addresses after them."""
    is_address = as_address(Host(host)) is not None
    return is_address, [host] if is_address else host.split(".")[::-1]


def _wildcards(plain: Seen, sightings: Sightings) -> dict[tuple[str, int], list[Target]]:
    """By parent and port, the siblings that make a wildcard."""
    families: dict[tuple[str, int], list[Target]] = {}
    for target, evidence in plain.items():
        if as_address(target.host) is None and not evidence.is_private:
            families.setdefault((target.host.partition(".")[2], target.port), []).append(target)
    refused = {(above, port) for host, port in sightings.refused() for above in parents(host)}
    return {
        (parent, port): siblings
        for (parent, port), siblings in families.items()
        if len(siblings) >= SIBLINGS
        and sightings.knows_all_refused
        and refused.isdisjoint({(parent, port), (parent, None)})
        and _is_one_owners(parent)
    }


def _is_one_owners(parent: str) -> bool:
    """Nobody else can have a name below it, and none there undoes the list."""
    if not parent or is_public_suffix(parent) or parent in SHARED or parent in suffixes_below():
        return False
    return hazard_at(parent) is None and hazard_below(parent) is None


def _below(wide: Mapping[tuple[str, int], list[Target]], seen: Seen) -> Iterator[Placed]:
    for (parent, port), siblings in wide.items():
        names = sorted(target.host for target in siblings)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        why = _why([seen[target] for target in siblings])
        named = ", ".join(names[:_MOST_NAMED])
        yield (*_place(parent), 2, port), [f'- "*.{parent}:{port}"  # {len(names)} hosts: {named}{more}; {why}']


def _exact(plain: Seen) -> Iterator[Placed]:
    def rule(target: Target) -> tuple[str, bool]:
        return target.host, plain[target].is_private

    for (host, is_private), group in groupby(sorted(plain, key=lambda target: (*rule(target), target.port)), key=rule):
        targets = list(group)
        entry = _entry(host, [target.port for target in targets], is_private)
        yield (
            (*_place(host), 1, is_private),
            [f"- {entry}  # {_why([plain[target] for target in targets])}{_warning(host)}"],
        )


def _entry(host: str, ports: list[int], is_private: bool) -> str:
    """A rule for these ports and no others."""
    if not is_private and len(ports) == 1:
        return _word(str(Target(Host(host), ports[0])))
    word = f"[{host}]" if ":" in host else host
    if not is_private and set(ports) == DEFAULT_PORTS:
        return _word(word)
    terms = ", private: true" if is_private else ""
    return f"{{host: {_word(word)}, ports: [{', '.join(map(str, ports))}]{terms}}}"


def _requests(seen: Seen) -> Iterator[Placed]:
    for target, evidence in seen.items():
        groups, strange = grouped(evidence.requests)
        lines = [line for group in groups for line in _request_rule(target, group, evidence)]
        lines += [
            f"# {_word(target.host)}: no rule can name {visible(f'{each.method} {each.path}')}" for each in strange
        ]
        yield (*_place(target.host), 3, target.port), lines


def _request_rule(target: Target, group: Group, evidence: Evidence) -> Iterator[str]:
    total = sum(group.paths.values())
    yield f"- host: {_word(str(target))}  # {_many(total, 'request')}{_programs([evidence])}{_warning(target.host)}"
    if evidence.is_private:
        yield "  private: true  # where it led to is not a public address"
    yield f"  methods: [{', '.join(sorted(group.methods))}]"
    yield "  paths:"
    for path, count in sorted(group.paths.items()):
        yield f'    - "{path}"  # {_many(count, "request")}'


def _why(evidence: list[Evidence]) -> str:
    words = [_many(sum(each.connections for each in evidence), "connection")]
    for reason, how in _HOW.items():
        if count := sum(each.lifted[reason] for each in evidence):
            words.append(f"{count} {how}")
    return ", ".join(words) + _programs(evidence)


def _programs(evidence: list[Evidence]) -> str:
    names = sorted({visible(name) for each in evidence for name in each.programs})
    return f", by {', '.join(names[:_MOST_NAMED])}" if names else ""


def _warning(host: str) -> str:
    hazard = hazard_at(host)
    return f"; careful: {hazard.host} {hazard.words}" if hazard else ""


def _notes(sightings: Sightings) -> Iterator[str]:
    """What a reader would look for in vain."""
    for name in sightings.strange:
        yield f"{_INDENT}# left out, for it is no host: {visible(name)}"
    if sightings.left_out:
        yield f"{_INDENT}# left out: {_many(sightings.left_out, 'connection')} to more hosts than are kept"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _word(text: str) -> str:
    """As YAML takes it for that text, in a list or in brackets."""
    return text if _PLAIN.fullmatch(text) else f'"{text}"'


def _key(name: str) -> str:
    return f'"{name}"' if name.lower() == "null" else name


def visible(text: str, length: int = 120) -> str:
    """As ASCII on one line."""
    return ascii(text[:length])[1:-1]
