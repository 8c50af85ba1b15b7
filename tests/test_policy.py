from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.addresses import Kind
from egress.model import Candidate, Decision, Host, Source, Target, Verdict
from egress.names import parse_authority
from egress.policy import Listeners, Persona, vet
from egress.refusals import Reason, Refused
from egress.rules import Requests, Rule, parse_rule
from egress.surroundings import Filesystem

NOBODY = Listeners()
WORDS = st.sampled_from(["a", "b", "c"])
HOSTS = st.lists(WORDS, min_size=1, max_size=3).map(lambda labels: Host(".".join([*labels, "test"])))
ENTRIES = st.builds(
    lambda star, host, port: f"{star}{host}{port}",
    st.sampled_from(["", "*."]),
    HOSTS,
    st.sampled_from(["", ":22", ":443"]),
)
TARGETS = st.builds(Target, HOSTS, st.sampled_from([22, 80, 443]))


def rules(*entries: str) -> list[Rule]:
    return [parse_rule(entry, Source("f.yaml", line)) for line, entry in enumerate(entries, 1)]


def persona(allow: list[str] | None = None, deny: list[str] | None = None) -> Persona:
    return Persona("tester", rules(*(allow or [])), rules(*(deny or [])))


def decide(target: str, allow: list[str] | None = None, deny: list[str] | None = None) -> Decision:
    return persona(allow, deny).decide(parse_authority(target, 443))


@pytest.mark.parametrize(
    ("allow", "target", "reason", "line"),
    [
        ([], "allowed.test", Reason.NOT_LISTED, None),
        (["allowed.test"], "allowed.test", Reason.LISTED, 1),
        (["allowed.test"], "allowed.test:80", Reason.LISTED, 1),
        (["allowed.test"], "ALLOWED.test.", Reason.LISTED, 1),
        (["ALLOWED.test."], "allowed.test", Reason.LISTED, 1),
        (["allowed.test"], "allowed.test:22", Reason.PORT_NOT_LISTED, 1),
        (["allowed.test:22"], "allowed.test:443", Reason.PORT_NOT_LISTED, 1),
        (["allowed.test"], "notallowed.test", Reason.NOT_LISTED, None),
        (["allowed.test"], "allowed.test.evil.test", Reason.NOT_LISTED, None),
        (["allowed.test"], "allowedxtest", Reason.NOT_LISTED, None),
        (["allowed.test"], "a.allowed.test", Reason.NOT_LISTED, None),
        (["allowed.test"], "test", Reason.NOT_LISTED, None),
        (["*.wild.test"], "wild.test", Reason.NOT_LISTED, None),
        (["*.wild.test"], "evilwild.test", Reason.NOT_LISTED, None),
        (["*.wild.test"], "a.wild.test.evil.test", Reason.NOT_LISTED, None),
        (["*.wild.test"], "a.wild.test", Reason.LISTED, 1),
        (["*.wild.test"], "a.b.c.wild.test", Reason.LISTED, 1),
        (["*.wild.test"], "a.wild.test:22", Reason.PORT_NOT_LISTED, 1),
        (["*.wild.test:22"], "a.wild.test:22", Reason.LISTED, 1),
        # the most specific pattern that grants the port speaks
        (["*.test.test", "*.wild.test.test", "a.wild.test.test"], "a.wild.test.test", Reason.LISTED, 3),
        (["*.test.test", "*.wild.test.test"], "a.wild.test.test", Reason.LISTED, 2),
        (["a.wild.test:22", "*.wild.test"], "a.wild.test", Reason.LISTED, 2),
        (["a.wild.test:22", "*.wild.test"], "a.wild.test:8080", Reason.PORT_NOT_LISTED, 1),
        (["a.test", "a.test"], "a.test", Reason.LISTED, 1),
        (["a.test:22", "a.test"], "a.test", Reason.LISTED, 2),
        # addresses
        ([], "8.8.8.8", Reason.ADDRESS_LITERAL, None),
        ([], "127.0.0.1", Reason.ADDRESS_LITERAL, None),
        ([], "[2606:4700::1111]", Reason.ADDRESS_LITERAL, None),
        (["8.8.8.8"], "8.8.8.8", Reason.LISTED, 1),
        (["8.8.8.8"], "8.8.8.8:22", Reason.PORT_NOT_LISTED, 1),
        (["8.8.8.8"], "8.8.4.4", Reason.ADDRESS_LITERAL, None),
        (["[2606:4700::1111]"], "[2606:4700:0:0::1111]", Reason.LISTED, 1),
        ([], "localhost", Reason.NOT_LISTED, None),
        ([], "x.localhost", Reason.NOT_LISTED, None),
        (["localhost"], "x.localhost", Reason.NOT_LISTED, None),
    ],
)
def test_the_allow_list_decides_by_name_and_port(
    allow: list[str], target: str, reason: Reason, line: int | None
) -> None:
    decision = decide(target, allow)
    assert (decision.reason, decision.rule and decision.rule.source.line) == (reason, line)
    assert decision.allowed == (reason is Reason.LISTED) == (decision.verdict is Verdict.ALLOW)


