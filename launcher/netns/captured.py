"""What the host can learn of captured traffic: where a connection was going, and what was refused."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from egress.record import NamedTuple
from launcher.netns.netlink import decode, unpack

_ORIGINAL_DESTINATION = 80  # linux/netfilter_ipv4.h, and by the same number for IPv6
_SOCKADDR = {socket.AF_INET: (socket.IPPROTO_IP, 16, 4), socket.AF_INET6: (socket.IPPROTO_IPV6, 28, 8)}
_PAYLOAD = 9
_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmpv6", 132: "sctp", 136: "udplite"}
_WITH_PORTS = {6, 17, 33, 132, 136}
_ROOM = 64 * 1024
_REMEMBERED = 4096


class Destination(NamedTuple):
    ip: str
    port: int


class Rejected(NamedTuple):
    """A packet that found nobody; port zero where its protocol has none."""

    protocol: str
    ip: str
    port: int


def original_destination(sock: socket.socket) -> Destination:
    """Where an accepted connection was going before it was redirected.

    One that was not redirected was going where it arrived: to a wildcard listener, or to the capture port
    itself, which is loopback and so refused as such.
    """
    level, size, start = _SOCKADDR[socket.AddressFamily(sock.family)]
    try:
        data = sock.getsockopt(level, _ORIGINAL_DESTINATION, size)
    except OSError:  # no conntrack, or it does not know this connection
        return Destination(*sock.getsockname()[:2])
    (port,) = struct.unpack_from(">H", data, 2)
    return Destination(socket.inet_ntop(sock.family, data[start : start + (4 if size == 16 else 16)]), port)


class Rejects:
    """Reads the log of refused packets; of each destination it tells once."""

    __slots__ = ("_seen", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._seen: dict[Rejected, None] = {}

    def fileno(self) -> int:
        return self.sock.fileno()

    def read(self) -> list[Rejected]:
        """What is new since the last time; BlockingIOError when there is nothing to read."""
        return [rejected for rejected in parse_rejects(self.sock.recv(_ROOM)) if self._is_new(rejected)]

    def _is_new(self, rejected: Rejected) -> bool:
        if rejected in self._seen:
            return False
        self._seen[rejected] = None
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]  # the oldest
        return True


def parse_rejects(data: bytes) -> Iterator[Rejected]:
    """The packets in messages of the kernel's log (linux/netfilter/nfnetlink_log.h)."""
    for message in unpack(data):
        packet = dict(decode(message.body[4:])).get(_PAYLOAD, b"")
        if len(packet) >= 20:
            yield from _packet(packet)


def _packet(packet: bytes) -> Iterator[Rejected]:
    if packet[0] >> 4 == 4:
        yield _rejected(packet[9], packet[16:20], packet[(packet[0] & 0xF) * 4 :])
    elif packet[0] >> 4 == 6 and len(packet) >= 40:
        yield _rejected(packet[6], packet[24:40], packet[40:])


def _rejected(protocol: int, address: bytes, rest: bytes) -> Rejected:
    ip = socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
    port = int.from_bytes(rest[2:4], "big") if protocol in _WITH_PORTS else 0
    return Rejected(_PROTOCOLS.get(protocol, f"protocol {protocol}"), ip, port)
