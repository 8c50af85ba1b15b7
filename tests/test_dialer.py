from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections.abc import Iterator

import pytest
from loops import on_both_loops

from egress.limits import LIMITS
from egress.model import Candidate, Vetted
from egress.net import dialer
from egress.net.dialer import dial, interleaved, operator_chose
from egress.policy import Listeners
from egress.refusals import Reason, Refused

NEVER = 3600.0
HURRIED = LIMITS._replace(connect=0.05)


@contextlib.contextmanager
def listener(ip: str = "127.0.0.1") -> Iterator[Candidate]:
    """A server that takes whatever comes."""
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as sock:
        sock.bind((ip, 0))
        sock.listen()
        yield Candidate(ip, sock.getsockname()[1])


@contextlib.contextmanager
def black_hole(ip: str = "127.0.0.1") -> Iterator[tuple[Candidate, socket.socket]]:
    """A server whose queue is full: the kernel drops what knocks, without a word."""
    with socket.socket() as sock, contextlib.ExitStack() as stack:
        sock.bind((ip, 0))
        sock.listen(0)
        for _ in range(2):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(sock.getsockname())
        yield Candidate(ip, sock.getsockname()[1]), sock


def closed_port(ip: str = "127.0.0.1") -> Candidate:
    with socket.socket() as sock:
        sock.bind((ip, 0))
        return Candidate(ip, sock.getsockname()[1])


async def dialled(*addresses: Candidate, limits: object = LIMITS) -> socket.socket:
    return await dial(Vetted(addresses), asyncio.get_running_loop(), limits)  # type: ignore[arg-type]


async def refusal_of(*addresses: Candidate, limits: object = LIMITS) -> Refused:
    with pytest.raises(Refused) as caught:
        await dialled(*addresses, limits=limits)
    return caught.value


