"""What would have let a refused connection through, where anything would."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from egress.addresses import Kind, classify
from egress.auditsummary import MOST_PORTS
from egress.model import Target
from egress.names import Malformed, as_address, parse_host
from egress.refusals import Reason
from egress.rules import TLS_PORT
from egress.ruletext import as_word, as_yaml

_MOST_WORDS = 3  # past that one rule that lists its ports is shorter
_BY_A_RULE = frozenset({
    Reason.NOT_LISTED, Reason.PORT_NOT_LISTED, Reason.ADDRESS_LITERAL, Reason.RESOLVED_PRIVATE, Reason.REVOKED,
    Reason.DECLINED, Reason.UNANSWERED,
})  # fmt: skip
_BY_MORE = frozenset({Reason.METHOD_NOT_LISTED, Reason.PATH_NOT_LISTED})


def is_private(target: Target, reason: Reason) -> bool:
    """Whether the rule that it needs must say `private: true`."""
    if reason is Reason.ADDRESS_LITERAL:
        return as_address(target.host) is not None and classify(target.host) is not Kind.PUBLIC
    return reason is Reason.RESOLVED_PRIVATE


def words_for(host: str, ports: Collection[int], reason: str) -> list[str]:
    """The rules that would allow a host of the log, each as one word; none where it needs more, or none helps."""
    targets = _targets(host, ports) if reason in _BY_A_RULE else []
    return list(dict.fromkeys(as_word(target) for target in targets if not is_private(target, Reason(reason))))


def remedy(host: str, ports: Collection[int], reason: str, rule: str | None) -> list[str]:
    """Lines for a person; none where no line would help. What is for pasting is fit for it."""
    if reason == Reason.DENIED:
        return [f"take away the denial {rule}"]
    if reason in _BY_MORE:
        return [f"add to the methods or paths of {rule}"]
    if words := words_for(host, ports, reason):
        return [_allow(words) if len(words) <= _MOST_WORDS else _listed(host, ports)]
    if reason not in _BY_A_RULE:
        return []
    instead = f"  (in place of {rule})" if reason == Reason.RESOLVED_PRIVATE and rule else ""
    return [f"- {as_yaml(target, private=True)}{instead}" for target in _targets(host, ports)]


def _allow(words: Iterable[str]) -> str:
    return " ".join(f"--allow {shlex.quote(word)}" for word in words)


def _listed(host: str, ports: Collection[int]) -> str:
    name = as_yaml(Target(parse_host(host), TLS_PORT), private=False)
    return f"- {{host: {name}, ports: {sorted(ports)}}}"


def _targets(host: str, ports: Collection[int]) -> list[Target]:
    """What a log calls a host may be anything; only a host is taken for one, and a scan of ports for none."""
    try:
        canonical = parse_host(host)
    except Malformed:
        return []
    return [Target(canonical, port) for port in sorted(ports) or [TLS_PORT]] if len(ports) < MOST_PORTS else []
