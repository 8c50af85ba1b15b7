"""What an observing gate does with requests that no rule lists."""

from __future__ import annotations

from egress.model import Host, Target, Verdict
from egress.policy import Persona, Policy
from egress.refusals import Reason
from egress.requestdesk import HTTPS, Desk
from egress.requestpolicy import Asked
from egress.rules import Pattern, Requests, Rule, Secret
from egress.uploads import Uploads
from egress.vault import Vault

TARGET = Target(Host("api.test"), 443)
SECRET = Secret("x-api-key", env="KEY")
PERSONA = Persona(
    "p",
    (
        Rule(Pattern(TARGET.host), requests=Requests(methods=frozenset({"GET"}), paths=("/ok/**",))),
        Rule(Pattern(TARGET.host), requests=Requests(secret=SECRET)),
    ),
)


def desk(*, observing: bool) -> Desk:
    vault = Vault({"KEY": "a-real-value"})
    vault.settle(Policy({"p": PERSONA}), {"p"})
    made = Desk(vault, Uploads())
    made.observing = observing
    return made


def test_a_request_that_no_rule_lists_passes_and_is_marked() -> None:
    decision = desk(observing=True).judge(PERSONA, TARGET, HTTPS, Asked("PUT", "/ok/1")).decision
    assert (decision.verdict, decision.reason, decision.would_deny) == (
        Verdict.ALLOW,
        Reason.OBSERVED,
        Reason.METHOD_NOT_LISTED,
    )


def test_one_that_is_listed_is_not_marked() -> None:
    decision = desk(observing=True).judge(PERSONA, TARGET, HTTPS, Asked("GET", "/ok/1")).decision
    assert (decision.reason, decision.would_deny) == (Reason.LISTED, None)


def test_a_credential_of_its_own_is_refused_all_the_same() -> None:
    asked = Asked("PUT", "/elsewhere", (("x-api-key", "stolen-from-somebody"),))
    assert desk(observing=True).judge(PERSONA, TARGET, HTTPS, asked).decision.reason is Reason.CREDENTIAL_MISMATCH


def test_an_ambiguous_path_is_refused_all_the_same() -> None:
    asked = Asked("GET", "/ok/%2e%2e/secret")
    assert desk(observing=True).judge(PERSONA, TARGET, HTTPS, asked).decision.reason is Reason.AMBIGUOUS_PATH


def test_a_gate_that_does_not_observe_refuses_it() -> None:
    decision = desk(observing=False).judge(PERSONA, TARGET, HTTPS, Asked("PUT", "/ok/1")).decision
    assert (decision.verdict, decision.reason) == (Verdict.DENY, Reason.METHOD_NOT_LISTED)
