"""Domains of other tools, as entries of `allow` and `deny`.

They are written as ours are: a host, or `*.host` for every name below it and never itself. What differs:

    no port            there any port, here 443 and 80
    localhost          there the host's loopback, here the sandbox's own
    private addresses  there reachable when listed, here only by a rule with `private: true`

What is no host at all, `*` and `*.com` are for the policy reader to refuse, with the line and what to write.
"""

from __future__ import annotations

from egress.addresses import Kind, classify
from egress.foreign.settings import Setting, words
from egress.foreign.translation import Draft, Severity
from egress.model import Host
from egress.names import Malformed, as_address
from egress.policytree import Word
from egress.rules import TLS_PORT, Pattern, parse_pattern

AGENT_HOST = Host("api.anthropic.com")


def allow(draft: Draft, setting: Setting) -> None:
    for word in words(draft, setting):
        allow_one(draft, word)


def deny(draft: Draft, setting: Setting) -> None:
    for word in words(draft, setting):
        deny_one(draft, word)


def allow_one(draft: Draft, word: Word) -> None:
    found = _parsed(word.text)
    if found is None:
        _refuse(draft, "allow", word)
    elif (kind := _kind(found[0].host)) is Kind.PUBLIC:
        _ports(draft, word, found[1])
        draft.add("allow", word)
    else:
        draft.say(Severity.WARNING, word.source, f"{word.text} was left out: {_remedy(kind)}")


def deny_one(draft: Draft, word: Word) -> None:
    if _parsed(word.text) is None:
        _refuse(draft, "deny", word)
    else:
        draft.add("deny", word)


def _refuse(draft: Draft, key: str, word: Word) -> None:
    """The policy reader says what is wrong with it, but for what would mean something else to it: a group."""
    if word.text.startswith("@"):
        draft.say(Severity.ERROR, word.source, f"{word.text[:80]!r} is not a host such as example.com")
    else:
        draft.add(key, word)


def _remedy(kind: Kind) -> str:
    if kind is Kind.LOOPBACK:
        return "inside, that is the sandbox itself; a service of this machine is let in with --host-port PORT"
    return (
        f"it is {kind.words}, {'which needs a rule with `private: true`' if kind.opt_in else 'which is never reached'}"
    )


def _ports(draft: Draft, word: Word, port: int | None) -> None:
    if port is None:
        draft.say_once(Severity.NOTE, word.source, "a host without a port is allowed on 443 and 80, and on no other")


def reaches(draft: Draft, host: Host) -> bool:
    """Whether what is listed so far takes in this host, on the port of TLS."""
    entries = [found for text in draft.texts("allow") if (found := _parsed(text))]
    return any(pattern.matches(host) and port in (None, TLS_PORT) for pattern, port in entries)


def mention_agent(draft: Draft) -> None:
    """Claude Code's own walls stand around its commands; here they stand around Claude Code as well."""
    if not reaches(draft, AGENT_HOST):
        draft.say(
            Severity.WARNING,
            draft.source,
            f"{AGENT_HOST} is not allowed: an agent that runs inside needs it; add --allow {AGENT_HOST}",
        )


def _parsed(text: str) -> tuple[Pattern, int | None] | None:
    try:
        return parse_pattern(text)
    except Malformed:
        return None


def _kind(host: Host) -> Kind:
    if host == "localhost" or host.endswith(".localhost"):
        return Kind.LOOPBACK
    return classify(host) if as_address(host) else Kind.PUBLIC
