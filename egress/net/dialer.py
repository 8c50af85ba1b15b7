"""The only place that opens a connection; it takes vetted addresses, never a name.

One address is one non-blocking connect. Several are a race (happy eyeballs, RFC 8305 section 5): the
families by turns, a new start every 250 ms or as soon as one fails, the first to arrive wins and the
rest are closed. The race is made of callbacks, not of tasks: whatever cancels the dial, and when, there
is nothing to wait for, only sockets and timers to drop.

`getpeername` is both the check for arrival and the last guard. It fails until the connection stands, so
asking it straight after connect spares a connection on this host the round through the event loop (a
loopback handshake is over before connect returns); and where it answers, the answer must be the vetted
address, whatever the kernel made of what it was given (it takes 0.0.0.0 for 127.0.0.1).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterable
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from egress.limits import LIMITS, Limits
from egress.model import Candidate, Host, Vetted
from egress.names import as_address
from egress.net import readiness
from egress.policy import Listeners
from egress.refusals import Reason, Refused

STAGGER = 0.25  # RFC 8305 section 8: Connection Attempt Delay

# What a failed attempt tells, the most telling first.
_WORDS = {
    errno.ECONNREFUSED: "connection refused by",
    errno.ECONNRESET: "connection reset by",
    errno.ETIMEDOUT: "no answer in time from",
    errno.EPERM: "the firewall of this host blocks",
    errno.EACCES: "the firewall of this host blocks",
    errno.EHOSTUNREACH: "no route to",
    errno.EREMCHG: "the connection led elsewhere than to",
    errno.EADDRNOTAVAIL: "no local address or port to reach",
    errno.ENETUNREACH: "no route to",
}
_RANK = {code: rank for rank, code in enumerate(_WORDS)}
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_LISTENERS = Listeners()


async def dial(vetted: Vetted, loop: asyncio.AbstractEventLoop, limits: Limits = LIMITS) -> socket.socket:
    """A connected, non-blocking socket to one of the addresses."""
    race = _Race(interleaved(vetted.addresses), loop)
    try:
        race.advance()
        if not race.over:
            await race.end(limits.connect)
        return race.claim()
    finally:
        race.close()


def operator_chose(candidates: Iterable[Candidate], listeners: Listeners = _NO_LISTENERS) -> Vetted:
    """Addresses of what the operator named on the command line: an upstream proxy, a DNS server.

    No rule speaks for these and any kind of address may be right, so nothing is vetted, save that a
    gate whose upstream is the gate itself would call itself until its descriptors run out.
    """
    kept = tuple(candidate for candidate in candidates if not listeners.has(candidate))
    if not kept:
        raise Refused(Reason.OWN_LISTENER, "the upstream that was configured is the gate's own listener")
    return Vetted(kept)


def interleaved(addresses: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The families by turns, beginning with that of the first; within one, the given order stands."""
    if len(addresses) < 2:
        return addresses
    first = _family(addresses[0])
    same = [address for address in addresses if _family(address) == first]
    other = [address for address in addresses if _family(address) != first]
    return tuple(address for pair in zip_longest(same, other) for address in pair if address is not None)


class _Failure(NamedTuple):
    address: Candidate
    code: int

    def __str__(self) -> str:
        words = _WORDS.get(self.code) or f"{os.strerror(self.code).lower()}:"
        return f"{words} {self.address.ip} port {self.address.port}"

    @property
    def rank(self) -> int:
        return -1 if self.code in _EXHAUSTED else _RANK.get(self.code, len(_RANK))


