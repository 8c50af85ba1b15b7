"""Who waits for which socket: as few words with the kernel as will do, and no event lost or left spinning."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest
from gatekit import descriptors, tcp_pair, until

from egress.net import readiness
from egress.net.readiness import Readiness

LOOPS = "asyncio", "uvloop"
pytestmark = pytest.mark.usefixtures("nothing_left")


def ready() -> Readiness:
    return Readiness(asyncio.get_running_loop())


class Calls:
    """A caller's side: how often it was called, and once in a while what it then does."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


class Counting(Readiness):
    """Knows how often the kernel was told something."""

    told = 0

    def _tell_kernel(self, fd: int) -> None:
        self.told += 1
        super()._tell_kernel(fd)


def fill_up(sock: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(bytes(65536))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


async def test_who_waits_for_input_is_called_when_some_comes_and_not_before() -> None:
    r, seen = ready(), Calls()
    with tcp_pair() as (near, far):
        r.when_readable(near.fileno(), seen)
        await turns()
        assert seen.count == 0
        far.sendall(b"x")
        await until(lambda: seen.count)
        r.forget(near.fileno())


async def test_it_is_called_again_for_what_it_left_unread() -> None:
    r, seen = ready(), Calls()
    with tcp_pair() as (near, far):
        r.when_readable(near.fileno(), seen)
        far.sendall(b"x")
        await until(lambda: seen.count > 3)
        r.forget(near.fileno())


@pytest.mark.parametrize("end", ["shutdown", "reset"])
async def test_an_end_is_something_to_read(end: str) -> None:
    r, seen = ready(), Calls()
    with tcp_pair() as (near, far):
        r.when_readable(near.fileno(), seen)
        if end == "reset":
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            far.close()
        else:
            far.shutdown(socket.SHUT_WR)
        await until(lambda: seen.count)
        r.forget(near.fileno())


async def test_one_socket_can_be_waited_for_both_ways() -> None:
    r, reads, writes = ready(), Calls(), Calls()
    with tcp_pair() as (near, far):
        fill_up(near)
        r.when_readable(near.fileno(), reads)
        r.when_writable(near.fileno(), writes)
        await turns()
        assert (reads.count, writes.count) == (0, 0)
        far.sendall(b"x")
        await until(lambda: reads.count)
        assert writes.count == 0
        r.ignore_input(near.fileno())
        while not writes.count:
            await asyncio.to_thread(far.recv, 1 << 20)
            await asyncio.sleep(0)
        r.forget(near.fileno())


@pytest.mark.parametrize("left", ["nothing", "the other"])
async def test_what_nobody_waits_for_is_told_once_and_then_no_more(left: str) -> None:
    """Else the loop would spin on it for as long as nobody reads."""
    r, seen = ready(), Calls()
    with tcp_pair() as (near, far):
        fill_up(near)
        r.when_readable(near.fileno(), seen)
        if left == "the other":
            r.when_writable(near.fileno(), seen)
        r.ignore_input(near.fileno())
        far.sendall(b"x")
        await until(lambda: not r._watched.get(near.fileno(), 0) & readiness._IN)
        assert seen.count == 0
        r.when_readable(near.fileno(), seen)
        await until(lambda: seen.count)
        r.forget(near.fileno())


async def test_waiting_again_costs_no_word_with_the_kernel() -> None:
    r, seen = Counting(asyncio.get_running_loop()), Calls()
    with tcp_pair() as (near, far):
        for _ in range(3):
            r.when_readable(near.fileno(), seen)
            r.ignore_input(near.fileno())
            await turns()
        r.when_readable(near.fileno(), seen)
        assert r.told == 1
        far.sendall(b"x")
        await until(lambda: seen.count)
        r.forget(near.fileno())


async def test_a_number_that_is_anothers_by_now_means_the_other() -> None:
    r, first, second = ready(), Calls(), Calls()
    with tcp_pair() as (near, far), tcp_pair() as (other, other_far):
        number = near.fileno()
        r.when_readable(number, first)
        r.forget(number)
        os.dup2(other.fileno(), number)
        r.when_readable(number, second)
        far.close()
        other_far.sendall(b"x")
        await until(lambda: second.count)
        assert first.count == 0
        r.forget(number)


async def test_what_lives_on_elsewhere_is_removed_with_a_word_to_the_kernel() -> None:
    r, seen = ready(), Calls()
    with tcp_pair() as (near, far), tcp_pair() as (held, _), near.dup():
        r.when_readable(held.fileno(), seen)  # so that the epoll stays
        r.when_readable(near.fileno(), seen)
        r.remove(near.fileno())
        far.sendall(b"x")
        near.close()
        await turns()
        assert r._epoll is not None
        assert r._epoll.poll(0) == []
        r.remove(near.fileno())  # which it is not any more
        r.forget(held.fileno())


async def test_the_last_to_be_forgotten_takes_the_descriptor_along() -> None:
    r, before = ready(), len(descriptors())
    with tcp_pair() as (near, far):
        r.when_readable(near.fileno(), Calls())
        r.when_readable(far.fileno(), Calls())
        r.forget(near.fileno())
        assert len(descriptors()) == before + 5 - 1  # two ends and their listener, the epoll, and not the listing
        r.forget(far.fileno())
        r.forget(far.fileno())
    await until(lambda: len(descriptors()) == before)


async def test_a_call_may_close_others_that_something_happened_to_as_well() -> None:
    r, seen = ready(), Calls()
    with tcp_pair() as (one, far_one), tcp_pair() as (two, far_two):

        def close_both() -> None:
            seen()
            for sock in (one, two):
                r.forget(sock.fileno())
                sock.close()

        far_one.sendall(b"x")
        far_two.sendall(b"x")
        r.when_readable(one.fileno(), close_both)
        r.when_readable(two.fileno(), close_both)
        await turns()
        assert seen.count == 1


async def test_a_loop_has_one_and_another_loop_another() -> None:
    loop = asyncio.get_running_loop()
    assert readiness.of(loop) is readiness.of(loop)
    other = asyncio.new_event_loop()
    try:
        assert readiness.of(other) is not readiness.of(loop)
    finally:
        other.close()
