"""What policy refuses, and what observing or asking makes of it."""

from __future__ import annotations

import asyncio

import pytest

from egress.counsel import Asking, Observing
from egress.model import Decision, Host, Target, Verdict, Via
from egress.policy import Persona
from egress.questions import Choice, Questions
from egress.refusals import Reason
from egress.rules import parse_rule

PERSONA = Persona("p", [parse_rule("listed.test")], [parse_rule("denied.test")])
LIFTED = {
    ("evil.example", 443): Reason.NOT_LISTED,
    ("listed.test", 22): Reason.PORT_NOT_LISTED,
    ("1.1.1.1", 443): Reason.ADDRESS_LITERAL,
    ("2606:4700:4700::1111", 853): Reason.ADDRESS_LITERAL,
}
KEPT = {
    ("denied.test", 443): Reason.DENIED,
    ("169.254.169.254", 80): Reason.METADATA_ADDRESS,
    ("127.0.0.1", 5432): Reason.ADDRESS_LITERAL,
    ("10.0.0.7", 443): Reason.ADDRESS_LITERAL,
    ("64:ff9b::a00:7", 443): Reason.ADDRESS_LITERAL,
    ("localhost", 80): Reason.NOT_LISTED,
    ("x.localhost", 80): Reason.NOT_LISTED,
}


def at(host: str, port: int) -> Target:
    return Target(Host(host), port)


async def observed(target: Target, via: Via = Via.CONNECT) -> Decision:
    return await Observing().consider("p", via, target, PERSONA.decide(target))


async def asked(target: Target, choice: Choice | None, via: Via = Via.CONNECT) -> tuple[Decision, int]:
    """What comes of it, and how many questions were asked."""
    new: list[int] = []
    desk = Questions(
        asyncio.get_running_loop(),
        0.01 if choice is None else 60,
        on_question=lambda question: new.append(question.id),
    )
    if choice is not None:
        desk.subscribe(lambda: [desk.answer(each.id, choice) for each in desk.pending()])
    try:
        return await Asking(desk).consider("p", via, target, PERSONA.decide(target)), len(new)
    finally:
        desk.close()


@pytest.mark.parametrize("where", LIFTED)
async def test_an_observing_gate_lets_pass_what_nobody_spoke_about(where: tuple[str, int]) -> None:
    target = at(*where)
    decision = await observed(target)
    assert decision[:2] == (Verdict.ALLOW, Reason.OBSERVED)
    assert decision.would_deny is LIFTED[where]
    assert decision.rule is not None
    assert str(decision.rule) == f"--observe {where[0]}"
    assert (decision.rule.ports, decision.rule.private) == ({where[1]}, False)
    assert decision.rule.expects_tls(target.port) == (target.port == 443)


@pytest.mark.parametrize("where", KEPT)
@pytest.mark.parametrize("via", [Via.CONNECT, Via.CAPTURE, Via.SOCKS5])
async def test_what_is_denied_or_not_public_stays_refused_and_nobody_is_asked(where: tuple[str, int], via: Via) -> None:
    refusal = PERSONA.decide(at(*where))
    assert refusal.reason is KEPT[where]
    assert await observed(at(*where), via) == refusal
    assert await asked(at(*where), Choice.ALWAYS, via) == (refusal, 0)


async def test_plain_http_to_the_port_of_tls_stays_refused() -> None:
    target = at("evil.example", 443)
    assert await observed(target, Via.HTTP) == PERSONA.decide(target)
    assert await asked(target, Choice.ONCE, Via.HTTP) == (PERSONA.decide(target), 0)
    assert (await observed(at("evil.example", 80), Via.HTTP)).allowed


async def test_a_name_that_is_only_looked_up_is_not_asked_about() -> None:
    target = at("evil.example", 443)
    assert await asked(target, Choice.ONCE, Via.DNS) == (PERSONA.decide(target), 0)


@pytest.mark.parametrize("choice", [Choice.ONCE, Choice.SESSION, Choice.ALWAYS])
async def test_a_yes_lets_it_through_by_a_rule_of_its_own(choice: Choice) -> None:
    decision, count = await asked(at("evil.example", 8443), choice)
    assert count == 1
    assert decision[:2] == (Verdict.ALLOW, Reason.ANSWERED)
    assert str(decision.rule) == "--ask evil.example"
    assert decision.rule is not None
    assert (decision.rule.ports, decision.rule.private) == ({8443}, False)
    assert decision.would_deny is None


@pytest.mark.parametrize(("choice", "reason"), [(Choice.NO, Reason.DECLINED), (None, Reason.UNANSWERED)])
async def test_a_no_and_no_answer_have_their_own_reasons(choice: Choice | None, reason: Reason) -> None:
    decision, count = await asked(at("evil.example", 443), choice)
    assert (decision.verdict, decision.reason, count) == (Verdict.DENY, reason, 1)


async def test_what_cannot_be_asked_is_refused_as_it_was() -> None:
    desk = Questions(asyncio.get_running_loop())
    desk.close()
    target = at("evil.example", 443)
    assert await Asking(desk).consider("p", Via.CONNECT, target, PERSONA.decide(target)) == PERSONA.decide(target)