class _Race:
    """Attempts under way; at the end a winner, or why there is none."""

    __slots__ = ("_ended", "_failures", "_loop", "_ready", "_running", "_stagger", "_waiting", "_winner")

    def __init__(self, addresses: tuple[Candidate, ...], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready = readiness.of(loop)
        self._waiting = list(reversed(addresses))
        self._running: dict[socket.socket, Candidate] = {}
        self._failures: list[_Failure] = []
        self._winner: socket.socket | None = None
        self._stagger: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] | None = None

    @property
    def over(self) -> bool:
        return self._winner is not None or not (self._running or self._waiting)

    def advance(self) -> None:
        """Start one attempt more, and in place of any that fails at once, the next."""
        self._hold()
        under_way = len(self._running)
        while self._waiting and self._winner is None and len(self._running) == under_way:
            self._attempt(self._waiting.pop())
        if self.over:
            self._tell()
        elif self._waiting:
            self._stagger = self._loop.call_later(STAGGER, self.advance)

    async def end(self, seconds: float) -> None:
        """Wait until it is over; what is under way after so many seconds has failed."""
        self._ended = self._loop.create_future()
        timer = self._loop.call_later(seconds, self._give_up)
        try:
            await self._ended
        finally:
            timer.cancel()

    def claim(self) -> socket.socket:
        """The winner, from here on the caller's to close."""
        winner, self._winner = self._winner, None
        if winner is None:
            raise _refusal(self._failures)
        return winner

    def close(self) -> None:
        self._hold()
        for sock in self._running:
            self._ready.forget(sock.fileno())
            sock.close()
        self._running.clear()
        if self._winner is not None:  # it arrived, and in the same moment the dial was cancelled
            self._winner.close()

    def _attempt(self, address: Candidate) -> None:
        try:
            sock = _begin(address)
        except OSError as error:
            self._fail(address, error)
        else:
            self._look(sock, address)

    def _look(self, sock: socket.socket, address: Candidate) -> None:
        """Has it arrived or failed? If neither, look again when something happens to it."""
        try:
            arrived = _arrived(sock, address)
        except OSError as error:
            sock.close()
            self._fail(address, error)
            return
        if arrived:
            self._winner = sock
        else:
            self._running[sock] = address
            self._ready.when_writable(sock.fileno(), partial(self._happened, sock))

    def _happened(self, sock: socket.socket) -> None:
        if self._winner is not None:  # another won in this very turn of the loop; `close` takes this one
            return
        self._ready.remove(sock.fileno())  # a winner is the caller's, and nothing of ours stays with it
        self._look(sock, self._running.pop(sock))
        if sock not in self._running:
            self.advance()

    def _fail(self, address: Candidate, error: OSError) -> None:
        self._failures.append(_Failure(address, error.errno or errno.EIO))

    def _give_up(self) -> None:
        self._failures += [_Failure(address, errno.ETIMEDOUT) for address in self._running.values()]
        self.close()
        self._tell()

    def _hold(self) -> None:
        if self._stagger is not None:
            self._stagger.cancel()
            self._stagger = None

    def _tell(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _begin(address: Candidate) -> socket.socket:
    """A socket on its way; close-on-exec is Python's default."""
    ip, port, _ = address
    if as_address(Host(ip)) is None:  # else connect would look the name up by itself
        raise ValueError(f"{ip!r} is a name; only addresses are dialled")
    sock = socket.socket(_family(address), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _raise_for(sock.connect_ex((ip, port)), errno.EINPROGRESS)
    except BaseException:
        sock.close()
        raise
    return sock


def _arrived(sock: socket.socket, address: Candidate) -> bool:
    """Whether it is connected, and to no other than the address; OSError where it failed."""
    try:
        peer = sock.getpeername()
    except OSError:
        _raise_for(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        return False
    if peer[1] != address.port or as_address(peer[0]) != as_address(Host(address.ip)):
        raise OSError(errno.EREMCHG, f"connected to {peer[0]!r}, not to {address.ip!r}")
    return True


def _raise_for(code: int, expected: int = 0) -> None:
    if code not in (0, expected):
        raise OSError(code, os.strerror(code))


def _family(address: Candidate) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address.ip else socket.AF_INET


def _refusal(failures: list[_Failure]) -> Refused:
    if not failures:
        return Refused(Reason.UNREACHABLE, "no address to dial")
    telling = min(failures, key=lambda failure: failure.rank)
    if telling.code in _EXHAUSTED:
        return Refused(Reason.LIMIT, f"{os.strerror(telling.code).lower()} on this host")
    others = f"; none of {len(failures)} addresses can be reached" if len(failures) > 1 else ""
    return Refused(Reason.UNREACHABLE, f"{telling}{others}")