@pytest.mark.parametrize(
    "target",
    ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "[fd00:ec2::254]",
     "0.0.0.0", "[::]", "255.255.255.255", "224.0.0.1", "[ff02::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
     "[2002:a9fe:a9fe::1]"],
)  # fmt: skip
def test_no_rule_can_allow_a_metadata_address_or_no_host_at_all(target: str) -> None:
    decision = persona([f"{target}:443", target]).decide(parse_authority(target, 443))
    assert decision == Decision(Verdict.DENY, Reason.METADATA_ADDRESS)


@pytest.mark.parametrize(
    ("deny", "target", "denied"),
    [
        (["gist.github.com"], "gist.github.com", True),
        (["gist.github.com"], "gist.github.com:22", True),
        (["gist.github.com"], "a.gist.github.com", False),
        (["*.github.com"], "github.com", False),
        (["*.github.com"], "a.b.github.com:22", True),
        (["github.com:22"], "github.com:22", True),
        (["github.com:22"], "github.com:443", False),
        (["*.github.com", "gist.github.com:22"], "gist.github.com:443", True),
        (["gist.github.com:22", "gist.github.com"], "gist.github.com:443", True),
        (["8.8.8.8"], "8.8.8.8:53", True),
    ],
)
def test_deny_always_wins(deny: list[str], target: str, denied: bool) -> None:
    allow = ["github.com", "*.github.com", "github.com:22", "*.github.com:22", "gist.github.com", "8.8.8.8:53"]
    decision = decide(target, allow, deny)
    assert (decision.reason is Reason.DENIED) == denied
    assert decision.rule is not None


@given(st.lists(ENTRIES, max_size=6), st.lists(ENTRIES, max_size=4), TARGETS)
def test_the_decision_is_that_of_a_walk_over_all_rules(allow: list[str], deny: list[str], target: Target) -> None:
    decision = persona(allow, deny).decide(target)
    denied = any(r.pattern.matches(target.host) and (r.all_ports or target.port in r.ports) for r in rules(*deny))
    hosts = [rule for rule in rules(*allow) if rule.pattern.matches(target.host)]
    if denied:
        assert decision.reason is Reason.DENIED
    elif any(target.port in rule.ports for rule in hosts):
        assert decision.reason is Reason.LISTED
        assert decision.rule in hosts
    else:
        assert decision.reason is (Reason.PORT_NOT_LISTED if hosts else Reason.NOT_LISTED)


@given(st.lists(ENTRIES, max_size=6), TARGETS)
def test_the_rule_that_speaks_is_the_most_specific_that_grants(allow: list[str], target: Target) -> None:
    decision = persona(allow).decide(target)
    if decision.allowed and decision.rule:
        spoke = (not decision.rule.pattern.below, len(decision.rule.pattern.host))
        granting = [rule for rule in rules(*allow) if rule.pattern.matches(target.host) and target.port in rule.ports]
        assert spoke == max((not rule.pattern.below, len(rule.pattern.host)) for rule in granting)


@given(st.lists(ENTRIES, max_size=6), st.lists(ENTRIES, max_size=4), TARGETS, st.randoms())
def test_case_changes_nothing(allow: list[str], deny: list[str], target: Target, chance: random.Random) -> None:
    def jumble(text: str) -> str:
        return "".join(chance.choice([c.upper(), c.lower()]) for c in text)

    jumbled = parse_authority(jumble(str(target)))
    assert persona([*map(jumble, allow)], [*map(jumble, deny)]).decide(jumbled) == persona(allow, deny).decide(target)


@given(st.lists(ENTRIES, max_size=6), st.lists(ENTRIES, max_size=4), ENTRIES, TARGETS)
def test_one_more_denial_never_allows_more(allow: list[str], deny: list[str], more: str, target: Target) -> None:
    if not persona(allow, deny).decide(target).allowed:
        assert not persona(allow, [*deny, more]).decide(target).allowed


