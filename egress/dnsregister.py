"""The decisions of the nameserver, and what of them goes on record.

A question has no port, so its name is judged for any port at all. A denial is recorded when its name is
new; an allow is recorded before the packet that it lets out, or does not let it out. Of what a flood
brings beyond its measure there is one record per interval, for the parent: `*.evil.example`.
"""

from __future__ import annotations

from egress.audit import Audit, printable
from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.floods import EVERYTHING, Floods, Sort, parent_of
from egress.model import Decision, Host, Verdict, Via
from egress.refusals import Reason
from egress.sessions import Live

_TOO_MANY = Decision(Verdict.DENY, Reason.LIMIT)


class Register:
    __slots__ = ("_audit", "_denied", "_generation", "_told_full", "_wild", "live", "persona")

    def __init__(self, live: Live, audit: Audit, persona: str, limits: DnsLimits = DNS_LIMITS) -> None:
        self.live, self.persona = live, persona
        self._audit = audit
        self._generation = live.generation
        self._denied = Floods(limits.denied_names, limits.parents, limits.remembered)
        self._wild = Floods(limits.wildcard_names, limits.parents, limits.remembered)
        self._told_full = False

    def decide(self, host: Host) -> Decision:
        """What policy says now."""
        if self._generation != self.live.generation:
            self._generation = self.live.generation
            self._denied.forget()
        return self.live.persona(self.persona).decide_name(host)

    def refuse(self, name: str, decision: Decision) -> Decision:
        """Record a denial whose name is new; of too many new names below one parent the answer is `limit`."""
        name = printable(name)
        sort = self._denied.sort(name, parent_of(name))
        if sort is Sort.NEW:
            self._write(name, decision)
        return _TOO_MANY if sort is Sort.EXCESS else decision

    def permit(self, host: Host, decision: Decision) -> Decision:
        """Record an allow whose packet goes out next; `Refused` when that cannot be.

        A wildcard lets through whatever stands in its place, so the names below one are limited too.
        """
        pattern = decision.rule.pattern if decision.rule else None
        if pattern and pattern.below and self._wild.sort(host, pattern.host) is Sort.EXCESS:
            return _TOO_MANY
        self._write(host, decision)
        return decision

    def full(self, host: Host) -> None:
        """There was no address for a name; once per interval is enough."""
        if not self._told_full:
            self._told_full = True
            self._write(host, _TOO_MANY)

    def turn(self) -> None:
        """An interval is over: say what was too much in it."""
        self._told_full = False
        for floods in (self._denied, self._wild):
            for parent, count in floods.turn().items():
                name = "*" if parent == EVERYTHING else f"*.{parent}"
                self._audit.flood(self._audit.next_id(), self.persona, name, _TOO_MANY, count)

    def _write(self, name: str, decision: Decision) -> None:
        self._audit.decision(self._audit.next_id(), self.persona, Via.DNS, name, None, decision)
