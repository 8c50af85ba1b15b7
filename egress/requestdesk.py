"""One request that is looked into: may it go, with which credential, and how much may it send?

Every way a request comes asks here, in the clear or out of an opened TLS connection, so there is one answer.
"""

from __future__ import annotations

from typing import NamedTuple

from egress.audit import printable
from egress.credentials import NOTHING_TO_EXCHANGE, Exchange, exchange, keep_from_the_open
from egress.model import Decision, Target, Verdict
from egress.names import Malformed, parse_authority
from egress.overrides import check_hosts
from egress.policy import Persona
from egress.refusals import Reason, Refused
from egress.requestpolicy import Asked, decide_request, secrets_of
from egress.rules import Rule
from egress.uploads import Budget, Meter, Uploads
from egress.vault import Vault

_LONGEST_PATH = 2000
_NOT_LISTED = frozenset({Reason.METHOD_NOT_LISTED, Reason.PATH_NOT_LISTED, Reason.HEADER_NOT_LISTED})
HTTP, HTTPS = "http", "https"
_DEFAULT_PORT = {HTTP: 80, HTTPS: 443}


class Ruling(NamedTuple):
    """A decision, and what it means for a request that may go."""

    decision: Decision
    detail: str = ""
    exchange: Exchange = NOTHING_TO_EXCHANGE
    budget: Budget | None = None


class Desk:
    def __init__(self, vault: Vault, uploads: Uploads, *, log_queries: bool = False) -> None:
        self._vault, self.uploads, self._log_queries = vault, uploads, log_queries
        self.observing = False  # and so refuses no request for not being listed

    def judge(self, persona: Persona, target: Target, scheme: str, asked: Asked, length: int = 0) -> Ruling:
        """`length` is that of its body, as far as it is announced."""
        decision = persona.decide(target)
        rules = persona.request_rules(target)
        if decision.allowed and rules:
            decision = self._decide(rules, asked)
        if not decision.allowed or decision.rule is None or not rules:
            return Ruling(decision)
        try:
            check_hosts(asked.fields, target)
            known = self._vault.known(secrets_of(rules))
            if scheme == HTTP:
                keep_from_the_open(known, rules, asked.fields)
            exchanged = exchange(known, asked.fields)
            return Ruling(decision, "", exchanged, self._budget(persona, decision.rule, length))
        except Refused as refused:
            return Ruling(Decision(Verdict.DENY, refused.reason, decision.rule), refused.detail)

    def _decide(self, rules: tuple[Rule, ...], asked: Asked) -> Decision:
        decision = decide_request(rules, asked)
        if self.observing and decision.reason in _NOT_LISTED:
            return Decision(Verdict.ALLOW, Reason.OBSERVED, decision.rule, decision.reason)
        return decision

    def shown(self, asked: Asked) -> tuple[str, str]:
        """Method and path as they are put on record."""
        path, mark, query = asked.path.partition("?")
        if not self._log_queries:
            query = "&".join(map(_masked, query.split("&"))) if query else ""
        return printable(asked.method), _one_word(f"{path}{mark}{query}")

    def named(self, scheme: str, target: Target, asked: Asked) -> str:
        """The request as `egress check` takes it."""
        method, path = self.shown(asked)
        authority = target.host if target.port == _DEFAULT_PORT[scheme] else str(target)
        return f"{method} {scheme}://{authority}{path}"

    def _budget(self, persona: Persona, rule: Rule, length: int) -> Budget | None:
        budget = self.uploads.budget(persona.name, rule)
        if budget is not None:
            Meter(budget, self.uploads.counts).expect(length)
        return budget


def _masked(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"{name}=***" if equals else "***"


def check_host(authority: str, target: Target, scheme: str) -> None:
    """Refused, unless a request's Host or :authority is its connection's target."""
    try:
        named = parse_authority(authority, _DEFAULT_PORT[scheme])
    except Malformed as error:
        raise Refused(Reason.HOST_MISMATCH, str(error)) from None
    if named != target:
        raise Refused(Reason.HOST_MISMATCH, f"it is {printable(authority)}")


def _one_word(path: str) -> str:
    return printable(path, _LONGEST_PATH).replace(" ", "%20")
