"""What is legal in a policy and still worth a second look.

A warning earns its place when a reader would change the line or add the reason for it: a host that
undoes the list, a line that can never speak, a promise that the line does not keep. Narrowing what a
group or a parent gave, and overriding it, are the language at work and are not warned about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from egress.addresses import Kind, classify
from egress.hazards import NO_REQUESTS, PORTS, SHARED, hazard_at, hazard_below, parents
from egress.model import Host
from egress.names import as_address
from egress.overlaps import at_odds, overridden, silent
from egress.policybook import Book
from egress.policyfile import Entries, Group, Profile, Ref
from egress.problems import Problem
from egress.rules import TLS_PORT, Pattern, Rule
from egress.suffixes import suffixes_below

_HTTP_PORT = 80


def lint(book: Book, files: Collection[str] | None = None) -> list[Problem]:
    """The warnings about what is in force, or about those lines of it that stand in `files`."""
    found = chain(
        _about_rules(book),
        _about_lists(book),
        _about_personas(book),
        _about_groups(book),
        _about_hosts(book),
        (Problem(it.source, it.message) for it in book.remarks if it.severity == "warning"),
    )
    return sorted({problem for problem in found if files is None or problem.source.file in files})


def _lists(book: Book) -> Iterator[tuple[Entries, Group | None]]:
    """Every list that allows, and the group that it is."""
    yield from ((group.entries, group) for group in book.groups.values())
    yield from ((profile.allow, None) for profile in book.personas.values())


def _own(entries: Entries) -> Iterator[Rule]:
    return (entry for entry in entries if isinstance(entry, Rule))


def _about_rules(book: Book) -> Iterator[Problem]:
    for entries, _ in _lists(book):
        for rule in _own(entries):
            yield from (Problem(rule.source, message) for check in _CHECKS for message in check(rule))
            yield from _about_fixed(book, rule)


def _hazard(rule: Rule) -> Iterator[str]:
    if hazard := hazard_at(rule.pattern.host):
        yield f"{rule.pattern}: {hazard.host} {hazard.words}"
    elif rule.pattern.below and (hazard := hazard_below(rule.pattern.host)):
        yield f"{rule.pattern} takes in {hazard.host}, which {hazard.words}; list the hosts that are needed"


def _shared(rule: Rule) -> Iterator[str]:
    host = rule.pattern.host
    if rule.pattern.below and (suffix := host if host in SHARED else suffixes_below().get(host)):
        yield f"{rule.pattern}: anyone can have a name below {suffix}; list the hosts that are needed"


def _ports(rule: Rule) -> Iterator[str]:
    for port in sorted(rule.ports & PORTS.keys()):
        yield f"{rule.pattern}: port {port} {PORTS[port]}"


def _private_wildcard(rule: Rule) -> Iterator[str]:
    if rule.private and rule.pattern.below:
        yield f"{rule.pattern}: with private: true, whoever names hosts below it chooses addresses of your network"


def _tls(rule: Rule) -> Iterator[str]:
    if rule.tls is False and TLS_PORT in rule.ports:
        yield f"{rule.pattern}: with tls: false no server name is checked on {TLS_PORT}; give the raw port its own rule"
    if rule.tls and _HTTP_PORT in rule.ports:
        yield f"{rule.pattern}: with tls: true plain HTTP fails on port {_HTTP_PORT}; write ports: [{TLS_PORT}]"


def _secret(rule: Rule) -> Iterator[str]:
    if rule.requests is None or rule.requests.secret is None:
        return
    source = rule.requests.secret.source
    open_ports = sorted(port for port in rule.ports if not rule.expects_tls(port))
    if open_ports and rule.tls is False:
        yield f"{rule.pattern}: with tls: false the secret from {source} goes out in the clear"
    elif open_ports:
        yield f"{rule.pattern}: the secret from {source} is not put in where there is no TLS; {_only_tls(rule)}"
    if rule.pattern.below:
        yield f"{rule.pattern}: the secret from {source} is given to every host below it; list those that may have it"


def _only_tls(rule: Rule) -> str:
    return f"write ports: [{TLS_PORT}]" if TLS_PORT in rule.ports else "write tls: true"


def _no_requests(rule: Rule) -> Iterator[str]:
    """Ports where what is looked at cannot come."""
    for port in sorted(rule.ports) if rule.needs_inspection else ():
        if port in NO_REQUESTS:
            yield f"{rule.pattern}: port {port} is for {NO_REQUESTS[port]}, which has no requests to look at"
        elif str(port).endswith(str(TLS_PORT)) and not rule.expects_tls(port):
            yield f"{rule.pattern}: without tls: true only plain HTTP passes on port {port}"


def _address(rule: Rule) -> Iterator[str]:
    host = rule.pattern.host
    if host == "localhost" or host.endswith(".localhost"):
        kind = Kind.LOOPBACK
    elif as_address(host):
        kind = classify(host)
    else:
        return
    yield from _unreachable(rule, f"{host} is {kind.words}", kind)


def _unreachable(rule: Rule, fact: str, kind: Kind) -> Iterator[str]:
    if not kind.opt_in:
        yield f"{rule.pattern} can never be reached: {fact}"
    elif kind is not Kind.PUBLIC and not rule.private:
        yield f"{rule.pattern} can never be reached: {fact}, and the rule lacks private: true"


_CHECKS = (_hazard, _shared, _ports, _private_wildcard, _tls, _secret, _no_requests, _address)


def _about_fixed(book: Book, rule: Rule) -> Iterator[Problem]:
    fixed = book.hosts.get(rule.pattern.host)
    if fixed and not rule.pattern.below:
        ip = fixed[0].ip
        kind = classify(ip)
        fact = f"hosts: gives it {ip}, {kind.words}"
        yield from (Problem(rule.source, message) for message in _unreachable(rule, fact, kind))


def _about_lists(book: Book) -> Iterator[Problem]:
    """Lines that other lines of the same list always answer for."""
    for entries, group in _lists(book):
        rules = list(book.rules([entries], group))
        yield from _told(chain(silent(rules), overridden(rules), at_odds(rules)), entries)


def _told(found: Iterable[tuple[Rule, str]], entries: Entries) -> Iterator[Problem]:
    """What was found about lines that stand in this very list."""
    own = {id(rule) for rule in _own(entries)}
    return (Problem(rule.source, f"{rule.pattern} {words}") for rule, words in found if id(rule) in own)


def _about_personas(book: Book) -> Iterator[Problem]:
    for name, profile in book.personas.items():
        family = list(book.lineage(name))
        allowed = list(book.rules(relative.allow for relative in family))
        if not allowed:
            yield Problem(profile.source, f"persona {name!r} allows nothing")
        yield from _told(overridden(allowed), profile.allow)  # a plain line does not undo what a parent looks at
        yield from _passed_in(allowed, {variable for relative in family for variable in relative.env})
        yield from _denied(profile, book.rules(relative.deny for relative in family))


def _passed_in(allowed: list[Rule], variables: set[str]) -> Iterator[Problem]:
    for rule in allowed:
        secret = rule.requests and rule.requests.secret
        if secret and secret.env in variables:
            yield Problem(rule.source, f"the secret {secret.env} is kept outside, and env: passes it into the sandbox")


def _denied(profile: Profile, denials: Iterable[Rule]) -> Iterator[Problem]:
    """A persona's own lines that its deny list, or that of a parent, takes back whole."""
    by_pattern: dict[Pattern, list[Rule]] = {}
    for denial in denials:
        by_pattern.setdefault(denial.pattern, []).append(denial)
    for rule in _own(profile.allow) if by_pattern else ():
        covers = [rule.pattern, *(Pattern(Host(parent), True) for parent in parents(rule.pattern.host))]
        against = [denial for pattern in covers for denial in by_pattern.get(pattern, ())]
        if all(any(denial.all_ports or port in denial.ports for denial in against) for port in rule.ports):
            yield Problem(rule.source, f"{rule.pattern} never speaks: it is denied by {against[0]}")


def _about_groups(book: Book) -> Iterator[Problem]:
    """A file with groups and no personas is there to be taken from."""
    homes = {profile.source.file for profile in book.personas.values()}
    used = {ref.name for profile in book.personas.values() for ref in _refs(profile.allow, profile.deny)}
    for group in book.groups.values():
        used |= {ref.name for ref in _refs(group.entries) if ref.name != group.name}
    for name, group in book.groups.items():
        if name not in used and group.source.file in homes:
            yield Problem(group.source, f"group {name!r} is not used")


def _refs(*lists: Entries) -> Iterator[Ref]:
    return (entry for entry in chain.from_iterable(lists) if isinstance(entry, Ref))


def _about_hosts(book: Book) -> Iterator[Problem]:
    for host, (fixed, source) in book.hosts.items():
        kind = classify(fixed.ip)
        if not kind.opt_in:
            yield Problem(source, f"{host} can never be reached: {fixed.ip} is {kind.words}")
