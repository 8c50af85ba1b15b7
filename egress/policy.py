"""The one decision. Pure: no clock, no socket, no file.

    persona.decide(target)         may this name and port be reached at all?
    persona.request_rules(target)  if so, which rules judge each request? (`requestpolicy` asks them)
    vet(candidates, rule, …)       of the addresses it resolved to, which may be dialled?

Judgement, in order: addresses that no rule can allow; the deny list; the allow list; not listed.
Among allow rules the most specific pattern that grants the port speaks: an exact host before a
wildcard, a longer wildcard before a shorter one, and of rules for the same pattern those that look at
requests first, then the earlier line: it says what is true of the connection (`tls`, `private`), and all
that look at requests say together which of them may pass. Denial needs no such order: any deny rule that matches wins.

Matching is a lookup, not a walk over rules. Each pattern has one entry with its answer per port made
in advance, so a decision is a dictionary look-up per label of the name, however many rules there are.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from egress.addresses import Kind, classify, readings
from egress.model import Candidate, Decision, Host, Target, Verdict, Vetted
from egress.names import as_address
from egress.refusals import Reason, Refused
from egress.rules import Pattern, Rule
from egress.surroundings import Filesystem, Tools, Walls

if TYPE_CHECKING:
    from egress.foreign.translation import Remark

_NOT_LISTED = Decision(Verdict.DENY, Reason.NOT_LISTED)
_LITERAL = Decision(Verdict.DENY, Reason.ADDRESS_LITERAL)
_METADATA = Decision(Verdict.DENY, Reason.METADATA_ADDRESS)
_NO_PORT = 0  # which no rule grants


class Entry(NamedTuple):
    """What one pattern answers: per port, and for any other port (None: it has no opinion)."""

    ports: Mapping[int, Decision]
    other: Decision | None


class Index:
    """Entries by the host of their pattern: for that host, and for all names below it."""

    __slots__ = ("below", "exact")

    def __init__(self, exact: Mapping[str, Entry], below: Mapping[str, Entry]) -> None:
        self.exact = exact
        self.below = below

    def find(self, host: str) -> Iterator[Entry]:
        """The entries that speak for a host, the most specific first."""
        entry = self.exact.get(host)
        if entry is not None:
            yield entry
        below = self.below
        dot = host.find(".") if below else -1
        while dot >= 0:
            entry = below.get(host[dot + 1 :])
            if entry is not None:
                yield entry
            dot = host.find(".", dot + 1)


_NO_FILES, _NO_TOOLS, _NO_WALLS = Filesystem(), Tools(), Walls()


class Persona:
    """A named set of rules, indexed for asking."""

    __slots__ = (
        *("_allow", "_deny", "_requests", "allow", "deny", "description"),
        *("env", "filesystem", "name", "tools", "walls"),
    )

    def __init__(
        self,
        name: str,
        allow: Iterable[Rule] = (),
        deny: Iterable[Rule] = (),
        description: str = "",
        env: tuple[str, ...] = (),
        filesystem: Filesystem = _NO_FILES,
        tools: Tools = _NO_TOOLS,
        walls: Walls = _NO_WALLS,
    ) -> None:
        self.name = name
        self.filesystem, self.tools, self.walls = filesystem, tools, walls
        self.description = description
        self.env = env
        self.allow = tuple(allow)
        self.deny = tuple(deny)
        self._allow = _index(self.allow, Verdict.ALLOW)
        self._deny = _index(self.deny, Verdict.DENY)
        self._requests = _by_pattern_and_port(rule for rule in self.allow if rule.needs_inspection)

    def decide(self, target: Target) -> Decision:
        host, port = target
        literal = as_address(host)
        if literal is not None and not classify(host).opt_in:
            return _METADATA
        for entry in self._deny.find(host):
            if denial := entry.ports.get(port, entry.other):
                return denial
        refusal = _NOT_LISTED if literal is None else _LITERAL
        for entry in self._allow.find(host):
            if permit := entry.ports.get(port):
                return permit
            if refusal.rule is None and entry.other is not None:
                refusal = entry.other
        return refusal

    def replace(self, allow: Iterable[Rule]) -> Persona:
        """The same persona with other rules that allow."""
        room = self.env, self.filesystem, self.tools, self.walls
        return Persona(self.name, allow, self.deny, self.description, *room)

    def decide_name(self, host: Host) -> Decision:
        """May this host be reached on any port at all? DNS asks before a port is known."""
        refusal = self.decide(Target(host, _NO_PORT))
        if refusal.reason is not Reason.PORT_NOT_LISTED:
            return refusal  # not listed, or denied on every port
        ports = (port for entry in self._allow.find(host) for port in entry.ports)
        answers = [*(self.decide(Target(host, port)) for port in ports), refusal]
        return next((answer for answer in answers if answer.allowed), answers[0])

    def request_rules(self, target: Target) -> tuple[Rule, ...]:
        """The rules that judge the requests to a target, in their order; none where nobody looks at them."""
        decision = self.decide(target)
        rule = decision.rule
        if not decision.allowed or rule is None or not rule.needs_inspection:
            return ()
        return self._requests[rule.pattern, target.port]

    @property
    def inspected(self) -> tuple[Pattern, ...]:
        """The hosts whose TLS is opened."""
        rules = (rule for rule in self.allow if rule.needs_inspection and any(map(rule.expects_tls, rule.ports)))
        return tuple(dict.fromkeys(rule.pattern for rule in rules))

    @property
    def needs_inspection(self) -> Rule | None:
        """The first rule that cannot be enforced without looking into requests."""
        return next((rule for rule in self.allow if rule.needs_inspection), None)


class Fixed(NamedTuple):
    """An address given by `hosts:`; the port, where given, replaces the one asked for."""

    ip: str
    port: int | None = None


class Policy(NamedTuple):
    """Everything the files say, at one moment."""

    personas: Mapping[str, Persona]
    hosts: Mapping[Host, Fixed] = {}
    remarks: tuple[Remark, ...] = ()  # of other tools' files, each for the personas that it is about

    def warnings(self, personas: Container[str]) -> list[str]:
        """What must be said to whoever runs these."""
        found = [it for it in self.remarks if it.severity == "warning" and (not it.persona or it.persona in personas)]
        return list(dict.fromkeys(map(str, found)))


class Listeners(NamedTuple):
    """Where the gate itself listens: exact addresses, and ports bound on every address."""

    exact: frozenset[tuple[str, int]] = frozenset()
    wildcard: frozenset[int] = frozenset()

    def has(self, candidate: Candidate) -> bool:
        ip, port, own = candidate
        if port in self.wildcard and (own or classify(ip) is Kind.LOOPBACK):
            return True
        forms = map(str, readings(ip_address(ip))) if ":" in ip else (ip,)  # ::ffff:127.0.0.1 is 127.0.0.1
        return any((form, port) in self.exact for form in forms)


def vet(candidates: Iterable[Candidate], rule: Rule, listeners: Listeners) -> Vetted:
    """Keep the addresses that the rule may lead to; if none is left, the first refusal is the answer."""
    kept, refusals = [], []
    for candidate in candidates:
        refusal = _objection(candidate, rule, listeners)
        if refusal is None:
            kept.append(candidate)
        else:
            refusals.append(refusal)
    if not kept:
        raise refusals[0] if refusals else Refused(Reason.UNRESOLVED, "no address")
    return Vetted(tuple(kept))


def _objection(candidate: Candidate, rule: Rule, listeners: Listeners) -> Refused | None:
    kind = classify(candidate.ip)
    if not kind.opt_in:
        return Refused(Reason.METADATA_ADDRESS, f"{candidate.ip} is {kind.words}")
    if listeners.has(candidate):
        return Refused(Reason.OWN_LISTENER, f"{candidate.ip} port {candidate.port} is the gate's own listener")
    if rule.private or (kind is Kind.PUBLIC and not candidate.own):
        return None
    words = "an address of this host" if candidate.own else kind.words
    return Refused(Reason.RESOLVED_PRIVATE, f"{candidate.ip} is {words}")


def _index(rules: tuple[Rule, ...], verdict: Verdict) -> Index:
    exact: dict[str, list[Rule]] = {}
    below: dict[str, list[Rule]] = {}
    for rule in rules:
        (below if rule.pattern.below else exact).setdefault(rule.pattern.host, []).append(rule)
    return Index(
        {host: _entry(group, verdict) for host, group in exact.items()},
        {host: _entry(group, verdict) for host, group in below.items()},
    )


def _by_pattern_and_port(rules: Iterable[Rule]) -> Mapping[tuple[Pattern, int], tuple[Rule, ...]]:
    found: dict[tuple[Pattern, int], tuple[Rule, ...]] = {}
    for rule in rules:
        for port in rule.ports:
            found[rule.pattern, port] = (*found.get((rule.pattern, port), ()), rule)
    return found


def _entry(rules: list[Rule], verdict: Verdict) -> Entry:
    reason = Reason.LISTED if verdict is Verdict.ALLOW else Reason.DENIED
    ports: dict[int, Decision] = {}
    ordered = sorted(rules, key=lambda rule: not rule.needs_inspection) if len(rules) > 1 else rules
    for rule in ordered:
        answer = Decision(verdict, reason, rule)
        for port in rule.ports:
            ports.setdefault(port, answer)
    if verdict is Verdict.ALLOW:
        return Entry(ports, Decision(Verdict.DENY, Reason.PORT_NOT_LISTED, rules[0]))
    everywhere = next((rule for rule in rules if rule.all_ports), None)
    return Entry(ports, everywhere and Decision(verdict, reason, everywhere))
