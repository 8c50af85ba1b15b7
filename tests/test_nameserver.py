"""The nameserver in both its modes: what is answered, what is asked upstream, and what goes on record."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from dnskit import Kit, allow, opt, over_udp, query, question, read, sandbox, standalone, wire
from dnslib import DNSRecord
from fakedns import fake_dns, reply
from gatekit import Names, until
from hypothesis import given
from hypothesis import strategies as st
from loops import on_both_loops
from test_dnsmsg import FORMERR, packets
from wiredrive import FUZZ

from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.filteredzone import Blocked
from egress.model import Decision, Host, Verdict
from egress.net import resolver as resolver_module
from egress.net.resolver import Resolver
from egress.policy import Persona
from egress.refusals import Reason
from egress.rules import Rule
from egress.synthetic import SyntheticNames

GOOD = allow("good.test")
WILD = allow("*.wild.test")


# The decision about a name


def decide(host: str, rules: Iterable[Rule], deny: Iterable[Rule] = ()) -> Decision:
    return Persona("p", rules, deny).decide_name(Host(host))


def test_a_name_is_allowed_if_any_port_of_it_is() -> None:
    ssh = allow("good.test:22")
    assert decide("good.test", [ssh]) == Decision(Verdict.ALLOW, Reason.LISTED, ssh)
    assert decide("a.wild.test", [WILD]).rule == WILD


def test_the_first_rule_of_the_most_specific_pattern_speaks() -> None:
    exact, second = allow("a.wild.test:22"), allow("a.wild.test")
    assert decide("a.wild.test", [WILD, exact, second]).rule == exact


@pytest.mark.parametrize("host", ["evil.test", "wild.test", "good.test.evil.test", "xgood.test"])
def test_a_name_that_no_rule_has_is_not_listed(host: str) -> None:
    assert decide(host, [GOOD, WILD]) == Decision(Verdict.DENY, Reason.NOT_LISTED)


def test_a_denial_of_every_port_wins() -> None:
    denial = allow("*.wild.test", all_ports=True)
    assert decide("a.wild.test", [WILD, allow("a.wild.test")], [denial]) == Decision(
        Verdict.DENY, Reason.DENIED, denial
    )


def test_a_denial_of_one_port_leaves_the_name_while_another_port_is_allowed() -> None:
    assert decide("good.test", [GOOD], [allow("good.test:443")]).allowed
    denials = [allow("good.test:443"), allow("good.test:80")]
    assert decide("good.test", [GOOD], denials).reason is Reason.DENIED
    assert decide("good.test", [GOOD], [allow("good.test:22")]).allowed


def test_a_rule_without_ports_allows_nothing() -> None:
    assert not decide("good.test", [allow("good.test", ports=frozenset())]).allowed


# In a sandbox


@on_both_loops
async def test_every_name_has_an_address_of_its_own_that_leads_back_to_it(tmp_path: Path) -> None:
    synthetic = SyntheticNames()
    async with sandbox(tmp_path, GOOD, synthetic=synthetic) as kit:
        for name in ("good.test", "evil.test"):
            v4, v6 = await kit.ask(name), await kit.ask(name, "AAAA")
            assert (v4.rcode, v4.ttl, v6.ttl) == ("NOERROR", 10, 10)
            assert [synthetic.name_of(ip) for ip in v4.addresses + v6.addresses] == [name] * 2
        assert (await kit.ask("GOOD.test.")).addresses == (await kit.ask("good.test")).addresses


@on_both_loops
async def test_the_first_query_of_a_denied_name_is_recorded_and_an_allowed_one_is_not(tmp_path: Path) -> None:
    async with sandbox(tmp_path, GOOD, deny=[allow("gist.good.test", all_ports=True)]) as kit:
        for name in ("good.test", "evil.test", "evil.test", "EVIL.test", "gist.good.test"):
            await kit.ask(name)
            await kit.ask(name, "AAAA")
        denied = [(record["host"], record["reason"], record["port"]) for record in kit.records(via="dns")]
    assert denied == [("evil.test", "not_listed", None), ("gist.good.test", "denied", None)]


TYPES = ["HTTPS", "SVCB", "MX", "TXT", "SRV", "NULL", "PTR", "NS", "SOA", "CNAME", "CAA", "NAPTR", "TYPE65280"]


@pytest.mark.parametrize("qtype", TYPES)
@pytest.mark.parametrize("name", ["good.test", "evil.test", "_http._tcp.good.test"])
@on_both_loops
async def test_other_types_have_no_data(tmp_path: Path, qtype: str, name: str) -> None:
    async with sandbox(tmp_path, GOOD) as kit:
        answer = await kit.ask(name, qtype)
        assert (answer.rcode, answer.addresses, answer.message.auth) == ("NOERROR", [], [])


@pytest.mark.parametrize("qtype", ["ANY", "AXFR", "IXFR"])
@on_both_loops
async def test_everything_at_once_is_refused(tmp_path: Path, qtype: str) -> None:
    async with sandbox(tmp_path, GOOD) as kit:
        assert (await kit.ask("good.test", qtype)).rcode == "REFUSED"


@on_both_loops
async def test_a_service_of_a_host_has_no_address(tmp_path: Path) -> None:
    synthetic = SyntheticNames()
    async with sandbox(tmp_path, GOOD, synthetic=synthetic) as kit:
        assert (await kit.ask("_http._tcp.good.test")).addresses == []
    assert len(synthetic) == 0


@on_both_loops
async def test_without_ipv6_there_are_only_ipv4_addresses(tmp_path: Path) -> None:
    async with sandbox(tmp_path, GOOD, ipv6=False) as kit:
        assert (await kit.ask("good.test", "AAAA")).addresses == []
        assert len((await kit.ask("good.test")).addresses) == 1


@on_both_loops
async def test_a_full_table_is_told_and_recorded_once_per_interval(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(synthetic_names=1)
    async with sandbox(tmp_path, WILD, limits=limits) as kit:
        await kit.ask("a.wild.test")
        for name in ("b.wild.test", "c.wild.test"):
            answer = await kit.ask(name)
            assert (answer.rcode, answer.error, answer.addresses) == ("SERVFAIL", 18, [])
        assert (await kit.ask("a.wild.test")).rcode == "NOERROR"
        assert [(record["host"], record["reason"]) for record in kit.records()] == [("b.wild.test", "limit")]


@on_both_loops
async def test_a_flood_below_one_parent_is_limited_and_summed_up_and_others_are_served(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(denied_names=3)
    synthetic = SyntheticNames(limits)
    async with sandbox(tmp_path, GOOD, synthetic=synthetic, limits=limits) as kit:
        answers = [await kit.ask(f"x{n}.t.evil.test", "TXT" if n % 2 else "A") for n in range(100)]
        assert [answer.rcode for answer in answers] == ["NOERROR"] * 3 + ["REFUSED"] * 97
        assert answers[-1].error == 18
        assert (await kit.ask("x0.t.evil.test")).addresses != []
        assert (await kit.ask("other.test")).addresses != []
        assert (await kit.ask("good.test")).addresses != []
        assert len(synthetic) == 4
    names = ["x0.t.evil.test", "x1.t.evil.test", "x2.t.evil.test", "other.test", "*.evil.test"]
    assert kit.hosts() == names
    told = [(record["reason"], record.get("count")) for record in kit.records()]
    assert told[-2:] == [("not_listed", None), ("limit", 97)]


@on_both_loops
async def test_a_flood_over_many_parents_is_limited_too(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(parents=2, denied_names=2)
    async with sandbox(tmp_path, limits=limits) as kit:
        rcodes = [(await kit.ask(f"evil{n}.test")).rcode for n in range(50)]
    assert rcodes == ["NOERROR"] * 4 + ["REFUSED"] * 46
    assert kit.hosts() == ["evil0.test", "evil1.test", "evil2.test", "evil3.test", "*"]


@on_both_loops
async def test_a_summary_is_written_when_its_interval_ends(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(denied_names=1, interval=0.05)
    async with sandbox(tmp_path, limits=limits) as kit:
        for n in range(3):
            await kit.ask(f"x{n}.evil.test")
        await until(lambda: kit.hosts(reason="limit"))
        assert kit.hosts() == ["x0.evil.test", "*.evil.test"]


@on_both_loops
async def test_after_an_edit_a_denied_name_is_recorded_again(tmp_path: Path) -> None:
    async with sandbox(tmp_path, GOOD) as kit:
        await kit.ask("evil.test")
        kit.edit(GOOD, deny=[allow("evil.test", all_ports=True)])
        await kit.ask("evil.test")
        assert [record["reason"] for record in kit.records()] == ["not_listed", "denied"]


# In both: names that stay here, and what is no name


BOTH = pytest.mark.parametrize("mode", ["sandbox", "standalone"])


def either(mode: str, tmp_path: Path, *rules: Rule) -> object:
    return sandbox(tmp_path, *rules) if mode == "sandbox" else standalone(tmp_path, *rules, upstream=Names({}))


LOCAL = [
    ("localhost", "A", "NOERROR", ["127.0.0.1"]),
    ("LOCALHOST", "AAAA", "NOERROR", ["::1"]),
    ("x.localhost", "A", "NOERROR", ["127.0.0.1"]),
    ("localhost", "TXT", "NOERROR", []),
    ("1.0.0.127.in-addr.arpa", "PTR", "NXDOMAIN", []),
    ("1.1.18.198.in-addr.arpa", "PTR", "NXDOMAIN", []),
    ("8.b.d.0.1.0.0.2.ip6.arpa", "PTR", "NXDOMAIN", []),
    ("_dns.resolver.arpa", "SVCB", "NXDOMAIN", []),
    ("ipv4only.arpa", "AAAA", "NXDOMAIN", []),
    ("use-application-dns.net", "A", "NXDOMAIN", []),
    (".", "NS", "NOERROR", []),
]


@BOTH
@pytest.mark.parametrize(("name", "qtype", "rcode", "addresses"), LOCAL)
@on_both_loops
async def test_names_of_this_machine_and_reverse_zones_stay_local(
    tmp_path: Path, mode: str, name: str, qtype: str, rcode: str, addresses: list[str]
) -> None:
    async with either(mode, tmp_path) as kit:
        answer = await kit.ask(name, qtype)
        assert (answer.rcode, answer.addresses) == (rcode, addresses)
        assert kit.records() == []


MALFORMED = [
    (b"evil.test\0", b"good", b"test"),
    (b"good.test",),
    (b"\xff", b"good", b"test"),
    (b"a b", b"good", b"test"),
    (b"1", b"2", b"3", b"4"),
    (b"::1",),
]


@BOTH
@pytest.mark.parametrize("labels", MALFORMED)
@on_both_loops
async def test_a_name_that_is_no_host_is_refused_and_recorded_once(
    tmp_path: Path, mode: str, labels: tuple[bytes, ...]
) -> None:
    async with either(mode, tmp_path, GOOD, WILD) as kit:
        for _ in range(2):
            answer = await kit.packet(question(*labels))
            assert answer[3] & 15 == 1
            assert answer[12:] == question(*labels)[12:]
        (record,) = kit.records()
        assert (record["reason"], record["verdict"]) == ("malformed_host", "deny")


@BOTH
@pytest.mark.parametrize("packet", FORMERR.values(), ids=FORMERR.keys())
@on_both_loops
async def test_what_is_no_query_is_told_so_and_goes_no_further(tmp_path: Path, mode: str, packet: bytes) -> None:
    async with either(mode, tmp_path, GOOD) as kit:
        assert read(await kit.packet(packet)).rcode == "FORMERR"
        assert kit.put(packet[:2] + b"\x80" + packet[3:]) == []
        assert kit.records() == []


@BOTH
@on_both_loops
async def test_other_classes_and_versions_are_refused(tmp_path: Path, mode: str) -> None:
    async with either(mode, tmp_path, GOOD) as kit:
        assert read(await kit.packet(question(b"version", b"bind", qtype=16, qclass=3))).rcode == "REFUSED"
        later = query("good.test", edns=False)[:11] + b"\1" + query("good.test", edns=False)[12:] + opt(ttl=1 << 16)
        assert DNSRecord.parse(await kit.packet(later)).ar[0].edns_rcode == 1
        assert kit.records() == []


def test_no_input_raises_in_either_mode(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All of them to one nameserver of each mode, which is then as good as new."""

    async def story() -> None:
        names = Names({}, ["198.51.100.1"])
        path = tmp_path_factory.mktemp("fuzz")
        (path / "alone").mkdir()
        async with sandbox(path, GOOD, WILD) as inside, standalone(path / "alone", GOOD, WILD, upstream=names) as alone:
            put_anything(inside, alone)
            for kit in (inside, alone):
                assert read(await kit.packet(query("localhost"))).addresses == ["127.0.0.1"]
        assert all(name == "good.test" or name.endswith(".wild.test") for name in names.asked)

    @FUZZ
    @given(st.one_of(packets(), st.builds(asked, st.binary(max_size=30), st.integers(0, 70))), st.booleans())
    def put_anything(inside: Kit, alone: Kit, packet: bytes, udp: bool) -> None:
        for kit in (inside, alone):
            kit.names.ready()
            for answer in kit.put(packet, udp):
                assert answer[:2] == packet[:2]
                assert answer[2] & 0x80

    asyncio.run(story())


