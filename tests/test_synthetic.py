"""Addresses that stand for names: each its own, for as long as anyone may believe in it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wiredrive import FUZZ

from egress.addresses import Kind, classify
from egress.dnslimits import DNS_LIMITS
from egress.model import Host
from egress.synthetic import Pair, SyntheticNames

LIMITS = DNS_LIMITS._replace(synthetic_names=3, synthetic_ttl=10, ready_for=1, synthetic_grace=20)
OLD = 31.0  # after that long an address is forgotten


def allotted(names: SyntheticNames, host: str, now: float = 0.0) -> Pair:
    pair = names.allot(Host(host), now)
    assert pair is not None
    return pair


def test_a_name_keeps_its_addresses() -> None:
    names = SyntheticNames()
    first = allotted(names, "a.test")
    allotted(names, "b.test")
    assert allotted(names, "a.test", 1e9) == first


def test_addresses_lead_back_to_the_name() -> None:
    names = SyntheticNames()
    pairs = {host: allotted(names, host) for host in ("a.test", "b.test", "c.test")}
    for host, (v4, v6) in pairs.items():
        assert [names.name_of(ip) for ip in (v4, v6, f"::ffff:{v4}", IPv6Address(v6).exploded)] == [host] * 4


OTHERS = """
    198.18.0.1 198.18.1.2 198.18.1.0 127.0.0.1 ::1 fd65:6772:6573:7301::c612:101 2001:db8::c612:101
    x 198.18.1 ::ffff:1.2.3 198.18.1.1%lo
"""


@pytest.mark.parametrize("ip", ["", *OTHERS.split()])
def test_other_addresses_have_no_name(ip: str) -> None:
    names = SyntheticNames()
    assert allotted(names, "a.test").v4 == "198.18.1.1"
    assert names.name_of(ip) is None


def test_addresses_are_from_the_ranges_that_lead_nowhere_and_every_name_has_its_own() -> None:
    names = SyntheticNames()
    pairs = [allotted(names, f"n{number}.test") for number in range(DNS_LIMITS.synthetic_names)]
    v4 = {IPv4Address(pair.v4) for pair in pairs}
    v6 = {IPv6Address(pair.v6) for pair in pairs}
    assert len(v4) == len(v6) == len(names) == DNS_LIMITS.synthetic_names
    assert {int(ip) & 0xFF for ip in v4}.isdisjoint({0, 255})
    assert IPv4Address("198.18.1.0") < min(v4) < max(v4) <= IPv4Network("198.18.0.0/15").broadcast_address
    assert min(v6) in IPv6Network("fd65:6772:6573:7300::/64")
    assert max(v6) in IPv6Network("fd65:6772:6573:7300::/64")
    assert names.allot(Host("one.more.test"), 1.0) is None
    assert {classify(pairs[0].v4), classify(pairs[0].v6)} == {Kind.DOCUMENTATION, Kind.PRIVATE}


def test_the_table_is_never_larger_than_its_range() -> None:
    names = SyntheticNames(DNS_LIMITS._replace(synthetic_names=10**9))
    count = 0
    while names.allot(Host(f"n{count}.test"), 0.0):
        count += 1
    assert count == 511 * 254
    assert names.name_of("198.19.255.254") == f"n{count - 1}.test"


def full(in_use: tuple[str, ...] = ()) -> SyntheticNames:
    names = SyntheticNames(LIMITS, in_use.__contains__)
    for now, host in enumerate(("a.test", "b.test", "c.test")):
        allotted(names, host, float(now))
    return names


def test_while_a_client_may_know_an_address_it_is_not_given_to_another_name() -> None:
    names = full()
    assert names.allot(Host("d.test"), OLD - 0.001) is None
    assert names.name_of("198.18.1.1") == "a.test"


def test_the_address_that_was_told_longest_ago_is_the_first_to_be_given_again() -> None:
    names = full()
    assert allotted(names, "d.test", OLD).v4 == "198.18.1.1"
    assert names.name_of("198.18.1.1") == "d.test"
    assert names.name_of("fd65:6772:6573:7300::c612:101") == "d.test"
    assert names.allot(Host("e.test"), OLD) is None
    assert len(names) == 3


def test_telling_an_address_again_makes_it_young() -> None:
    names = full()
    allotted(names, "a.test", 20.0)
    assert allotted(names, "d.test", OLD + 1).v4 == "198.18.1.2"
    assert names.name_of("198.18.1.1") == "a.test"


@pytest.mark.parametrize("ip", ["198.18.1.1", "fd65:6772:6573:7300::c612:101"])
def test_an_address_with_an_open_connection_is_passed_over(ip: str) -> None:
    names = full(in_use=(ip,))
    assert allotted(names, "d.test", 100.0).v4 == "198.18.1.2"
    assert names.name_of(ip) == "a.test"


def test_when_every_address_is_in_use_the_table_is_full() -> None:
    names = full(in_use=("198.18.1.1", "198.18.1.2", "198.18.1.3"))
    assert names.allot(Host("d.test"), 1e9) is None
    assert [names.name_of(f"198.18.1.{n}") for n in (1, 2, 3)] == ["a.test", "b.test", "c.test"]


def test_a_name_that_lost_its_address_gets_another() -> None:
    names = full()
    allotted(names, "d.test", OLD)
    again = allotted(names, "a.test", OLD + 1)
    assert again.v4 == "198.18.1.2"
    assert names.name_of("198.18.1.1") == "d.test"


@FUZZ
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 40)), max_size=60))
def test_no_address_has_two_names_within_its_time(steps: list[tuple[str, int]]) -> None:
    names, now = SyntheticNames(LIMITS), 0.0
    told: dict[str, tuple[str, float]] = {}
    for host, wait in steps:
        now += wait
        pair = names.allot(Host(host), now)
        if pair is None:
            continue
        before, when = told.get(pair.v4, (host, now))
        assert before == host or now - when >= OLD
        assert names.name_of(pair.v4) == names.name_of(pair.v6) == host
        told[pair.v4] = (host, now)
