"""From a host to the addresses that it stands for, once per connection.

An address is itself, a `hosts:` entry is what the policy says, a name is looked up and kept for a
while. `known` answers all but the first look-up of a name without waiting.

The system's resolver is a function that blocks, at times for good, and cannot be cancelled. So each
look-up has a thread of its own, there are at most `limits.lookups` of them, and nobody but the thread
itself says when it is free again. A name has one look-up under way at most: who comes later joins it,
who loses patience leaves it, and a stuck one costs one thread however often its name is asked for. The
threads are daemons made by hand, because those of an executor are joined when the process exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import zip_longest
from typing import NamedTuple

from egress.addresses import Kind, classify
from egress.limits import LIMITS, Limits
from egress.model import Candidate, Host, Target
from egress.names import Malformed, as_address, parse_host
from egress.net.dnsclient import NOERROR, NXDOMAIN, Answer, DnsClient, DnsServer, rcode_name
from egress.policy import Fixed
from egress.refusals import Reason, Refused

_NEGATIVE_TTL = 5.0
_LEAST_TTL, _MOST_TTL = 1.0, 300.0  # whatever a DNS server says
_BUSY = "the resolver is busy"
_GAI = {
    socket.EAI_NONAME: "no such name",
    socket.EAI_NODATA: "the name has no address",
    socket.EAI_AGAIN: "the resolver of this host cannot answer now",
}
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT, errno.EINVAL)


class Finding(NamedTuple):
    """What a look-up brought, and for how many seconds it holds."""

    places: tuple[Candidate, ...]  # with port 0
    trouble: str
    ttl: float

    def at(self, port: int) -> tuple[Candidate, ...]:
        if not self.places:
            raise Refused(Reason.UNRESOLVED, self.trouble)
        return tuple(Candidate(place.ip, port, place.own) for place in self.places)


class _Flight:
    """A look-up under way, and how many wait for it."""

    __slots__ = ("begun", "task", "waiting")

    def __init__(self, task: asyncio.Task[Finding]) -> None:
        self.task = task
        self.begun = False  # it is being asked, and is not called off any more
        self.waiting = 0


class Resolver:
    __slots__ = ("_cache", "_client", "_flights", "_free", "_limits", "_loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: Limits = LIMITS, server: DnsServer | None = None
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._client = None if server is None else DnsClient(server, loop, limits)
        self._cache: dict[Host, tuple[float, Finding]] = {}  # with the time it holds until, the oldest first
        self._flights: dict[Host, _Flight] = {}
        self._free = asyncio.Semaphore(limits.lookups)

    def known(self, target: Target, hosts: Mapping[Host, Fixed]) -> tuple[Candidate, ...] | None:
        """What needs no look-up now; None for what does; `Refused` for a name that lately had none."""
        host, port = target
        if as_address(host) is not None:
            return (_candidate(host, port),)
        if (fixed := hosts.get(host)) is not None:
            return (_candidate(Host(fixed.ip), fixed.port or port),)
        until, finding = self._cache.get(host, _NOTHING)
        return finding.at(port) if until > self._loop.time() else None

    async def resolve(self, target: Target, hosts: Mapping[Host, Fixed]) -> tuple[Candidate, ...]:
        """The addresses of the target, or `Refused`."""
        known = self.known(target, hosts)
        if known is not None:
            return known
        flight = self._flights.get(target.host) or self._take_off(target.host)
        await self._wait_for(flight, target.host)
        if not flight.task.done():
            raise Refused(Reason.UNRESOLVED, f"no answer in {self._limits.resolve:g} s" if flight.begun else _BUSY)
        if flight.task.cancelled():
            raise Refused(Reason.UNRESOLVED, "the gate is closing")
        return flight.task.result().at(target.port)

    def close(self) -> None:
        for flight in self._flights.values():
            flight.task.cancel()
        self._cache.clear()

    def _take_off(self, host: Host) -> _Flight:
        flight = self._flights[host] = _Flight(self._loop.create_task(self._fly(host)))
        flight.task.add_done_callback(lambda _: self._remove(host, flight))
        return flight

    def _remove(self, host: Host, flight: _Flight) -> None:
        if self._flights.get(host) is flight:
            del self._flights[host]

    async def _wait_for(self, flight: _Flight, host: Host) -> None:
        """Wait as long as one may. The last to leave one that has not begun calls it off."""
        flight.waiting += 1
        try:
            # Unlike awaiting it, this leaves the task alone when the one who waits is cancelled.
            await asyncio.wait((flight.task,), timeout=self._limits.resolve)
        finally:
            flight.waiting -= 1
            if not (flight.waiting or flight.begun):
                self._remove(host, flight)
                flight.task.cancel()

    async def _fly(self, host: Host) -> Finding:
        async with self._free:
            self._flights[host].begun = True
            finding = await (self._ask_system(host) if self._client is None else self._ask(self._client, host))
        self._keep(host, finding)
        return finding

    async def _ask_system(self, host: Host) -> Finding:
        landed: asyncio.Future[list[str] | str] = self._loop.create_future()
        thread = threading.Thread(target=_look_up, args=(host, self._loop, landed), name="look-up", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the machine is out of threads, or of memory for one
            return Finding((), _BUSY, 0)
        result = await landed
        return self._finding(result, self._limits.resolver_ttl) if isinstance(result, list) else _failure(result)

    async def _ask(self, client: DnsClient, host: Host) -> Finding:
        v6, v4 = await asyncio.gather(_try(client, host, "AAAA"), _try(client, host, "A"))
        pairs = zip_longest(_addresses(v6), _addresses(v4))
        finding = self._finding((ip for pair in pairs for ip in pair if ip), _life((v6, v4)))
        return finding if finding.places else _failure(_trouble((v6, v4)), _life((v6, v4)))

    def _finding(self, addresses: Iterable[str], ttl: float) -> Finding:
        hosts = dict.fromkeys(host for host in map(_literal, addresses) if host is not None)
        places = tuple(_candidate(host, 0) for host in list(hosts)[: self._limits.addresses])
        return Finding(places, "", ttl) if places else _failure("the name has no usable address")

    def _keep(self, host: Host, finding: Finding) -> None:
        self._cache.pop(host, None)
        if finding.ttl:
            self._cache[host] = (self._loop.time() + finding.ttl, finding)
        if len(self._cache) > self._limits.resolver_cache:
            del self._cache[next(iter(self._cache))]


_NOTHING = (0.0, Finding((), "", 0))


def _failure(trouble: str, ttl: float = _NEGATIVE_TTL) -> Finding:
    return Finding((), trouble, ttl)


def _look_up(host: Host, loop: asyncio.AbstractEventLoop, landed: asyncio.Future[list[str] | str]) -> None:
    """The life of a thread. Bytes, because of a `str` getaddrinfo would make another name by IDNA."""
    result: list[str] | str = "the look-up failed"
    try:
        rows = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        result = [str(where[0]) for *_, where in rows if not any(where[3:])]  # the fourth is a scope id
    except OSError as error:
        result = _GAI.get(error.errno or 0) or str(error.strerror).lower()
    finally:
        with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody waits any more
            loop.call_soon_threadsafe(_land, landed, result)


def _land(landed: asyncio.Future[list[str] | str], result: list[str] | str) -> None:
    if not landed.done():
        landed.set_result(result)


def _literal(text: str) -> Host | None:
    """A canonical address; None for what is none, or has a scope."""
    try:
        host = parse_host(text)
    except Malformed:
        return None
    return None if as_address(host) is None else _unwrapped(host)


def _unwrapped(host: Host) -> Host:
    """A v4-mapped address is dialled as the IPv4 address it is, and compared with listeners as such."""
    address = as_address(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return host if mapped is None else Host(str(mapped))


def _candidate(host: Host, port: int) -> Candidate:
    ip = _unwrapped(host)
    return Candidate(ip, port, _is_own(ip))


def _is_own(ip: Host) -> bool:
    """Whether this very host has the address: then a socket can be bound to it.

    Only a clear no is a no: out of descriptors, the answer is not known, and must not be remembered. Of a
    loopback address, and of those that no rule can allow, the kind says enough.
    """
    kind = classify(ip)
    if kind is Kind.LOOPBACK or not kind.opt_in:
        return False
    try:
        with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            return _sends_from(probe, ip) if _binds_anything(":" in ip) else _binds(probe, ip)
    except OSError as error:
        raise Refused(Reason.LIMIT, f"whose {ip} is could not be found out: {error.strerror}") from None


def _binds(probe: socket.socket, ip: str) -> bool:
    try:
        probe.bind((ip, 0))
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


def _sends_from(probe: socket.socket, ip: str) -> bool:
    """The second best, where the kernel lets anyone bind to anything: it does not know secondary addresses."""
    try:
        probe.connect((ip, 9))
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return bool(probe.getsockname()[0] == ip)


@lru_cache(maxsize=2)
def _binds_anything(ipv6: bool) -> bool:
    try:
        with open(f"/proc/sys/net/ipv{6 if ipv6 else 4}/ip_nonlocal_bind", encoding="ascii") as setting:
            return setting.read().strip() != "0"
    except FileNotFoundError:
        return False


async def _try(client: DnsClient, host: Host, qtype: str) -> Answer | Refused:
    try:
        return await client.query(host, qtype)
    except Refused as refused:
        return refused


def _addresses(answer: Answer | Refused) -> list[str]:
    if isinstance(answer, Refused) or answer.rcode != NOERROR:
        return []
    return [record.data for record in answer.records]


def _life(answers: tuple[Answer | Refused, ...]) -> float:
    """How long it may be kept: what the answers with addresses say, or else the empty ones."""
    heard = [answer for answer in answers if isinstance(answer, Answer)]
    telling = [answer for answer in heard if answer.records] or heard
    said = [answer.ttl for answer in telling if answer.ttl is not None]
    return min(max(min(said, default=_NEGATIVE_TTL), _LEAST_TTL), _MOST_TTL)


def _trouble(answers: tuple[Answer | Refused, ...]) -> str:
    """Why there is no address: a clear no, else silence, else the server's own trouble."""
    codes = [answer.rcode for answer in answers if isinstance(answer, Answer)]
    if NXDOMAIN in codes:
        return "no such name"
    for answer in answers:
        if isinstance(answer, Refused):
            return answer.detail
    bad = next((code for code in codes if code != NOERROR), None)
    return "the name has no address" if bad is None else f"the DNS server answered {rcode_name(bad)}"