def asked(label: bytes, qtype: int) -> bytes:
    """Questions that get past the parser."""
    return question(label or b"good", *([b"wild"] if label else []), b"test", qtype=qtype)


# By itself


PUBLIC = "9.9.9.9"


def zone(*lines: str) -> Callable[[DNSRecord, int], Iterable[bytes]]:
    """An upstream that has the same lines for every question, of the type that was asked."""

    def script(message: DNSRecord, _: int) -> Iterable[bytes]:
        kind = {1: " A ", 28: " AAAA "}[message.q.qtype]
        return [reply(message, *(line for line in lines if kind in line or " CNAME " in line))]

    return script


@on_both_loops
async def test_an_allowed_name_is_resolved_upstream_after_it_is_recorded(tmp_path: Path) -> None:
    async with (
        fake_dns(zone(f"good.test 60 A {PUBLIC}", "good.test 90 AAAA 2620:fe::9")) as up,
        standalone(tmp_path, GOOD, upstream=up) as kit,
    ):
        v4, v6 = await kit.ask("good.test"), await kit.ask("good.test", "AAAA")
        assert (v4.addresses, v4.ttl, v6.addresses, v6.ttl) == ([PUBLIC], 60, ["2620:fe::9"], 90)
        assert [(record["host"], record["verdict"], record["via"]) for record in kit.records()] == [
            ("good.test", "allow", "dns")
        ] * 2
    assert [str(message.q.qname) for message in up.queries] == ["good.test."] * 2