@given(st.lists(ENTRIES, max_size=6), ENTRIES, TARGETS)
def test_one_more_permission_never_allows_less(allow: list[str], more: str, target: Target) -> None:
    if persona(allow).decide(target).allowed:
        assert persona([*allow, more]).decide(target).allowed


def test_a_rule_that_looks_at_requests_speaks_before_a_plain_one_for_the_same_host() -> None:
    plain, inspecting = rules("api.test", "api.test")
    inspecting = inspecting._replace(requests=Requests(methods=frozenset({"GET"})))
    someone = Persona("tester", [plain, inspecting])
    assert someone.decide(Target(Host("api.test"), 443)).rule is inspecting
    assert someone.needs_inspection is inspecting
    assert Persona("tester", [plain]).needs_inspection is None


GET, PUT = (Requests(methods=frozenset({method})) for method in ("GET", "PUT"))


def test_all_rules_of_the_speaking_pattern_and_port_that_look_at_requests_judge_them_in_their_order() -> None:
    first, plain, second, other, wide = rules("a.test", "a.test", "a.test:443", "a.test:80", "*.test")
    first, second, wide = first._replace(requests=PUT), second._replace(requests=GET), wide._replace(requests=GET)
    someone = Persona("tester", [plain, first, wide, second, other])
    for port, expected in {443: (first, second), 80: (first,), 22: ()}.items():
        assert someone.request_rules(Target(Host("a.test"), port)) == expected
    assert someone.request_rules(Target(Host("b.test"), 443)) == (wide,)
    assert someone.request_rules(Target(Host("evil.example"), 443)) == ()


def test_an_exact_plain_rule_is_not_looked_into_by_a_wider_one() -> None:
    exact, wide = rules("a.test", "*.test")
    someone = Persona("tester", [wide._replace(requests=GET), exact])
    assert someone.request_rules(Target(Host("a.test"), 443)) == ()


def test_what_is_denied_has_no_rules_for_requests() -> None:
    (rule,) = rules("a.test")
    someone = Persona("tester", [rule._replace(requests=GET)], rules("a.test:443"))
    assert someone.request_rules(Target(Host("a.test"), 443)) == ()
    assert someone.request_rules(Target(Host("a.test"), 80)) != ()


def test_inspected_are_the_patterns_whose_tls_is_opened() -> None:
    entries = ["a.test", "*.b.test:443", "a.test:443", "c.test:80", "d.test:8443", "e.test:8443", "f.test"]
    looking = [rule._replace(requests=GET) for rule in rules(*entries)]
    looking[5] = looking[5]._replace(tls=True)
    looking[6] = looking[6]._replace(tls=False)
    someone = Persona("tester", [*looking, *rules("plain.test")])
    assert [str(pattern) for pattern in someone.inspected] == ["a.test", "*.b.test", "e.test"]


def test_a_persona_with_other_rules_is_otherwise_the_same() -> None:
    old = Persona("p", rules("a.test"), rules("b.test"), "words", ("A",), Filesystem(write=("/w",)))
    new = old.replace(allow=rules("c.test"))
    assert [str(rule.pattern) for rule in new.allow] == ["c.test"]
    assert new.decide(Target(Host("c.test"), 443)).allowed
    for name in ("name", "deny", "description", "env", "filesystem"):
        assert getattr(new, name) == getattr(old, name)


def test_a_decision_looks_at_the_name_and_not_at_every_rule() -> None:
    class Counting(dict):
        asked = 0

        def get(self, *args):  # type: ignore[no-untyped-def]
            Counting.asked += 1
            return super().get(*args)

    someone = persona([f"h{n}.example.test" for n in range(500)] + [f"*.w{n}.test" for n in range(500)])
    someone._allow.exact = Counting(someone._allow.exact)
    someone._allow.below = Counting(someone._allow.below)
    assert someone.decide(Target(Host("a.b.w7.test"), 443)).allowed
    assert Counting.asked <= 4


def public(*ips: str) -> list[Candidate]:
    return [Candidate(ip, 443) for ip in ips]


