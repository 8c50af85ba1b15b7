"""A second word on what policy refuses: an observing gate lets it pass, an asking one asks a person.

Both are given only what nobody has spoken about: a name, a port or a public address that no rule lists. A
deny rule, a metadata service, a private address and whatever is malformed stay refused, and nobody is asked
about them. What is let through gets a rule of its own, for that host and port alone, and goes the way of all
others: its addresses are vetted (the rule does not say private), and on 443 the handshake must name the host.
"""

from __future__ import annotations

from typing import Protocol

from egress.addresses import Kind, classify
from egress.model import Decision, Source, Target, Verdict, Via
from egress.names import as_address
from egress.questions import Choice, NotAsked
from egress.refusals import Reason
from egress.rules import Pattern, Rule

OBSERVING = (
    "warning: --observe: NOTHING is blocked but denied hosts and addresses that are not public",
    "warning: --observe: what would have been blocked is marked in the log; `egress policy draft --last` lists it",
)
ASKING = (
    "--ask: a connection to an unlisted host waits {timeout:g} s for an answer, in `egress watch` or on the live page"
)

_BY_NOBODY = frozenset({Reason.NOT_LISTED, Reason.PORT_NOT_LISTED, Reason.ADDRESS_LITERAL})
_OBSERVE, _ASK = Source("--observe", 0), Source("--ask", 0)
_ANSWERS = {None: Reason.UNANSWERED, Choice.NO: Reason.DECLINED}


class Asker(Protocol):
    """`Questions`, here or in another worker."""

    async def ask(self, persona: str, target: Target, reason: str) -> Choice | None: ...


class Observing:
    """Lets it pass, and says what would have become of it."""

    async def consider(self, persona: str, via: Via, target: Target, refusal: Decision) -> Decision:
        if not is_open(via, target, refusal):
            return refusal
        return Decision(Verdict.ALLOW, Reason.OBSERVED, _rule(target, _OBSERVE), would_deny=refusal.reason)


class Asking:
    """Asks a person, and waits."""

    def __init__(self, questions: Asker) -> None:
        self.questions = questions

    async def consider(self, persona: str, via: Via, target: Target, refusal: Decision) -> Decision:
        if not is_open(via, target, refusal):
            return refusal
        try:
            choice = await self.questions.ask(persona, target, refusal.reason)
        except NotAsked:
            return refusal
        if choice in _ANSWERS:
            return Decision(Verdict.DENY, _ANSWERS[choice], refusal.rule)
        return Decision(Verdict.ALLOW, Reason.ANSWERED, _rule(target, _ASK))


def is_open(via: Via, target: Target, refusal: Decision) -> bool:
    """Whether a refusal is one that nobody decided, and that a rule for this very target would lift."""
    if refusal.reason not in _BY_NOBODY or via is Via.DNS:
        return False
    if via is Via.HTTP and _rule(target, _ASK).expects_tls(target.port):
        return False  # such a rule would refuse it as well
    return _may_be_public(target)


def _may_be_public(target: Target) -> bool:
    """A name may, until it is resolved; but those of RFC 6761 section 6.3 are this very host."""
    if as_address(target.host) is not None:
        return classify(target.host) is Kind.PUBLIC
    return target.host.rpartition(".")[2] != "localhost"


def _rule(target: Target, source: Source) -> Rule:
    return Rule(Pattern(target.host), frozenset({target.port}), source=source)
