"""Loopback and its routes: what makes every address there is one of the sandbox's own.

A route of type `local` for the whole address space says: deliver here. So a connection to any address
arrives at a socket inside, without a gateway, a second interface or a packet that leaves
(linux/rtnetlink.h; `ip route add local default dev lo`).

Loopback also gets an address that is not loopback, RFC 7600's dummy. Without one the C library takes the
machine for one without IPv4, and getaddrinfo with AI_ADDRCONFIG says no without asking anyone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from egress.record import NamedTuple
from launcher.netns.netlink import ACK, CREATE, EXCLUSIVE, Attribute, Message, decode

LINK_CHANGES = 0x1  # the multicast group that tells of interfaces
LOOPBACK = 1  # the first interface of any network namespace is its loopback
AF_INET, AF_INET6 = 2, 10
OWN_ADDRESS = bytes([192, 0, 0, 8])
LOOPBACK_ADDRESS = bytes([127, 0, 0, 1])  # which the kernel gives to a loopback that comes up without one
_NEW_LINK, _GET_LINK, _NEW_ADDRESS, _GET_ADDRESS, _NEW_ROUTE, _GET_ROUTE = 16, 18, 20, 22, 24, 26
_UP, _IS_LOOPBACK = 0x1, 0x8
_LINK = struct.Struct("=BxHiII")
_ROUTE = struct.Struct("=8BI")
_TABLE_LOCAL, _BY_BOOT, _LOCAL = 255, 3, 2
_SCOPE = {AF_INET: 254, AF_INET6: 0}  # host; IPv6 has none
_OUT_INTERFACE = 4
_ADDRESS = struct.Struct("=4BI")
_NAME, _PEER, _LOCAL_ADDRESS = 3, 1, 2

LOOPBACK_UP = Message(_NEW_LINK, _LINK.pack(0, 0, LOOPBACK, _UP, _UP))
LOOPBACK_DOWN = Message(_NEW_LINK, _LINK.pack(0, 0, LOOPBACK, 0, _UP))
GET_ADDRESSES = Message(_GET_ADDRESS, _ADDRESS.pack(0, 0, 0, 0, 0))
GET_LINKS = Message(_GET_LINK, _LINK.pack(0, 0, 0, 0, 0))


class Link(NamedTuple):
    number: int
    is_loopback: bool
    is_up: bool


def on_loopback(ip: bytes, prefix: int) -> Message:
    head = _ADDRESS.pack(AF_INET, prefix, 0, 0, LOOPBACK)
    return Message(_NEW_ADDRESS, head, (Attribute(_PEER, ip), Attribute(_LOCAL_ADDRESS, ip)), CREATE | EXCLUSIVE | ACK)


ADD_OWN_ADDRESS = on_loopback(OWN_ADDRESS, 32)


def removal(made: Message) -> Message:
    """The opposite of a message that adds an address or a route: it is said in the same words."""
    return made._replace(kind=made.kind + 1, flags=ACK)


def local_default(family: int) -> Message:
    head = _ROUTE.pack(family, 0, 0, 0, _TABLE_LOCAL, _BY_BOOT, _SCOPE[family], _LOCAL, 0)
    interface = Attribute(_OUT_INTERFACE, struct.pack("=i", LOOPBACK))
    return Message(_NEW_ROUTE, head, (interface,), CREATE | EXCLUSIVE | ACK)


def get_routes(family: int) -> Message:
    return Message(_GET_ROUTE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))


def links(bodies: Iterable[bytes]) -> Iterator[Link]:
    for body in bodies:
        _, _, number, flags, _ = _LINK.unpack_from(body)
        yield Link(number, bool(flags & _IS_LOOPBACK), bool(flags & _UP))


def names(bodies: Iterable[bytes]) -> Iterator[str]:
    """Of interfaces."""
    for body in bodies:
        yield dict(decode(body[_LINK.size :])).get(_NAME, b"").rstrip(b"\0").decode(errors="replace")


def addresses(bodies: Iterable[bytes]) -> Iterator[bytes]:
    for body in bodies:
        yield dict(decode(body[_ADDRESS.size :])).get(_PEER, b"")


def is_local_default(body: bytes) -> bool:
    _, length, _, _, table, _, _, kind, _ = _ROUTE.unpack_from(body)
    interface = dict(decode(body[_ROUTE.size :])).get(_OUT_INTERFACE)
    return (length, table, kind, interface) == (0, _TABLE_LOCAL, _LOCAL, struct.pack("=i", LOOPBACK))
