"""Why a request was refused that its host's rules look at, and what would let it through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from egress.explain import Answer
from egress.model import Decision
from egress.refusals import Reason
from egress.requestpolicy import MOST_METHODS, Asked, announced, methods_of
from egress.rules import Pattern
from egress.ruletext import requests_of
from egress.urlpath import Ambiguous, canonical

BY_REQUEST = frozenset({
    Reason.METHOD_NOT_LISTED, Reason.PATH_NOT_LISTED, Reason.HEADER_NOT_LISTED, Reason.AMBIGUOUS_PATH,
    Reason.HOST_MISMATCH, Reason.CREDENTIAL_MISMATCH, Reason.NOT_TLS, Reason.NOT_HTTP,
})  # fmt: skip
_BY_A_RULE = frozenset({Reason.METHOD_NOT_LISTED, Reason.PATH_NOT_LISTED, Reason.HEADER_NOT_LISTED})
_HINTS = {
    Reason.AMBIGUOUS_PATH: "hint: no rule allows such a path; ask for it in its plain spelling",
    Reason.HOST_MISMATCH: "hint: no rule allows a request that names two hosts; ask without that header",
    Reason.CREDENTIAL_MISMATCH: "hint: send the placeholder, or let the secret of this host say allow_other: true;"
    " a user name of your own in Basic needs user: NAME there",
    Reason.NOT_TLS: "hint: ask with https://, or let the rule {rule} say tls: false",
    Reason.NOT_HTTP: "hint: ask with http://, or let the rule {rule} say tls: true",
}
_METHOD = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._~!$&'()+,=:@%/-]+")


def hints(decision: Decision) -> Iterator[str]:
    """Lines for a person."""
    if decision.reason in _HINTS:
        yield _HINTS[decision.reason].format(rule=decision.rule)
    elif decision.rule is not None:
        yield f"the nearest rule, {decision.rule}, allows {requests_of(decision.rule)}"


def entry_for(answer: Answer) -> str | None:
    """The entry of a list that would allow the request; None where none would.

    It is for the pattern that speaks now: one more exact would speak alone, and take away what that allows.
    And it says of the connection what the rule that speaks for it says, before which it may come to stand.
    """
    asked, target = answer.request, answer.target
    if asked is None or target is None or answer.decision.reason not in _BY_A_RULE:
        return None
    path, methods, speaker = _plain_path(asked), methods_of(asked), answer.rules[0]
    if path is None or len(methods) > MOST_METHODS or not all(map(_METHOD.fullmatch, methods)):
        return None
    paths = [path]
    if (later := announced(asked, path)) is not None:
        methods, paths = [*methods, "POST"], [path, later]
    terms = {
        "host": _quoted(speaker.pattern),
        "ports": str(target.port),
        "tls": "" if speaker.tls is None else str(speaker.tls).lower(),
        "private": "true" if speaker.private else "",
        "methods": f"[{', '.join(methods)}]",
        "paths": f"[{', '.join(map(json.dumps, paths))}]",
    }
    return f"{{{', '.join(f'{key}: {value}' for key, value in terms.items() if value)}}}"


def _plain_path(asked: Asked) -> str | None:
    """A path that means itself in a rule."""
    try:
        path = canonical(asked.path)
    except Ambiguous:
        return None
    return path if _PLAIN_PATH.fullmatch(path) else None


def _quoted(pattern: Pattern) -> str:
    host = f"[{pattern}]" if ":" in pattern.host else str(pattern)
    return host if host[0].isalpha() else f'"{host}"'
