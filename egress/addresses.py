"""What kind of place an address is.

`ipaddress.is_global` is no guard: it says yes to NAT64 and 6to4 forms of metadata services. So each
address is unwrapped into every IPv4 address it may stand for, each form is looked up in one explicit
table, and the least public kind wins. An IPv6 address outside the table and outside 2000::/3 is
reserved, not public.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from egress.names import Address


class Kind(Enum):
    """Ordered from the least to the most public; `opt_in`: a rule's `private: true` may allow it."""

    METADATA = ("a cloud metadata service", False)
    UNSPECIFIED = ("an unspecified address", False)
    BROADCAST = ("a broadcast address", False)
    MULTICAST = ("a multicast address", False)
    LOOPBACK = ("a loopback address", True)
    LINK_LOCAL = ("a link-local address", True)
    PRIVATE = ("a private address", True)
    SHARED = ("a carrier-grade NAT address", True)
    RESERVED = ("a reserved address", True)
    DOCUMENTATION = ("a documentation or benchmark address", True)
    PUBLIC = ("a public address", True)

    def __init__(self, words: str, opt_in: bool) -> None:
        self.words = words
        self.opt_in = opt_in


_TABLE: tuple[tuple[str, Kind], ...] = (
    # Metadata: AWS, Azure, GCP, Oracle, Alibaba, Tencent, Scaleway and those that copy them.
    ("169.254.169.0/24", Kind.METADATA),
    ("169.254.170.0/24", Kind.METADATA),  # ECS and EKS task credentials
    ("169.254.42.42", Kind.METADATA),
    ("169.254.0.23", Kind.METADATA),
    ("168.63.129.16", Kind.METADATA),
    ("100.100.100.200", Kind.METADATA),
    ("192.0.0.192", Kind.METADATA),
    ("fd00:ec2::/32", Kind.METADATA),
    ("fd20:ce::254", Kind.METADATA),
    ("fd00:42::42", Kind.METADATA),
    ("fd00:c1::a9fe:a9fe", Kind.METADATA),
    ("fd00:a9fe:a9fe::/48", Kind.METADATA),
    ("fd00:100::100:200", Kind.METADATA),
    # IPv4, from IANA's special-purpose registry.
    ("0.0.0.0/8", Kind.UNSPECIFIED),
    ("10.0.0.0/8", Kind.PRIVATE),
    ("100.64.0.0/10", Kind.SHARED),
    ("127.0.0.0/8", Kind.LOOPBACK),
    ("169.254.0.0/16", Kind.LINK_LOCAL),
    ("172.16.0.0/12", Kind.PRIVATE),
    ("192.0.0.0/24", Kind.RESERVED),
    ("192.0.2.0/24", Kind.DOCUMENTATION),
    ("192.88.99.0/24", Kind.RESERVED),
    ("192.168.0.0/16", Kind.PRIVATE),
    ("198.18.0.0/15", Kind.DOCUMENTATION),
    ("198.51.100.0/24", Kind.DOCUMENTATION),
    ("203.0.113.0/24", Kind.DOCUMENTATION),
    ("224.0.0.0/4", Kind.MULTICAST),
    ("255.255.255.255", Kind.BROADCAST),
    ("240.0.0.0/4", Kind.RESERVED),
    # IPv6: what embeds IPv4 is public by itself and judged by what it embeds.
    ("::", Kind.UNSPECIFIED),
    ("::1", Kind.LOOPBACK),
    ("::/96", Kind.PUBLIC),
    ("::ffff:0:0/96", Kind.PUBLIC),
    ("::ffff:0:0:0/96", Kind.PUBLIC),
    ("64:ff9b::/96", Kind.PUBLIC),
    ("64:ff9b:1::/48", Kind.PRIVATE),  # local-use NAT64: an operator's own network
    ("100::/64", Kind.RESERVED),
    ("2001::/32", Kind.PUBLIC),
    ("2001:2::/48", Kind.DOCUMENTATION),
    ("2001:db8::/32", Kind.DOCUMENTATION),
    ("2001::/23", Kind.RESERVED),
    ("3fff::/20", Kind.DOCUMENTATION),
    ("5f00::/16", Kind.RESERVED),
    ("fc00::/7", Kind.PRIVATE),
    ("fe80::/10", Kind.LINK_LOCAL),
    ("fec0::/10", Kind.PRIVATE),  # site-local, deprecated and still routed
    ("ff00::/8", Kind.MULTICAST),
    ("2000::/3", Kind.PUBLIC),
    ("::/0", Kind.RESERVED),
)
_NETWORKS = tuple((ip_network(text), kind) for text, kind in _TABLE)
_ORDER = {kind: place for place, kind in enumerate(Kind)}


@lru_cache(maxsize=4096)
def classify(ip: str) -> Kind:
    """The least public kind among all the addresses that `ip` may lead to."""
    return min((_lookup(form) for form in readings(ip_address(ip))), key=_ORDER.__getitem__)


def readings(address: Address) -> Iterator[Address]:
    """The address itself and every IPv4 address hidden in it."""
    yield address
    if isinstance(address, IPv6Address):
        yield from _embedded(address)


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    bits = int(address)
    low = IPv4Address(bits & 0xFFFFFFFF)
    high96 = bits >> 32
    if high96 in (0, 0xFFFF, 0xFFFF_0000, 0x0064_FF9B << 64):  # compatible, mapped, translated, NAT64
        if bits > 1:  # `::` and `::1` are what they are
            yield low
    elif bits >> 80 == 0x0064_FF9B_0001:  # NAT64, local use
        yield from map(IPv4Address, _local_nat64(bits))
    elif bits >> 112 == 0x2002:  # 6to4
        yield IPv4Address(bits >> 80 & 0xFFFFFFFF)
    elif bits >> 96 == 0x2001_0000:  # Teredo: the server, and the client with its bits flipped
        yield IPv4Address(bits >> 64 & 0xFFFFFFFF)
        yield IPv4Address(~bits & 0xFFFFFFFF)
    if (bits >> 32) & 0xFCFF_FFFF == 0x0000_5EFE:  # ISATAP, whatever the prefix
        yield low


def _local_nat64(bits: int) -> Iterator[int]:
    """RFC 6052 section 2.2: the address stands at bit 48, 56, 64 or 96 and leaves out the octet at 64.

    Which of them the operator chose cannot be seen, so all count, but where there are only zeros.
    """
    places = (
        (bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF,
        (bits >> 64 & 0xFF) << 24 | bits >> 32 & 0xFFFFFF,
        bits >> 24 & 0xFFFFFFFF,
        bits & 0xFFFFFFFF,
    )
    return (place for place in places if place >> 24)


def _lookup(address: Address) -> Kind:
    return next((kind for network, kind in _NETWORKS if address in network), Kind.PUBLIC)
