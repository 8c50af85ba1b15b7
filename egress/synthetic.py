"""Addresses that stand for names. Pure: the time is told, not asked for.

In a sandbox each name gets an address of its own and keeps it, so that a connection to the address is a
connection to the name. IPv4 addresses come from 198.18.0.0/15, which is set aside for benchmarks and
routed nowhere; the IPv6 address of a name is the same 32 bits behind a private prefix of ours, which
spells `egress` (RFC 4193).

An address given to a second name while a client still has it for the first would make policy judge the
wrong name. So addresses are new until the table is full, and after that the one that was told longest ago
goes first: only when its time to live and a generous grace are over, and no open connection uses it.
When there is none, the table is full, and says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.model import Host

_FIRST = int(IPv4Address("198.18.1.0"))  # what is below it is for our own use: 198.18.0.1 is the name server's
_PREFIX = int(IPv6Address("fd65:6772:6573:7300::"))
_USABLE = 254  # of each 256: an address that ends in 0 or 255 is refused by some
_BLOCKS = 511


class Pair(NamedTuple):
    v4: str
    v6: str


class _Place(NamedTuple):
    number: int
    pair: Pair
    told: float


def _nobody(_: str) -> bool:
    return False


class SyntheticNames:
    """`in_use(ip)` says whether an open connection goes to an address of ours."""

    __slots__ = ("_grace", "_in_use", "_names", "_places", "_size")

    def __init__(self, limits: DnsLimits = DNS_LIMITS, in_use: Callable[[str], bool] = _nobody) -> None:
        self._size = min(limits.synthetic_names, _BLOCKS * _USABLE)
        self._grace = limits.synthetic_ttl + limits.ready_for + limits.synthetic_grace
        self._in_use = in_use
        self._places: OrderedDict[Host, _Place] = OrderedDict()  # told longest ago first
        self._names: dict[int, Host] = {}  # by IPv4 address

    def __len__(self) -> int:
        return len(self._places)

    def allot(self, host: Host, now: float) -> Pair | None:
        """The addresses of a name, which is told them now; None when there is no room for a new name."""
        place = self._places.get(host) or self._free_place(now)
        if place is None:
            return None
        self._places[host] = place._replace(told=now)
        self._places.move_to_end(host)
        self._names[place.number] = host
        return place.pair

    def name_of(self, ip: str) -> Host | None:
        """The name that an address was told for; None for an address that stands for no name."""
        number = _number(ip)
        return None if number is None else self._names.get(number)

    def _free_place(self, now: float) -> _Place | None:
        count = len(self._places)
        return _place(count) if count < self._size else self._reclaim(now)

    def _reclaim(self, now: float) -> _Place | None:
        """The place of the name that was told longest ago, if nobody can still mean that name by it."""
        for _ in range(len(self._places)):
            host, place = next(iter(self._places.items()))
            if now - place.told < self._grace:
                return None
            if not any(map(self._in_use, place.pair)):
                del self._places[host]
                return place
            self._places[host] = place._replace(told=now)  # as good as told: ask again much later
            self._places.move_to_end(host)
        return None


def _place(index: int) -> _Place:
    block, end = divmod(index, _USABLE)
    number = _FIRST + 256 * block + 1 + end
    return _Place(number, Pair(str(IPv4Address(number)), str(IPv6Address(_PREFIX | number))), 0.0)


def _number(ip: str) -> int | None:
    """The 32 bits that an address of either family holds for a name."""
    try:
        address = int(IPv6Address(ip)) if ":" in ip else int(IPv4Address(ip))
    except AddressValueError:
        return None
    if ":" not in ip or address >> 32 == 0xFFFF:  # a v4-mapped address is what a dual-stack socket shows
        return address & 0xFFFFFFFF
    return address & 0xFFFFFFFF if address >> 32 == _PREFIX >> 32 else None