RULE = parse_rule("allowed.test", Source("f.yaml", 1))
PRIVATE_RULE = RULE._replace(private=True)
INNER = [
    "127.0.0.1", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.1.1", "fe80::1", "fd00::1",
    "192.0.2.1", "198.18.0.1", "203.0.113.1", "2001:db8::1", "240.0.0.1", "::ffff:10.0.0.1", "::7f00:1",
    "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::1", "2001:0:808:808::f5ff:fffe", "fe80::5efe:a00:1",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254",
    "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "0.0.0.0", "::",
    "224.0.0.1", "ff02::1", "255.255.255.255",
]  # fmt: skip


@pytest.mark.parametrize("ip", INNER)
def test_an_inner_address_is_dialled_only_where_the_rule_opts_in(ip: str) -> None:
    with pytest.raises(Refused) as caught:
        vet(public(ip), RULE, NOBODY)
    assert caught.value.reason is Reason.RESOLVED_PRIVATE
    assert ip in caught.value.detail
    assert vet(public(ip), PRIVATE_RULE, NOBODY).addresses == (Candidate(ip, 443),)


@pytest.mark.parametrize("ip", NEVER)
@pytest.mark.parametrize("rule", [RULE, PRIVATE_RULE], ids=["plain", "private"])
def test_a_metadata_address_is_never_dialled(ip: str, rule: Rule) -> None:
    with pytest.raises(Refused) as caught:
        vet(public(ip), rule, NOBODY)
    assert caught.value.reason is Reason.METADATA_ADDRESS


def test_an_address_of_this_host_is_inner_even_if_it_is_public() -> None:
    own = Candidate("140.82.112.3", 443, own=True)
    with pytest.raises(Refused, match="an address of this host"):
        vet([own], RULE, NOBODY)
    assert vet([own], PRIVATE_RULE, NOBODY).addresses == (own,)


def test_only_the_public_part_of_a_mixed_answer_is_kept_in_its_order() -> None:
    answer = public("10.0.0.1", "140.82.112.3", "::1", "2606:4700::1111", "169.254.169.254")
    assert vet(answer, RULE, NOBODY).addresses == tuple(public("140.82.112.3", "2606:4700::1111"))
    assert vet(answer, PRIVATE_RULE, NOBODY).addresses == tuple(answer[:-1])


def test_an_empty_answer_is_unresolved() -> None:
    with pytest.raises(Refused) as caught:
        vet([], RULE, NOBODY)
    assert caught.value.reason is Reason.UNRESOLVED


@given(st.lists(st.ip_addresses().map(str), max_size=5), st.booleans())
def test_vetting_keeps_a_part_of_the_answer_and_nothing_else(ips: list[str], private: bool) -> None:
    answer = public(*ips)
    try:
        kept = vet(answer, RULE._replace(private=private), NOBODY).addresses
    except Refused:
        return
    assert kept
    assert [candidate for candidate in answer if candidate in kept] == list(kept)


GATE = Listeners(exact=frozenset({("127.0.0.1", 3128), ("::1", 3129)}), wildcard=frozenset({8080}))


@pytest.mark.parametrize(
    ("ip", "port", "own"),
    [
        ("127.0.0.1", 3128, False),
        ("::1", 3129, False),
        ("::ffff:127.0.0.1", 3128, False),
        ("::127.0.0.1", 3128, False),
        ("::ffff:0:127.0.0.1", 3128, False),
        ("64:ff9b::7f00:1", 3128, False),
        ("127.0.0.1", 8080, False),
        ("127.9.9.9", 8080, False),
        ("::1", 8080, False),
        ("::ffff:127.0.0.1", 8080, False),
        ("192.168.1.5", 8080, True),
        ("140.82.112.3", 8080, True),
    ],
)
def test_the_gate_never_dials_itself_under_any_of_its_names(ip: str, port: int, own: bool) -> None:
    with pytest.raises(Refused) as caught:
        vet([Candidate(ip, port, own)], PRIVATE_RULE, GATE)
    assert caught.value.reason is Reason.OWN_LISTENER


@pytest.mark.parametrize(
    ("ip", "port"), [("127.0.0.1", 3129), ("127.0.0.2", 3128), ("::1", 3128), ("192.168.1.6", 8080)]
)
def test_a_neighbour_of_the_gate_may_be_dialled(ip: str, port: int) -> None:
    assert vet([Candidate(ip, port)], PRIVATE_RULE, GATE).addresses


def test_a_refusal_says_what_kind_of_address_it_was() -> None:
    with pytest.raises(Refused, match=Kind.SHARED.words):
        vet(public("100.64.0.1"), RULE, NOBODY)
