"""May this request go to a host that may be reached? Pure, like `policy`.

    decide_request(rules, asked)    the rules are those of `Persona.request_rules` for its target

The first rule that has the method, the path and the headers allows it. A rule that only brings a secret has
no say, unless no other rule of the host says anything about requests.

Servers let a client say its method and path twice (`overrides`). A method given that way is another reading of
the request, and every reading must be allowed; a path given that way is refused like any path with two
readings. Whoever says many methods does it to keep us busy, and is refused unread. A name of a header that a
rule looks for is the same with `_` and with `-`, but only where that refuses.

git says in advance what it is about to do: `GET …/info/refs?service=git-receive-pack`, and then a POST to
`…/git-receive-pack`. It shows the text of a refusal only at the first of the two. So the second is a reading of
the first: who may not push hears it, and why, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from egress import overrides
from egress.model import Decision, Verdict
from egress.overrides import folded
from egress.refusals import Reason
from egress.rules import Headers, Requests, Rule, Secret
from egress.urlpath import Ambiguous, canonical, matches

MOST_METHODS = 4  # that one request may say
_REFS, _SERVICE = "/info/refs", "service="

_NOT_LISTED = Decision(Verdict.DENY, Reason.NOT_LISTED)
_SAYS_NOTHING = Requests()


class Asked(NamedTuple):
    """A request as it came; `path` with its query, names of fields in lower case."""

    method: str
    path: str
    fields: Sequence[tuple[str, str]] = ()


class Said(NamedTuple):
    """The fields of a request, as rules ask for them."""

    names: frozenset[str]  # as they came
    values: dict[str, set[str]]  # by name, `_` and `-` being one


_NO_FIELDS = Said(frozenset(), {})


def decide_request(rules: tuple[Rule, ...], asked: Asked) -> Decision:
    if not rules:
        return _NOT_LISTED
    judges = [rule for rule in rules if not _about(rule).only_brings_a_secret]
    if not judges:
        return Decision(Verdict.ALLOW, Reason.LISTED, rules[0])
    path = ""
    if any(_about(rule).paths for rule in judges):
        try:
            path = _path(asked)
        except Ambiguous:
            return Decision(Verdict.DENY, Reason.AMBIGUOUS_PATH, judges[0])
    methods = methods_of(asked) if any(_about(rule).methods for rule in judges) else [asked.method]
    if len(methods) > MOST_METHODS:
        return Decision(Verdict.DENY, Reason.METHOD_NOT_LISTED, judges[0])
    said = _said(asked.fields) if any(_about(rule).headers for rule in judges) else _NO_FIELDS
    answers = [_judge(judges, method, where, said) for method, where in _readings(asked, methods, path)]
    return next((answer for answer in answers if not answer.allowed), answers[0])


def secrets_of(rules: Iterable[Rule]) -> tuple[Secret, ...]:
    """All that the rules of a host bring: each is for every request that is allowed to it."""
    found = (_about(rule).secret for rule in rules)
    return tuple(dict.fromkeys(secret for secret in found if secret is not None))


def _about(rule: Rule) -> Requests:
    return rule.requests or _SAYS_NOTHING


def _judge(rules: list[Rule], method: str, path: str, said: Said) -> Decision:
    """One reading. A refusal names the rule that came nearest."""
    by_method = [rule for rule in rules if not (methods := _about(rule).methods) or method in methods]
    if not by_method:
        return Decision(Verdict.DENY, Reason.METHOD_NOT_LISTED, rules[0])
    by_path = [rule for rule in by_method if _has_path(_about(rule).paths, path)]
    if not by_path:
        return Decision(Verdict.DENY, Reason.PATH_NOT_LISTED, by_method[0])
    for rule in by_path:
        headers = _about(rule).headers
        if headers is None or _has_headers(headers, said):
            return Decision(Verdict.ALLOW, Reason.LISTED, rule)
    return Decision(Verdict.DENY, Reason.HEADER_NOT_LISTED, by_path[0])


def _has_path(patterns: tuple[str, ...], path: str) -> bool:
    return not patterns or any(matches(pattern, path) for pattern in patterns)


def _has_headers(headers: Headers, said: Said) -> bool:
    """A field that comes twice must have the value each time: nobody knows which one will be read."""
    for name, expected in headers.require:
        if name not in said.names or (expected is not None and said.values[folded(name)] != {expected}):
            return False
    return not any(folded(name) in said.values for name in headers.forbid)


def _said(fields: Sequence[tuple[str, str]]) -> Said:
    values: dict[str, set[str]] = {}
    for name, value in fields:
        values.setdefault(folded(name), set()).add(value.strip(" \t"))
    return Said(frozenset(name for name, _ in fields), values)


def _path(asked: Asked) -> str:
    if overrides.has_path(asked.fields):
        raise Ambiguous("a header gives the path a second time")
    return canonical(asked.path)


def announced(asked: Asked, path: str) -> str | None:
    """The path that git will POST to, if this is its question before that."""
    query = asked.path.partition("?")[2]
    if asked.method != "GET" or not query.startswith(_SERVICE) or not asked.path.endswith(f"{_REFS}?{query}"):
        return None
    return path.removesuffix(_REFS) + "/" + query.removeprefix(_SERVICE).partition("&")[0]


def _readings(asked: Asked, methods: list[str], path: str) -> Iterator[tuple[str, str]]:
    for method in methods:
        yield method, path
    later = announced(asked, path)
    if later is not None:
        yield "POST", later


def methods_of(asked: Asked) -> list[str]:
    """The method of a request, and what a framework may take for it instead; one too many, if there are more."""
    found = {asked.method: None}
    for method in overrides.methods(asked.path, asked.fields):
        found[method] = None
        if len(found) > MOST_METHODS:
            break
    return list(found)