@pytest.fixture
def slow_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection looks unfinished at the first glance, as over a real network."""
    glanced: set[socket.socket] = set()
    honest = dialer._arrived

    def arrived(sock: socket.socket, address: Candidate) -> bool:
        if sock in glanced:
            return honest(sock, address)
        glanced.add(sock)
        return False

    monkeypatch.setattr(dialer, "_arrived", arrived)


# One address


@on_both_loops
async def test_one_address_gives_a_connected_socket_ready_for_the_loop() -> None:
    with listener() as address, await dialled(address) as sock:
        assert sock.getpeername() == (address.ip, address.port)
        assert sock.gettimeout() == 0
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not sock.get_inheritable()


@on_both_loops
async def test_an_ipv6_address_is_dialled_as_such() -> None:
    with listener("::1") as address, await dialled(address) as sock:
        assert sock.getpeername()[:2] == ("::1", address.port)


@on_both_loops
async def test_a_connection_that_takes_its_time_is_waited_for(slow_arrivals: None) -> None:
    with listener() as address, await dialled(address) as sock:
        assert sock.getpeername() == (address.ip, address.port)


@on_both_loops
async def test_a_full_server_that_makes_room_is_reached_in_the_end() -> None:
    loop = asyncio.get_running_loop()
    with black_hole() as (address, server):
        pending = loop.create_task(dialled(address))
        await asyncio.sleep(0)
        server.accept()[0].close()
        with await pending as sock:
            assert sock.getpeername() == (address.ip, address.port)


@on_both_loops
async def test_a_closed_port_is_told_as_refused() -> None:
    address = closed_port()
    refused = await refusal_of(address)
    assert refused.reason is Reason.UNREACHABLE
    assert refused.detail == f"connection refused by 127.0.0.1 port {address.port}"


@on_both_loops
async def test_a_refusal_that_comes_late_is_told_alike(slow_arrivals: None) -> None:
    address = closed_port()
    assert (await refusal_of(address)).detail == f"connection refused by 127.0.0.1 port {address.port}"


@on_both_loops
async def test_silence_ends_at_the_limit() -> None:
    with black_hole() as (address, _):
        refused = await refusal_of(address, limits=HURRIED)
    assert refused.reason is Reason.UNREACHABLE
    assert refused.detail == f"no answer in time from 127.0.0.1 port {address.port}"


@on_both_loops
async def test_a_name_is_never_dialled() -> None:
    with pytest.raises(ValueError, match="'localhost' is a name"):
        await dialled(Candidate("localhost", 80))


@pytest.mark.parametrize("ip", ["127.1", "0x7f.1", "2130706433"])
async def test_what_the_kernel_would_take_for_an_address_is_not_dialled(ip: str) -> None:
    with pytest.raises(ValueError):
        await dialled(Candidate(ip, 80))


@on_both_loops
async def test_a_peer_other_than_the_vetted_address_is_let_go() -> None:
    with listener() as address:
        refused = await refusal_of(Candidate("0.0.0.0", address.port))
    assert refused.detail == f"the connection led elsewhere than to 0.0.0.0 port {address.port}"


@on_both_loops
async def test_another_spelling_of_the_same_peer_is_the_same() -> None:
    with listener("::1") as address, await dialled(Candidate("0:0:0:0:0:0:0:1", address.port)) as sock:
        assert sock.getpeername()[0] == "::1"


@on_both_loops
async def test_nothing_to_dial_is_a_refusal() -> None:
    assert (await refusal_of()).detail == "no address to dial"


@on_both_loops
async def test_running_out_of_descriptors_is_our_limit_not_their_fault() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listener() as address:
        next_free = os.dup(0)
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
        try:
            refused = await refusal_of(address)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused.reason is Reason.LIMIT
    assert refused.detail == "too many open files on this host"


@on_both_loops
async def test_an_address_that_the_kernel_turns_down_at_once_is_told() -> None:
    refused = await refusal_of(Candidate("fe80::1", 80))  # link-local, and no word of which link
    assert refused.detail == "invalid argument: fe80::1 port 80"


class Timers:
    """The running loop, with an eye on its timers."""

    def __init__(self) -> None:
        self.set: list[asyncio.TimerHandle] = []
        self._loop = asyncio.get_running_loop()

    def call_later(self, *args: object) -> asyncio.TimerHandle:
        self.set.append(self._loop.call_later(*args))  # type: ignore[arg-type]
        return self.set[-1]

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


@on_both_loops
async def test_no_timer_outlives_the_dial(slow_arrivals: None) -> None:
    timers = Timers()
    with listener() as one, listener("127.0.0.2") as two:
        (await dial(Vetted((one, two)), timers)).close()  # type: ignore[arg-type]
    assert [timer.cancelled() for timer in timers.set] == [True, True]


# Several addresses


@on_both_loops
async def test_a_silent_address_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "STAGGER", 0.01)
    with black_hole() as (silent, _), listener("127.0.0.2") as good, await dialled(silent, good) as sock:
        assert sock.getpeername() == (good.ip, good.port)


@on_both_loops
async def test_the_next_address_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "STAGGER", NEVER)
    with black_hole() as (silent, _), listener("127.0.0.2") as good:
        refused = await refusal_of(silent, good, limits=HURRIED)
    assert refused.detail == f"no answer in time from {silent.ip} port {silent.port}"


@on_both_loops
async def test_a_failure_starts_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "STAGGER", NEVER)
    with listener("127.0.0.2") as good, await dialled(closed_port(), closed_port(), good) as sock:
        assert sock.getpeername() == (good.ip, good.port)


@on_both_loops
async def test_a_late_failure_starts_the_next_at_once(monkeypatch: pytest.MonkeyPatch, slow_arrivals: None) -> None:
    monkeypatch.setattr(dialer, "STAGGER", NEVER)
    with listener("127.0.0.2") as good, await dialled(closed_port(), closed_port(), good) as sock:
        assert sock.getpeername() == (good.ip, good.port)


@on_both_loops
async def test_two_arrivals_in_one_turn_have_one_winner(monkeypatch: pytest.MonkeyPatch, slow_arrivals: None) -> None:
    happened: list[socket.socket] = []
    honest = dialer._Race._happened
    monkeypatch.setattr(dialer._Race, "_happened", lambda race, sock: happened.append(sock) or honest(race, sock))
    with listener() as one, listener("127.0.0.2") as two:
        race = dialer._Race((one, two), asyncio.get_running_loop())
        race.advance()
        race.advance()  # as when the first took longer than the stagger
        await race.end(NEVER)
        with race.claim() as winner:
            race.close()
            assert [sock is winner for sock in happened] == [True, False]
            assert [sock.fileno() for sock in happened] == [winner.fileno(), -1]


@on_both_loops
async def test_when_all_fail_the_most_telling_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "STAGGER", 0)
    closed = closed_port("127.0.0.2")
    with black_hole() as (silent, _):
        refused = await refusal_of(silent, closed, limits=HURRIED)
    assert refused.detail == (f"connection refused by 127.0.0.2 port {closed.port}; none of 2 addresses can be reached")


@pytest.mark.parametrize(
    ("codes", "reason", "words"),
    [
        ((errno.ENETUNREACH, errno.ECONNREFUSED), Reason.UNREACHABLE, "connection refused by 192.0.2.1 port 443"),
        ((errno.ENETUNREACH, errno.ETIMEDOUT), Reason.UNREACHABLE, "no answer in time from 192.0.2.1 port 443"),
        ((errno.ENETUNREACH, errno.EHOSTUNREACH), Reason.UNREACHABLE, "no route to 192.0.2.1 port 443"),
        ((errno.EPROTONOSUPPORT,), Reason.UNREACHABLE, "protocol not supported: 192.0.2.0 port 443"),
        ((errno.ECONNREFUSED, errno.ENFILE), Reason.LIMIT, "too many open files in system on this host"),
    ],
)
def test_failures_are_ranked(codes: tuple[int, ...], reason: Reason, words: str) -> None:
    failures = [dialer._Failure(Candidate(f"192.0.2.{at}", 443), code) for at, code in enumerate(codes)]
    refused = dialer._refusal(failures)
    assert (refused.reason, refused.detail.partition(";")[0]) == (reason, words)


V4, V6 = [Candidate(f"192.0.2.{n}", 1) for n in range(4)], [Candidate(f"2001:db8::{n}", 1) for n in range(4)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([V4[0]], [V4[0]]),
        ([V4[0], V4[1], V4[2]], [V4[0], V4[1], V4[2]]),
        ([V6[0], V6[1], V4[0], V4[1]], [V6[0], V4[0], V6[1], V4[1]]),
        ([V4[0], V6[0], V6[1], V6[2]], [V4[0], V6[0], V6[1], V6[2]]),
        ([V4[0], V4[1], V4[2], V6[0]], [V4[0], V6[0], V4[1], V4[2]]),
    ],
)
def test_families_take_turns(given: list[Candidate], expected: list[Candidate]) -> None:
    assert interleaved(tuple(given)) == tuple(expected)


# Cancelling


@pytest.mark.parametrize("turns", range(7))
@on_both_loops
async def test_cancelling_at_any_turn_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, slow_arrivals: None, turns: int
) -> None:
    monkeypatch.setattr(dialer, "STAGGER", 0)
    with black_hole() as (silent, _), listener() as one, listener("127.0.0.2") as two:
        task = asyncio.get_running_loop().create_task(dialled(silent, one, closed_port(), two))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).close()


@on_both_loops
async def test_cancelling_in_the_moment_of_arrival_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, slow_arrivals: None
) -> None:
    told: list[bool] = []
    honest = dialer._Race._tell

    def cancel_too(race: dialer._Race) -> None:
        honest(race)
        told.append(task.cancel())

    monkeypatch.setattr(dialer._Race, "_tell", cancel_too)
    with listener() as address:
        task = asyncio.get_running_loop().create_task(dialled(address))
        with pytest.raises(asyncio.CancelledError):
            await task
    assert told == [True]


# The operator's own choice


def test_what_the_operator_chose_may_be_anywhere() -> None:
    candidates = [Candidate("127.0.0.1", 3128), Candidate("10.0.0.1", 3128)]
    assert operator_chose(candidates) == Vetted(tuple(candidates))


def test_what_the_operator_chose_is_not_the_gate_itself() -> None:
    here = Listeners(frozenset({("127.0.0.1", 3128)}))
    elsewhere = Candidate("10.0.0.1", 3128)
    assert operator_chose([Candidate("127.0.0.1", 3128), elsewhere], here) == Vetted((elsewhere,))
    with pytest.raises(Refused) as caught:
        operator_chose([Candidate("127.0.0.1", 3128)], here)
    assert caught.value.reason is Reason.OWN_LISTENER
