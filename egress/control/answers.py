"""What the page and `egress watch` can ask of a gate, as values that go out as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from egress import __version__, explain
from egress.advice import remedy
from egress.explain import Answer
from egress.gateway import Gateway
from egress.inquiry import NoInquiry, read_inquiry
from egress.policy import Persona, Policy
from egress.questions import Questions
from egress.requestadvice import entry_for
from egress.rules import Rule
from egress.ruletext import terms_of


def state(gate: Gateway, doors: Iterable[str]) -> dict[str, Any]:
    tally = gate.audit.tally
    return {
        "session": gate.audit.session,
        "version": __version__,
        "personas": list(gate.live.policy.personas),
        "doors": list(doors),
        "generation": gate.live.generation,
        "open": gate.traffic.everywhere,
        "allowed": tally.allowed,
        "blocked": sum(tally.blocked.values()),
        "failing": gate.audit.trouble,
        "now": time.time(),
    }


def pending(questions: Questions | None) -> dict[str, Any]:
    waiting = () if questions is None else questions.pending()
    return {"asking": questions is not None, "pending": [question._asdict() for question in waiting]}


def rules(persona: Persona) -> dict[str, Any]:
    return {
        "name": persona.name,
        "description": persona.description,
        "allow": [_rule(rule, everywhere=False) for rule in persona.allow],
        "deny": [_rule(rule, everywhere=rule.all_ports) for rule in persona.deny],
    }


def why(text: str, persona: Persona, gate: Gateway) -> dict[str, Any]:
    """What would come of a connection or a request, for what reason, and what would change it."""
    answer = _judge(text, persona, gate.live.policy)
    decision = answer.decision
    return {
        "asked": explain.visible(answer.asked),
        "persona": persona.name,
        "verdict": decision.verdict,
        "reason": decision.reason,
        "sentence": explain.sentence(answer, persona),
        "detail": answer.detail,
        "rule": None if decision.rule is None else str(decision.rule),
        "terms": terms_of(decision.rule) if decision.rule and decision.allowed else "",
        "remedy": _remedy(answer),
    }


def _judge(text: str, persona: Persona, policy: Policy) -> Answer:
    try:
        return explain.judge(read_inquiry([text]), persona, policy)
    except NoInquiry as error:
        return explain.unreadable(text, error)


def _remedy(answer: Answer) -> list[str]:
    """Lines for a person; the entry for a request where one would allow it."""
    target, decision = answer.target, answer.decision
    if decision.allowed or target is None:
        return []
    if entry := entry_for(answer):
        return [f"- {entry}"]
    return remedy(target.host, [target.port], decision.reason, decision.rule and str(decision.rule))


def _rule(rule: Rule, everywhere: bool) -> dict[str, Any]:
    return {
        "host": str(rule.pattern),
        "ports": [] if everywhere else sorted(rule.ports),
        "terms": terms_of(rule),
        "source": str(rule.source),
    }
