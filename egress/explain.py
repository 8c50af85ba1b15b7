"""What the gate would answer about a host or a request, and why, before anyone has asked it.

The same functions as the gate's own, and nothing is looked up: a name's addresses are judged only where the
policy itself gives them, as a literal or under `hosts:`. Of a secret only its placeholder is known here.
"""

from __future__ import annotations

from typing import NamedTuple

from egress.credentials import Known, exchange, keep_from_the_open
from egress.inquiry import OVER_TLS, PLAIN, Inquiry
from egress.model import Candidate, Decision, Target, Verdict
from egress.names import Malformed, as_address
from egress.overrides import check_hosts
from egress.policy import Listeners, Persona, Policy, vet
from egress.refusals import TABLE, Reason, Refused
from egress.requestpolicy import Asked, decide_request, secrets_of
from egress.rules import Rule, parse_target
from egress.urlpath import Ambiguous, canonical

_LONGEST = 300


class Answer(NamedTuple):
    asked: str  # the target or request, or what was typed where it is none
    target: Target | None
    decision: Decision
    detail: str = ""
    request: Asked | None = None  # where it was the request that was judged
    rules: tuple[Rule, ...] = ()  # that look at requests to the target, the first of them speaks for the connection


def judge(inquiry: Inquiry, persona: Persona, policy: Policy) -> Answer:
    """What would come of it."""
    try:
        target = parse_target(inquiry.place)
    except Malformed as error:
        return unreadable(inquiry.place, error)
    rules = persona.request_rules(target)
    request = inquiry.request if inquiry.explicit or rules else None
    answer = Answer(_asked(inquiry, target, request), target, persona.decide(target), "", request, rules)
    try:
        _check_connection(answer, inquiry.scheme, policy)
        return answer if request is None or not rules else _check_request(answer, request, inquiry.scheme)
    except Refused as refused:
        decision = Decision(Verdict.DENY, refused.reason, answer.decision.rule)
        return answer._replace(decision=decision, detail=refused.detail)


def unreadable(text: str, error: ValueError) -> Answer:
    """What was typed names no host."""
    return Answer(text[:_LONGEST], None, Decision(Verdict.DENY, Reason.MALFORMED_HOST), str(error))


def sentence(answer: Answer, persona: Persona) -> str:
    target = str(answer.target) if answer.target else visible(answer.asked)
    return TABLE[answer.decision.reason].sentence.format(target=target, persona=persona.name)


def visible(text: str) -> str:
    return text if text.isascii() and text.isprintable() else ascii(text)


def _asked(inquiry: Inquiry, target: Target, request: Asked | None) -> str:
    if request is None:
        return str(target)
    place = inquiry.place if inquiry.scheme else f"https://{inquiry.place}"
    return f"{request.method} {place}{request.path}"


def _check_connection(answer: Answer, scheme: str, policy: Policy) -> None:
    """What the gate finds out once a name and port are allowed."""
    rule, target = answer.decision.rule, answer.target
    if not answer.decision.allowed or rule is None or target is None:
        return
    if known := _known_addresses(target, policy):
        vet(known, rule, Listeners())
    tls = rule.expects_tls(target.port)
    if tls and scheme in PLAIN:
        raise Refused(Reason.NOT_TLS, f"TLS is expected on port {target.port}, and {scheme} is in the clear")
    if answer.rules and not tls and scheme in OVER_TLS:
        raise Refused(Reason.NOT_HTTP, f"TLS is not expected on port {target.port}, where requests are looked at")


def _check_request(answer: Answer, request: Asked, scheme: str) -> Answer:
    decision = decide_request(answer.rules, request)
    if decision.allowed and answer.target is not None:
        check_hosts(request.fields, answer.target)
        known = [Known(secret, secret.placeholder) for secret in secrets_of(answer.rules)]
        if scheme in PLAIN:
            keep_from_the_open(known, answer.rules, request.fields)
        exchange(known, request.fields)
    detail = _why_ambiguous(request) if decision.reason is Reason.AMBIGUOUS_PATH else ""
    return answer._replace(decision=decision, detail=detail)


def _why_ambiguous(request: Asked) -> str:
    try:
        canonical(request.path)
    except Ambiguous as error:
        return f"the path {error}"
    return "a header gives the path a second time"


def _known_addresses(target: Target, policy: Policy) -> list[Candidate]:
    if fixed := policy.hosts.get(target.host):
        return [Candidate(fixed.ip, fixed.port or target.port)]
    return [Candidate(target.host, target.port)] if as_address(target.host) else []