@on_both_loops
async def test_nothing_of_the_clients_packet_goes_upstream_but_the_name(tmp_path: Path) -> None:
    packet = bytearray(query("gOOd.test", edns=False, ident=0xBEEF))
    packet[11] = 1
    packet += opt(4096, 0x8000, b"\xfd\xe9\0\6secret")
    async with fake_dns(zone(f"good.test 60 A {PUBLIC}")) as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        answer = await kit.packet(bytes(packet))
        assert answer[12:23] == wire(b"gOOd", b"test")
    (sent,) = up.queries
    plain = bytes(sent.pack())
    assert wire(b"good", b"test") in plain
    assert b"secret" not in plain
    assert sent.ar[0].edns_do == 0


@on_both_loops
async def test_without_a_record_nothing_goes_upstream(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").mkdir()
    async with fake_dns(zone(f"good.test 60 A {PUBLIC}")) as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        answer = await kit.ask("good.test")
        assert (answer.rcode, answer.addresses) == ("SERVFAIL", [])
        assert "audit log" in answer.words
    assert up.queries == []


DENIED = [
    (Blocked.REFUSED, "A", "REFUSED", []),
    (Blocked.REFUSED, "TXT", "REFUSED", []),
    (Blocked.NXDOMAIN, "A", "NXDOMAIN", []),
    (Blocked.NXDOMAIN, "TXT", "NXDOMAIN", []),
    (Blocked.SINKHOLE, "A", "NOERROR", ["0.0.0.0"]),
    (Blocked.SINKHOLE, "AAAA", "NOERROR", ["::"]),
    (Blocked.SINKHOLE, "HTTPS", "NOERROR", []),
]


@pytest.mark.parametrize(("blocked", "qtype", "rcode", "addresses"), DENIED)
@on_both_loops
async def test_a_denied_name_is_blocked_in_the_way_that_was_chosen_and_says_why(
    tmp_path: Path, blocked: Blocked, qtype: str, rcode: str, addresses: list[str]
) -> None:
    async with fake_dns() as up, standalone(tmp_path, GOOD, upstream=up, blocked=blocked) as kit:
        for _ in range(2):
            answer = await kit.ask("evil.test", qtype)
            assert (answer.rcode, answer.addresses, answer.error) == (rcode, addresses, 15)
            assert answer.words == "evil.test is not on the allowlist of persona p"
        assert kit.hosts(verdict="deny") == ["evil.test"]
    assert up.queries == []


VETTED = [
    (["good.test 60 A 10.0.0.1"], False, []),
    (["good.test 60 A 10.0.0.1"], True, ["10.0.0.1"]),
    (["good.test 60 A 127.0.0.1"], False, []),
    (["good.test 60 A 169.254.169.254"], True, []),
    (["good.test 60 A 10.0.0.1", f"good.test 60 A {PUBLIC}"], False, [PUBLIC]),
    (["good.test 60 A 169.254.169.254", "good.test 60 A 10.0.0.1"], True, ["10.0.0.1"]),
    (["good.test 60 CNAME cdn.test", f"cdn.test 60 A {PUBLIC}"], False, [PUBLIC]),
    (["good.test 60 CNAME cdn.test", "cdn.test 60 A 10.0.0.1"], False, []),
    (["good.test 60 CNAME cdn.test", "cdn.test 60 A 192.168.1.1", f"cdn.test 60 A {PUBLIC}"], False, [PUBLIC]),
    (["other.test 60 A 9.9.9.10", f"good.test 60 A {PUBLIC}"], False, [PUBLIC]),
]


@pytest.mark.parametrize(("lines", "private", "addresses"), VETTED)
@on_both_loops
async def test_only_addresses_that_may_be_dialled_are_told(
    tmp_path: Path, lines: list[str], private: bool, addresses: list[str]
) -> None:
    async with (
        fake_dns(zone(*lines)) as up,
        standalone(tmp_path, allow("good.test", private=private), upstream=up) as kit,
    ):
        answer = await kit.ask("good.test")
        assert answer.addresses == addresses
        assert answer.rcode == ("NOERROR" if addresses else "REFUSED")


@pytest.mark.parametrize(
    ("line", "reason"),
    [("good.test 60 A 10.0.0.1", "resolved_private"), ("good.test 60 A 169.254.169.254", "metadata_address")],
)
@on_both_loops
async def test_a_name_that_leads_only_where_it_may_not_is_recorded_once(tmp_path: Path, line: str, reason: str) -> None:
    async with fake_dns(zone(line)) as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        for _ in range(3):
            assert (await kit.ask("good.test")).error == 15
        assert [record["reason"] for record in kit.records()] == ["listed", reason]


@pytest.mark.parametrize("ip", ["::ffff:909:909", "::ffff:a00:1", "64:ff9b::a9fe:a9fe", "fd00:ec2::254"])
@on_both_loops
async def test_an_ipv4_address_in_disguise_is_not_told(tmp_path: Path, ip: str) -> None:
    async with fake_dns(zone(f"good.test 60 AAAA {ip}")) as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        assert (await kit.ask("good.test", "AAAA")).addresses == []
    assert len(up.queries) == 1


@on_both_loops
async def test_fixed_hosts_are_told_and_vetted_without_asking(tmp_path: Path) -> None:
    hosts = {"good.test": PUBLIC, "inner.test": "10.0.0.7", "mirror.test": "10.0.0.7"}
    rules = [GOOD, allow("inner.test"), allow("mirror.test", private=True)]
    async with fake_dns() as up, standalone(tmp_path, *rules, upstream=up, hosts=hosts) as kit:
        assert (await kit.ask("good.test")).addresses == [PUBLIC]
        assert (await kit.ask("good.test", "AAAA")).addresses == []
        assert (await kit.ask("inner.test")).rcode == "REFUSED"
        assert (await kit.ask("mirror.test")).addresses == ["10.0.0.7"]
    assert up.queries == []


@pytest.mark.parametrize("qtype", TYPES)
@on_both_loops
async def test_of_an_allowed_name_only_addresses_are_ever_asked(tmp_path: Path, qtype: str) -> None:
    async with fake_dns() as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        answer = await kit.ask("good.test", qtype)
        assert (answer.rcode, answer.addresses) == ("NOERROR", [])
    assert up.queries == []


# Its cache, and questions under way


@on_both_loops
async def test_an_answer_is_kept_for_its_time_and_counts_down(tmp_path: Path) -> None:
    async with fake_dns(zone(f"good.test 60 A {PUBLIC}")) as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        assert (await kit.ask("good.test")).ttl == 60
        kit.clock.now += 45.5
        assert (await kit.ask("good.test")).ttl == 15
        assert len(up.queries) == 1
        kit.clock.now += 15
        assert (await kit.ask("good.test")).ttl == 60
    assert len(up.queries) == 2


SOA = "test 20 IN SOA ns.test. admin.test. 1 2 3 4 300"


@pytest.mark.parametrize(
    ("rcode", "authority", "life"), [(3, SOA, 20), (0, SOA, 20), (3, "", 30), (2, "", 5), (5, SOA, 5)]
)
@on_both_loops
async def test_no_is_an_answer_that_is_kept_too(tmp_path: Path, rcode: int, authority: str, life: int) -> None:
    async with (
        fake_dns(lambda message, _: [reply(message, authority=authority, rcode=rcode)]) as up,
        standalone(tmp_path, GOOD, upstream=up) as kit,
    ):
        for passed in (0, life - 0.5, 1):
            kit.clock.now += passed
            answer = await kit.ask("good.test")
            assert answer.rcode == {0: "NOERROR", 3: "NXDOMAIN"}.get(rcode, "SERVFAIL")
            assert answer.addresses == []
    assert len(up.queries) == 2


@pytest.mark.parametrize(("ttl", "told"), [(0, 1), (10**9, 3600)])
@on_both_loops
async def test_a_time_to_live_is_kept_within_reason(tmp_path: Path, ttl: int, told: int) -> None:
    async with fake_dns(zone(f"good.test {ttl} A {PUBLIC}")) as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        assert (await kit.ask("good.test")).ttl == told


@on_both_loops
async def test_the_cache_is_bounded(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(cache=2)
    script = lambda message, _: [reply(message, f"{message.q.qname} 60 A {PUBLIC}")]  # noqa: E731
    async with fake_dns(script) as up, standalone(tmp_path, WILD, upstream=up, limits=limits) as kit:
        for name in ("a", "b", "c", "c", "b", "a"):
            await kit.ask(f"{name}.wild.test")
    assert [str(message.q.qname)[0] for message in up.queries] == ["a", "b", "c", "a"]


@on_both_loops
async def test_the_same_question_is_asked_once_however_many_wait_for_it(tmp_path: Path) -> None:
    held: list[DNSRecord] = []
    async with (
        fake_dns(lambda message, _: held.append(message) or ()) as up,
        standalone(tmp_path, GOOD, upstream=up) as kit,
    ):
        waiting = [kit.put(query("good.test", ident=number)) for number in range(20)]
        await until(lambda: held)
        assert waiting == [[]] * 20
        up._udp.sendto(reply(held[0], f"good.test 60 A {PUBLIC}"), up.sources[0])
        await until(lambda: all(waiting))
        assert [int.from_bytes(answers[0][:2], "big") for answers in waiting] == list(range(20))
        assert kit.hosts() == ["good.test"]
    assert len(up.queries) == 1


@pytest.mark.parametrize(
    ("limits", "too_much"),
    [
        (DNS_LIMITS._replace(lookups=1), "b.wild.test"),
        (DNS_LIMITS._replace(waiting=2), "a.wild.test"),
        (DNS_LIMITS._replace(waiting=2), "b.wild.test"),
    ],
)
@on_both_loops
async def test_too_many_questions_at_once_fail_at_once(tmp_path: Path, limits: DnsLimits, too_much: str) -> None:
    async with fake_dns() as up, standalone(tmp_path, WILD, upstream=up, limits=limits) as kit:
        waiting = [kit.put(query("a.wild.test")) for _ in range(2)]
        await until(lambda: up.queries)
        assert waiting == [[], []]
        assert read(kit.put(query(too_much))[0]).rcode == "SERVFAIL"
    assert len(up.queries) == 1
    assert [read(answers[0]).rcode for answers in waiting] == ["SERVFAIL"] * 2, "closing ends what is under way"


@on_both_loops
async def test_questions_that_were_answered_wait_no_longer(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(lookups=1, waiting=1)
    script = zone(f"good.test 60 A {PUBLIC}")
    async with fake_dns(script) as up, standalone(tmp_path, GOOD, upstream=up, limits=limits) as kit:
        for qtype in ("A", "AAAA"):
            assert (await kit.ask("good.test", qtype)).rcode == "NOERROR"


@on_both_loops
async def test_addresses_of_a_name_that_does_not_exist_are_not_believed(tmp_path: Path) -> None:
    script = lambda message, _: [reply(message, f"good.test 60 A {PUBLIC}", rcode=3)]  # noqa: E731
    async with fake_dns(script) as up, standalone(tmp_path, GOOD, upstream=up) as kit:
        answer = await kit.ask("good.test")
        assert (answer.rcode, answer.addresses) == ("NXDOMAIN", [])


@on_both_loops
async def test_a_question_under_way_is_judged_by_the_policy_that_holds_when_it_lands(tmp_path: Path) -> None:
    held: list[DNSRecord] = []
    async with (
        fake_dns(lambda message, _: held.append(message) or ()) as up,
        standalone(tmp_path, GOOD, upstream=up) as kit,
    ):
        answers = kit.put(query("good.test"))
        await until(lambda: held)
        kit.edit()
        up._udp.sendto(reply(held[0], f"good.test 60 A {PUBLIC}"), up.sources[0])
        await until(lambda: answers)
        assert read(answers[0]).rcode == "REFUSED"
        assert [record["verdict"] for record in kit.records()] == ["allow", "deny"]


@on_both_loops
async def test_an_edit_holds_for_what_is_cached(tmp_path: Path) -> None:
    async with (
        fake_dns(zone("good.test 60 A 10.0.0.1")) as up,
        standalone(tmp_path, allow("good.test", private=True), upstream=up) as kit,
    ):
        assert (await kit.ask("good.test")).addresses == ["10.0.0.1"]
        kit.edit(GOOD)
        assert (await kit.ask("good.test")).addresses == []
        kit.edit()
        assert (await kit.ask("good.test")).words == "good.test is not on the allowlist of persona p"
    assert len(up.queries) == 1


# Names below a wildcard


@on_both_loops
async def test_new_names_below_a_wildcard_are_limited_and_summed_up(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(wildcard_names=3)
    script = lambda message, _: [reply(message, f"{message.q.qname} 60 A {PUBLIC}")]  # noqa: E731
    async with fake_dns(script) as up, standalone(tmp_path, WILD, GOOD, upstream=up, limits=limits) as kit:
        rcodes = [(await kit.ask(f"x{n}.a.wild.test")).rcode for n in range(50)]
        assert rcodes == ["NOERROR"] * 3 + ["REFUSED"] * 47
        assert (await kit.ask("x1.a.wild.test")).rcode == "NOERROR"
        assert (await kit.ask("good.test")).rcode == "NOERROR"
    assert len(up.queries) == 4
    assert kit.hosts(verdict="deny") == ["*.wild.test"]
    assert len(kit.hosts(verdict="allow")) == 4


# By the system's resolver


@on_both_loops
async def test_the_systems_resolver_gives_both_families_for_one_look_up(tmp_path: Path) -> None:
    names = Names({"good.test": [[PUBLIC, "2620:fe::9", "10.0.0.1"]]})
    async with standalone(tmp_path, GOOD, upstream=names) as kit:
        answers = kit.put(query("good.test")), kit.put(query("good.test", "AAAA"))
        await until(lambda: all(answers))
        assert [read(answer[0]).addresses for answer in answers] == [[PUBLIC], ["2620:fe::9"]]
        assert read(answers[0][0]).ttl == 5
        assert names.asked == ["good.test"]


@pytest.mark.parametrize(
    ("error", "rcode"),
    [
        (socket.EAI_NONAME, "NXDOMAIN"),
        (socket.EAI_NODATA, "NOERROR"),
        (socket.EAI_AGAIN, "SERVFAIL"),
        (socket.EAI_FAIL, "SERVFAIL"),
    ],
)
@on_both_loops
async def test_the_systems_no_is_told_as_dns_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, rcode: str
) -> None:
    def getaddrinfo(*_: object, **__: object) -> object:
        raise socket.gaierror(error, "no")

    monkeypatch.setattr(resolver_module.socket, "getaddrinfo", getaddrinfo)
    async with standalone(tmp_path, GOOD, upstream=Resolver(asyncio.get_running_loop())) as kit:
        answer = await kit.ask("good.test")
        assert (answer.rcode, answer.addresses) == (rcode, [])


# Answers kept as bytes


@BOTH
@on_both_loops
async def test_a_repeated_question_is_answered_from_its_bytes_with_its_own_id(tmp_path: Path, mode: str) -> None:
    async with either(mode, tmp_path, GOOD) as kit:
        for packet in (query("evil.test", ident=1), query("eVil.test", ident=2), query("evil.test", edns=False)):
            kit.names.ready()
            answer = await kit.packet(packet)
            assert kit.names.ready()[packet[2:]] == answer[2:]
        assert len(kit.names.ready()) == 3


@BOTH
@on_both_loops
async def test_kept_answers_go_with_their_second_and_with_the_policy(tmp_path: Path, mode: str) -> None:
    async with either(mode, tmp_path, GOOD) as kit:
        for end in (kit.edit, lambda: setattr(kit.clock, "now", kit.clock.now + 1)):
            kit.names.ready()
            await kit.ask("evil.test")
            assert len(kit.names.ready()) == 1
            end()
            assert kit.names.ready() == {}


@on_both_loops
async def test_kept_answers_are_bounded_in_number_and_size(tmp_path: Path) -> None:
    limits = DNS_LIMITS._replace(ready_answers=2)
    async with sandbox(tmp_path, GOOD, limits=limits) as kit:
        kit.names.ready()
        long = ".".join(["a" * 60] * 4)
        await kit.packet(
            query(long, edns=False)[:11] + b"\1" + query(long, edns=False)[12:] + opt(data=b"\0\1\0\x40" + b"x" * 64)
        )
        assert kit.names.ready() == {}
        for name in ("a.test", "b.test", "c.test"):
            await kit.ask(name)
        assert len(kit.names.ready()) == 2


@on_both_loops
async def test_what_is_answered_over_tcp_is_not_kept_for_datagrams(tmp_path: Path) -> None:
    async with sandbox(tmp_path, GOOD) as kit:
        kit.names.ready()
        await kit.packet(query("good.test"), udp=False)
        assert kit.names.ready() == {}


@on_both_loops
async def test_the_fast_path_and_the_slow_one_say_the_same(tmp_path: Path) -> None:
    async with sandbox(tmp_path, GOOD) as kit:
        address = kit.listen()
        first = [read(packet) for packet in await over_udp(address, query("good.test", ident=1))]
        again = await over_udp(address, *(query("good.test", ident=number) for number in range(2, 200)))
        assert {read(packet).message.header.id for packet in again} == set(range(2, 200))
        assert {tuple(read(packet).addresses) for packet in again} == {tuple(first[0].addresses)}
