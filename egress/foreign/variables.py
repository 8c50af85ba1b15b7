"""Variables that another tool passes on: names in `env`, or secrets that stay outside.

A key whose host is known and allowed need not go in: it becomes a secret, as in the groups that ship, and the
sandbox gets a placeholder. Where no host that takes it is allowed, it has no business inside and is left out.
All other variables are passed in, and whoever runs inside can read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from egress.foreign.hosts import AGENT_HOST, reaches
from egress.foreign.translation import Draft, Severity
from egress.model import Host
from egress.policytree import Node, Pairs, Word

_CREDENTIAL = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


class Place(NamedTuple):
    """Where a credential goes."""

    host: Host
    header: str
    format: str = "{}"


_BEARER = "Bearer {}"
_GITHUB = (
    Place(Host("github.com"), "authorization", _BEARER),
    Place(Host("api.github.com"), "authorization", _BEARER),
)
PLACES: Mapping[str, tuple[Place, ...]] = {
    "ANTHROPIC_API_KEY": (Place(AGENT_HOST, "x-api-key"),),
    "ANTHROPIC_AUTH_TOKEN": (Place(AGENT_HOST, "authorization", _BEARER),),
    "CLAUDE_CODE_OAUTH_TOKEN": (Place(AGENT_HOST, "authorization", _BEARER),),
    "GH_TOKEN": _GITHUB,
    "GITHUB_TOKEN": _GITHUB,
}


def pass_in(draft: Draft, names: Iterable[Word]) -> None:
    """To be asked when all hosts are known."""
    for name in names:
        if name.text in PLACES:
            _keep(draft, name)
        else:
            _pass(draft, name)


def _keep(draft: Draft, name: Word) -> None:
    places = [place for place in PLACES[name.text] if reaches(draft, place.host)]
    for place in places:
        draft.add("allow", _rule(name, place))
    hosts = " and ".join(place.host for place in places)
    if places:
        message = f"{name.text} stays outside: it is put into requests to {hosts}, and inside is a placeholder"
    else:
        message = f"{name.text} is not passed in: no host is allowed that takes it"
    draft.say(Severity.NOTE, name.source, message)


def _pass(draft: Draft, name: Word) -> None:
    draft.add("env", name)
    if _CREDENTIAL.search(name.text):
        message = f"{name.text} can be read inside; a rule with `secret:` for its host would keep it out"
        draft.say(Severity.WARNING, name.source, message)


def _rule(name: Word, place: Place) -> Pairs:
    source = name.source
    secret = {"env": name.text, "header": place.header, "format": place.format, "optional": "true"}
    if place.format == "{}":
        del secret["format"]
    pairs: list[tuple[Word, Node]] = [(Word(key, source), Word(text, source)) for key, text in secret.items()]
    return Pairs(
        [
            (Word("host", source), Word(place.host, source)),
            (Word("ports", source), Word("443", source)),
            (Word("secret", source), Pairs(pairs, source)),
        ],
        source,
    )
