from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.addresses import Kind, classify, readings

EXAMPLES = {
    Kind.METADATA: [
        "169.254.169.254", "169.254.169.253", "169.254.169.123", "169.254.170.2", "169.254.170.23", "169.254.42.42",
        "169.254.0.23", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::23",
        "fd20:ce::254", "fd00:42::42",
    ],
    Kind.UNSPECIFIED: ["0.0.0.0", "0.0.0.1", "0.255.255.255", "::"],
    Kind.BROADCAST: ["255.255.255.255"],
    Kind.MULTICAST: ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    Kind.LOOPBACK: ["127.0.0.1", "127.1.2.3", "127.255.255.255", "::1"],
    Kind.LINK_LOCAL: ["169.254.0.1", "169.254.168.255", "169.254.171.0", "fe80::1", "febf::1"],
    Kind.PRIVATE: [
        "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fd12:3456::1",
        "fec0::1", "64:ff9b:1::8.8.8.8",
    ],
    Kind.SHARED: ["100.64.0.1", "100.127.255.255", "100.100.100.199"],
    Kind.RESERVED: [
        "192.0.0.1", "192.0.0.193", "192.88.99.1", "240.0.0.1", "255.255.255.254", "100::1", "5f00::1", "4000::1",
        "::2:0:0:1", "8000::1", "2001:1::1", "200::1", "0:1::",
    ],
    Kind.DOCUMENTATION: [
        "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "2001:db8::1", "2001:2::1",
        "3fff::1",
    ],
    Kind.PUBLIC: [
        "8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::200e", "3ffe::1",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("ip", "kind"), [(ip, kind) for kind, ips in EXAMPLES.items() for ip in ips])
def test_each_range_has_its_kind_up_to_its_edges(ip: str, kind: Kind) -> None:
    assert classify(ip) is kind


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(Kind)


def hidden(address: IPv4Address) -> dict[str, IPv6Address]:
    """Every way to write an IPv4 address into an IPv6 one."""
    v4 = int(address)
    high, low = v4 >> 16, v4 & 0xFFFF
    nat64_local = 0x0064_FF9B_0001 << 80
    forms = {
        "compatible": v4,
        "mapped": 0xFFFF << 32 | v4,
        "translated": 0xFFFF << 48 | v4,
        "nat64": 0x0064_FF9B << 96 | v4,
        "nat64 local /96": nat64_local | v4,
        "nat64 local /48": nat64_local | high << 64 | low << 40,
        "nat64 local /56": nat64_local | (v4 >> 24) << 64 | (v4 & 0xFFFFFF) << 32,
        "nat64 local /64": nat64_local | v4 << 24,
        "nat64 local /96 with a subnet": nat64_local | 0xABCD << 64 | v4,
        "6to4": 0x2002 << 112 | v4 << 80 | 1,
        "teredo client": 0x2001_0000 << 96 | 0x0808_0808 << 64 | (v4 ^ 0xFFFF_FFFF),
        "teredo server": 0x2001_0000 << 96 | v4 << 64 | (0x0808_0808 ^ 0xFFFF_FFFF),
        "isatap": 0x2A00 << 112 | 0x5EFE << 32 | v4,
        "isatap universal": 0x2A00 << 112 | 0x0200_5EFE << 32 | v4,
        "isatap link-local": 0xFE80 << 112 | 0x5EFE << 32 | v4,
    }
    return {name: IPv6Address(bits) for name, bits in forms.items()}


WAYS = list(hidden(IPv4Address(0)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ip", ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"])
def test_a_metadata_address_is_one_in_every_disguise(way: str, ip: str) -> None:
    assert classify(str(hidden(IPv4Address(ip))[way])) is Kind.METADATA


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "ip", ["127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1"]
)
def test_an_inner_address_is_not_public_in_any_disguise(way: str, ip: str) -> None:
    kind = classify(str(hidden(IPv4Address(ip))[way]))
    assert kind is not Kind.PUBLIC
    assert kind.opt_in, "a rule may still say private: true"


@pytest.mark.parametrize("way", ["compatible", "mapped", "translated", "nat64", "6to4", "teredo client", "isatap"])
def test_a_public_address_stays_public_in_a_disguise_that_may_be_routed(way: str) -> None:
    assert classify(str(hidden(IPv4Address("140.82.112.3"))[way])) is Kind.PUBLIC


@given(st.ip_addresses(v=4), st.sampled_from(WAYS))
def test_a_disguise_never_makes_an_address_more_public(address: IPv4Address, way: str) -> None:
    if address in IPv4Network("0.0.0.0/8"):
        return  # `::1` is no disguise of 0.0.0.1
    order = list(Kind)
    assert order.index(classify(str(hidden(address)[way]))) <= order.index(classify(str(address)))


@given(st.ip_addresses(v=4), st.sampled_from(WAYS))
def test_the_readings_of_an_address_hold_what_is_hidden_in_it(address: IPv4Address, way: str) -> None:
    if address in IPv4Network("0.0.0.0/8"):
        return
    disguise = hidden(address)[way]
    assert {disguise, address} <= set(readings(disguise))


@given(st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_calls_otherwise(address: IPv4Address | IPv6Address) -> None:
    if classify(str(address)) is Kind.PUBLIC and isinstance(address, IPv4Address):
        assert address.is_global


@given(st.ip_addresses(v=6))
def test_ipv6_is_public_only_where_the_internet_is(address: IPv6Address) -> None:
    if classify(str(address)) is Kind.PUBLIC:
        assert int(address) >> 125 == 1 or len(set(readings(address))) > 1


def test_an_ipv4_address_is_only_itself() -> None:
    assert list(readings(ip_address("127.0.0.1"))) == [ip_address("127.0.0.1")]


@pytest.mark.parametrize("kind", Kind)
def test_no_rule_can_opt_into_metadata_or_what_is_no_host(kind: Kind) -> None:
    never = {Kind.METADATA, Kind.UNSPECIFIED, Kind.BROADCAST, Kind.MULTICAST}
    assert kind.opt_in == (kind not in never)
