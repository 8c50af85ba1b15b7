"""The rules and routes of full capture: what they say, and that the kernel understands them so."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netnskit import bare_network, inside

from launcher.netns import nftables
from launcher.netns.capture import log_to_this_socket, table
from launcher.netns.captured import Rejected, Rejects, parse_rejects
from launcher.netns.kernel import NETFILTER, ROUTE, Kernel
from launcher.netns.model import Sandbox
from launcher.netns.netlink import Attribute, Message, decode, encode, holds, nested, number, pack, text, unpack
from launcher.netns.nftables import GET_CHAINS, GET_RULES, Table, batch, differences, script
from launcher.netns.routes import AF_INET, AF_INET6, GET_LINKS, Link, get_routes, is_local_default, links, local_default

TREES = st.recursive(
    st.builds(Attribute, st.integers(1, 0x3FFF), st.binary(max_size=40)),
    lambda inner: st.builds(Attribute, st.integers(1, 0x3FFF), st.lists(inner, min_size=1, max_size=4).map(tuple)),
    max_leaves=12,
)


@pytest.fixture
def network() -> Iterator[Sandbox]:
    with bare_network() as sandbox:
        yield sandbox


def install(wanted: Table) -> None:
    with Kernel(NETFILTER) as kernel:
        kernel.tell(*batch(wanted))


def listed() -> list[dict[str, Any]]:
    """The ruleset as nft reads it from the kernel, without what differs from one loading to the next."""
    words = ["nft", "--json", "list", "ruleset"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    entries = json.loads(re.sub(r'"handle": \d+', '"handle": 0', text))["nftables"]
    return [entry for entry in entries if "metainfo" not in entry]


# Framing.


@given(st.lists(TREES, max_size=5))
def test_attributes_hold_what_they_were_made_of(said: list[Attribute]) -> None:
    unique = {attribute.kind: attribute for attribute in said}
    flat = [attribute for attribute in unique.values() if isinstance(attribute.value, bytes)]
    assert holds(encode(flat), flat)
    assert [(kind, value) for kind, value in decode(encode(flat))] == [tuple(attribute) for attribute in flat]
    assert len(encode(said)) % 4 == 0


@given(st.binary(max_size=200))
def test_reading_ends_on_any_bytes(data: bytes) -> None:
    assert len(list(decode(data))) <= len(data)
    assert len(list(unpack(data))) <= len(data)
    assert len(list(parse_rejects(data))) <= len(data)


def test_more_than_was_said_is_no_difference_but_less_or_other_is() -> None:
    said = (text(1, "cmp"), nested(2, number(1, 1), number(2, 0)))
    assert holds(encode((*said, number(9, 7))), said)
    assert holds(encode((said[0], nested(2, number(1, 1), number(2, 0), number(3, 3)))), said)
    assert not holds(encode(said[:1]), said)
    assert not holds(encode((said[0], nested(2, number(1, 1), number(2, 1)))), said)
    assert not holds(b"", said)


def test_messages_are_numbered_and_padded() -> None:
    data = pack([Message(16, b"abcd", (text(1, "x"),)), Message(17, b"efgh", flags=0)])
    assert [(reply.kind, reply.body[:4]) for reply in unpack(data)] == [(16, b"abcd"), (17, b"efgh")]
    assert struct.unpack_from("=IHHI", data) == (28, 16, 0x5, 1)
    assert struct.unpack_from("=IHHI", data, 28) == (20, 17, 0x1, 2)


# Rules.


def test_the_rules_read_as_intended() -> None:
    assert script(table(40000)) == (
        "table inet egress {\n"
        "\tchain divert {\n"
        "\t\ttype nat hook output priority -100; policy accept;\n"
        "\t\tudp dport 53 redirect to :53\n"
        "\t\ttcp dport 53 redirect to :53\n"
        "\t\tip daddr 127.0.0.0/8 accept\n"
        "\t\tip6 daddr ::1 accept\n"
        "\t\tip daddr 192.0.0.8 accept\n"
        "\t\tmeta l4proto tcp redirect to :40000\n"
        "\t}\n"
        "\tchain refuse {\n"
        "\t\ttype filter hook input priority 0; policy accept;\n"
        "\t\tip daddr 127.0.0.0/8 accept\n"
        "\t\tip6 daddr ::1 accept\n"
        "\t\tip daddr 192.0.0.8 accept\n"
        "\t\tct direction reply accept\n"
        "\t\tlimit rate 100/second burst 500 packets log group 1\n"
        "\t\tmeta l4proto udp reject with icmpx type port-unreachable\n"
        "\t\treject with icmpx type admin-prohibited\n"
        "\t}\n"
        "}\n"
    )


@pytest.mark.parametrize("logged", [True, False])
def test_the_messages_say_what_the_words_say(network: Sandbox, logged: bool) -> None:
    wanted = table(40000, logged=logged)
    with bare_network() as other:
        words = ["nft", "--file", "-"]
        inside(other, lambda: subprocess.run(words, input=script(wanted), text=True, check=True).returncode)
        by_nft = inside(other, listed)
    inside(network, lambda: install(wanted))
    assert inside(network, listed) == by_nft
    assert sum("rule" in entry for entry in by_nft) == (13 if logged else 12)


def test_the_kernel_reads_back_what_was_installed(network: Sandbox) -> None:
    assert inside(network, lambda: (install(table(40000)), found(table(40000)))[1]) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("add rule inet egress divert accept", "2 chains with 14 rules, not 2 with 13"),
        ("insert rule inet egress refuse accept", "2 chains with 14 rules, not 2 with 13"),
        ("flush chain inet egress refuse", "2 chains with 6 rules, not 2 with 13"),
        ("delete table inet egress", "0 chains with 0 rules, not 2 with 13"),
        ("add table ip other; add chain ip other c", "3 chains with 13 rules, not 2 with 13"),
        ("replace rule inet egress divert handle HANDLE meta l4proto tcp redirect to :40001", "'meta l4proto tcp red"),
        ("replace rule inet egress divert handle HANDLE meta l4proto udp redirect to :40000", "'meta l4proto tcp red"),
        ("replace rule inet egress divert handle HANDLE accept", "chain divert: a rule is not 'meta l4proto tcp red"),
        ("chain inet egress divert { policy drop; }", "chain divert is not as it was written"),
    ],
)
def test_any_change_of_the_rules_is_a_difference(network: Sandbox, change: str, says: str) -> None:
    def meddle() -> list[str]:
        install(table(40000))
        rules = [entry["rule"] for entry in handles() if "rule" in entry]
        last = [rule["handle"] for rule in rules if rule["chain"] == "divert"][-1]
        subprocess.run(["nft", change.replace("HANDLE", str(last))], check=True)
        return found(table(40000))

    assert says in "; ".join(inside(network, meddle))


def handles() -> list[dict[str, Any]]:
    words = ["nft", "--json", "--handle", "list", "ruleset"]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["nftables"]


def found(wanted: Table) -> list[str]:
    with Kernel(NETFILTER) as kernel:
        return list(differences(wanted, kernel.ask(GET_CHAINS), kernel.ask(GET_RULES)))


def test_a_rule_that_the_kernel_refuses_leaves_nothing_installed(network: Sandbox) -> None:
    nonsense = nftables.Step("nonsense", (nftables.Expression("nonsense", ()),))
    good = table(40000)
    broken = good._replace(chains=(*good.chains, nftables.Chain("more", "filter", "input", 1, ((nonsense,),))))
    with pytest.raises(FileNotFoundError):
        inside(network, lambda: install(broken))
    assert inside(network, listed) == []


# Routes.


def test_the_routes_make_every_address_local(network: Sandbox) -> None:
    def add() -> list[list[bool]]:
        with Kernel(ROUTE) as kernel:
            before = [any(map(is_local_default, kernel.ask(get_routes(family)))) for family in (AF_INET, AF_INET6)]
            kernel.tell(local_default(AF_INET), local_default(AF_INET6))
            after = [any(map(is_local_default, kernel.ask(get_routes(family)))) for family in (AF_INET, AF_INET6)]
        return [before, after]

    assert inside(network, add) == [[False, False], [True, True]]
    shown = inside(network, lambda: subprocess.check_output(["ip", "route", "get", "203.0.113.9"], text=True))
    assert shown.startswith("local 203.0.113.9 dev lo")


def test_every_interface_is_listed(network: Sandbox) -> None:
    def look() -> list[Link]:
        subprocess.run(["ip", "link", "add", "one", "type", "veth", "peer", "name", "two"], check=True)
        with Kernel(ROUTE) as kernel:
            return list(links(kernel.ask(GET_LINKS)))

    lo, *others = inside(network, look)
    assert lo == Link(1, is_loopback=True, is_up=True)
    assert [(link.is_loopback, link.is_up) for link in others] == [(False, False)] * 2


def test_the_kernels_no_is_an_error(network: Sandbox) -> None:
    with pytest.raises(FileExistsError):
        inside(network, lambda: Kernel(ROUTE).tell(local_default(AF_INET), local_default(AF_INET)))


# Refused packets.


def log_of(*packets: bytes) -> bytes:
    return pack([Message(4 << 8, bytes(4), (Attribute(9, packet),), flags=0) for packet in packets])


def ipv4(protocol: int, ip: str, rest: bytes, options: bytes = b"") -> bytes:
    header = bytes([0x45 + len(options) // 4]) + bytes(8) + bytes([protocol]) + bytes(6) + socket.inet_aton(ip)
    return header + options + rest


def ipv6(protocol: int, ip: str, rest: bytes) -> bytes:
    return bytes([0x60]) + bytes(5) + bytes([protocol]) + bytes(17) + socket.inet_pton(socket.AF_INET6, ip) + rest


PORTS = struct.pack(">HH", 40000, 443)


@pytest.mark.parametrize(
    ("packet", "rejected"),
    [
        (ipv4(17, "1.2.3.4", PORTS), Rejected("udp", "1.2.3.4", 443)),
        (ipv4(17, "1.2.3.4", PORTS, options=bytes(8)), Rejected("udp", "1.2.3.4", 443)),
        (ipv4(1, "1.2.3.4", b"\x08\0\x12\x34"), Rejected("icmp", "1.2.3.4", 0)),
        (ipv4(47, "1.2.3.4", PORTS), Rejected("protocol 47", "1.2.3.4", 0)),
        (ipv4(17, "1.2.3.4", b""), Rejected("udp", "1.2.3.4", 0)),
        (ipv6(17, "2001:db8::1", PORTS), Rejected("udp", "2001:db8::1", 443)),
        (ipv6(58, "2001:db8::1", PORTS), Rejected("icmpv6", "2001:db8::1", 0)),
    ],
)
def test_a_refused_packet_is_told_by_where_it_was_going(packet: bytes, rejected: Rejected) -> None:
    assert list(parse_rejects(log_of(packet))) == [rejected]


@pytest.mark.parametrize("packet", [b"", b"\x45", ipv4(17, "1.2.3.4", b"")[:19], ipv6(17, "::2", b"")[:39], bytes(40)])
def test_what_is_not_a_packet_is_passed_over(packet: bytes) -> None:
    assert list(parse_rejects(log_of(packet, ipv4(17, "1.2.3.4", PORTS)))) == [Rejected("udp", "1.2.3.4", 443)]


def test_each_destination_is_told_once_until_many_others_came() -> None:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, kernels:
        rejects = Rejects(ours)

        def read(ip: str) -> int:
            kernels.send(log_of(ipv4(17, ip, PORTS)))
            return len(rejects.read())

        assert [read("1.2.3.4"), read("1.2.3.4"), read("1.2.3.5")] == [1, 0, 1]
        assert sum(read(f"10.0.{n >> 8}.{n & 255}") for n in range(4096)) == 4096
        assert read("1.2.3.4") == 1


def test_the_log_of_a_group_has_one_listener(network: Sandbox) -> None:
    def bind_twice() -> None:
        first, second = Kernel(NETFILTER), Kernel(NETFILTER)
        first.tell(log_to_this_socket())
        second.tell(log_to_this_socket())

    with pytest.raises(PermissionError):
        inside(network, bind_twice)
