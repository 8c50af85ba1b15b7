"""What the gate would answer about a target, and why, before anyone has asked it.

The same functions as the gate's own, and nothing is looked up: a name's addresses are judged only where the
policy itself gives them, as a literal or under `hosts:`.
"""

from __future__ import annotations

from typing import NamedTuple

from egress.model import Candidate, Decision, Target, Verdict
from egress.names import Malformed, as_address
from egress.policy import Listeners, Persona, Policy, vet
from egress.refusals import TABLE, Reason, Refused
from egress.rules import parse_target

_LONGEST = 300


class Answer(NamedTuple):
    asked: str  # the target, or what was typed where it is none
    target: Target | None
    decision: Decision
    detail: str = ""


def judge(text: str, persona: Persona, policy: Policy) -> Answer:
    """What would come of a connection to what a person typed."""
    try:
        target = parse_target(text)
    except Malformed as error:
        return Answer(text[:_LONGEST], None, Decision(Verdict.DENY, Reason.MALFORMED_HOST), str(error))
    decision = persona.decide(target)
    known = _known_addresses(target, policy)
    try:
        if decision.allowed and decision.rule and known:
            vet(known, decision.rule, Listeners())
    except Refused as refused:
        decision = Decision(Verdict.DENY, refused.reason, decision.rule)
        return Answer(str(target), target, decision, refused.detail)
    return Answer(str(target), target, decision)


def sentence(answer: Answer, persona: Persona) -> str:
    return TABLE[answer.decision.reason].sentence.format(target=visible(answer.asked), persona=persona.name)


def visible(text: str) -> str:
    return text if text.isascii() and text.isprintable() else ascii(text)


def _known_addresses(target: Target, policy: Policy) -> list[Candidate]:
    if fixed := policy.hosts.get(target.host):
        return [Candidate(fixed.ip, fixed.port or target.port)]
    return [Candidate(target.host, target.port)] if as_address(target.host) else []
