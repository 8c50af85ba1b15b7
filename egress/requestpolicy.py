"""May this request go to a host that may be reached? Pure, like `policy`.

    decide_request(rules, asked)    the rules are those of `Persona.request_rules` for its target

The first rule that has the method, the path and the headers allows it. A rule that only brings a secret has
no say, unless no other rule of the host says anything about requests.

Servers let a client say its method and path twice: in the request line, and in headers or a parameter that
frameworks obey in its place. A method given that way is another reading of the request, and every reading
must be allowed; a path given that way is refused like any path with two readings. CGI and its descendants do
not tell `_` from `-` in the name of a header, so neither do we in names that are looked for to refuse.

git says in advance what it is about to do: `GET …/info/refs?service=git-receive-pack`, and then a POST to
`…/git-receive-pack`. It shows the text of a refusal only at the first of the two. So the second is a reading of
the first: who may not push hears it, and why, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from egress.model import Decision, Verdict
from egress.refusals import Reason
from egress.rules import Headers, Requests, Rule, Secret
from egress.urlpath import Ambiguous, canonical, matches

METHOD_HEADERS = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})
METHOD_PARAMETERS = frozenset({"_method", "_httpmethod", "x-http-method-override"})
PATH_HEADERS = frozenset({"x-original-url", "x-rewrite-url", "x-original-uri", "x-rewrite-uri"})

_REFS, _SERVICE = "/info/refs", "service="

_NOT_LISTED = Decision(Verdict.DENY, Reason.NOT_LISTED)
_SAYS_NOTHING = Requests()


class Asked(NamedTuple):
    """A request as it came; `path` with its query, names of fields in lower case."""

    method: str
    path: str
    fields: Sequence[tuple[str, str]] = ()


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
    answers = [_judge(judges, method, where, asked.fields) for method, where in _readings(asked, path)]
    return next((answer for answer in answers if not answer.allowed), answers[0])


def secrets_of(rules: Iterable[Rule]) -> tuple[Secret, ...]:
    """All that the rules of a host bring: each is for every request that is allowed to it."""
    found = (_about(rule).secret for rule in rules)
    return tuple(dict.fromkeys(secret for secret in found if secret is not None))


def _about(rule: Rule) -> Requests:
    return rule.requests or _SAYS_NOTHING


def _judge(rules: list[Rule], method: str, path: str, fields: Sequence[tuple[str, str]]) -> Decision:
    """One reading. A refusal names the rule that came nearest."""
    by_method = [rule for rule in rules if not (methods := _about(rule).methods) or method in methods]
    if not by_method:
        return Decision(Verdict.DENY, Reason.METHOD_NOT_LISTED, rules[0])
    by_path = [rule for rule in by_method if _has_path(_about(rule).paths, path)]
    if not by_path:
        return Decision(Verdict.DENY, Reason.PATH_NOT_LISTED, by_method[0])
    for rule in by_path:
        headers = _about(rule).headers
        if headers is None or _has_headers(headers, fields):
            return Decision(Verdict.ALLOW, Reason.LISTED, rule)
    return Decision(Verdict.DENY, Reason.HEADER_NOT_LISTED, by_path[0])


def _has_path(patterns: tuple[str, ...], path: str) -> bool:
    return not patterns or any(matches(pattern, path) for pattern in patterns)


def _has_headers(headers: Headers, fields: Sequence[tuple[str, str]]) -> bool:
    """A field that comes twice must have the value each time: nobody knows which one will be read."""
    for name, expected in headers.require:
        values = {value.strip(" \t") for field, value in fields if field == name}
        if not values or (expected is not None and values != {expected}):
            return False
    return not headers.forbid or not any(field.replace("_", "-") in _folded(headers.forbid) for field, _ in fields)


def _folded(names: Iterable[str]) -> set[str]:
    return {name.replace("_", "-") for name in names}


def _path(asked: Asked) -> str:
    if any(name[:1] == "x" and name.replace("_", "-") in PATH_HEADERS for name, _ in asked.fields):
        raise Ambiguous("a header gives the path a second time")
    return canonical(asked.path)


def announced(asked: Asked, path: str) -> str | None:
    """The path that git will POST to, if this is its question before that."""
    query = asked.path.partition("?")[2]
    if asked.method != "GET" or not query.startswith(_SERVICE) or not asked.path.endswith(f"{_REFS}?{query}"):
        return None
    return path.removesuffix(_REFS) + "/" + query.removeprefix(_SERVICE).partition("&")[0]


def _readings(asked: Asked, path: str) -> Iterator[tuple[str, str]]:
    for method in methods_of(asked):
        yield method, path
    later = announced(asked, path)
    if later is not None:
        yield "POST", later


def methods_of(asked: Asked) -> list[str]:
    """The method of a request, and what a framework may take for it instead."""
    return [asked.method, *(method for method in _overrides(asked) if method != asked.method)]


def _overrides(asked: Asked) -> Iterator[str]:
    for name, value in asked.fields:
        if name[:1] == "x" and name.replace("_", "-") in METHOD_HEADERS:
            yield from (word.strip().upper() for word in value.split(","))
    query = asked.path.partition("?")[2]
    if query:
        yield from _methods_in(query)


def _methods_in(query: str) -> Iterator[str]:
    lowered = query.lower()
    if "method" not in lowered and "%" not in lowered:  # as nearly always
        return
    from urllib.parse import unquote_plus

    for parameter in query.replace(";", "&").split("&"):
        name, _, value = parameter.partition("=")
        if unquote_plus(name).strip().lower() in METHOD_PARAMETERS:
            yield unquote_plus(value).strip().upper()
