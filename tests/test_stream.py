"""A connected socket with a read buffer and a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest
from gatekit import tcp_pair, until

from egress.limits import LIMITS
from egress.net.stream import Closed, Stream
from egress.refusals import Reason, Refused
from egress.wire.handshake import Handshake, take

LOOPS = "asyncio", "uvloop"
SOON = 0.01
pytestmark = pytest.mark.usefixtures("nothing_left")


@contextlib.contextmanager
def stream() -> Iterator[tuple[Stream, socket.socket]]:
    with tcp_pair() as (near, far):
        ours = Stream(near, asyncio.get_running_loop())
        try:
            yield ours, far
        finally:
            ours.close()


def stuff(sock: socket.socket) -> int:
    """Send until the peer's window is full; how much it took."""
    total = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            total += sock.send(bytes(65536))
    return total


async def read_all(sock: socket.socket) -> bytes:
    return await asyncio.to_thread(lambda: b"".join(iter(lambda: sock.recv(65536), b"")))


async def test_what_comes_is_appended_to_what_is_there() -> None:
    with stream() as (ours, far):
        far.sendall(b"one")
        assert await ours.fill() == 3
        far.sendall(b"two")
        assert await ours.fill() == 3
        assert ours.buffer == b"onetwo"


async def test_the_end_of_sending_is_nothing() -> None:
    with stream() as (ours, far):
        far.shutdown(socket.SHUT_WR)
        assert await ours.fill() == 0
        assert await ours.fill() == 0


async def test_a_wait_ends_when_something_comes() -> None:
    with stream() as (ours, far):
        waiting = asyncio.create_task(ours.fill())
        await asyncio.sleep(0)
        far.sendall(b"x")
        assert await waiting == 1


async def test_all_of_it_is_sent_to_a_peer_that_reads_slowly() -> None:
    data = bytes(range(256)) * 40_000
    with stream() as (ours, far):
        reading = asyncio.create_task(read_all(far))
        await ours.send(data)
        ours.finish_sending()
        assert await reading == data


async def test_one_read_is_bounded_however_much_there_is() -> None:
    with stream() as (ours, far):
        far.setblocking(False)
        assert stuff(far) > LIMITS.read
        await ours.fill()
        assert len(ours.buffer) <= LIMITS.read


async def test_a_busy_peer_does_not_keep_others_from_their_turn() -> None:
    """Data that is always there would never make `fill` wait, and nothing else in the process would run."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with stream() as (ours, far):
        bystander = asyncio.create_task(others())
        await asyncio.sleep(0)
        far.setblocking(False)
        for _ in range(100):
            stuff(far)
            await ours.fill()
            ours.buffer.clear()
        assert turns > 2
        bystander.cancel()


# Deadlines


async def test_a_deadline_ends_a_wait_for_input() -> None:
    with stream() as (ours, _):
        ours.expire_in(SOON)
        with pytest.raises(TimeoutError):
            await ours.fill()
        with pytest.raises(TimeoutError):
            await ours.fill()


async def test_a_deadline_ends_a_wait_for_a_peer_that_does_not_read() -> None:
    with stream() as (ours, _):
        stuff(ours.sock)
        ours.expire_in(SOON)
        with pytest.raises(TimeoutError):
            await ours.send(b"x")


@pytest.mark.parametrize("waits", [True, False])
async def test_a_deadline_is_for_the_phase_and_not_for_each_wait(waits: bool) -> None:
    """Each byte comes in time and all of them together do not, even if none had to be waited for."""
    loop = asyncio.get_running_loop()
    with stream() as (ours, far):
        ours.expire_in(SOON)
        with pytest.raises(TimeoutError):  # noqa: PT012  # it takes many reads
            for _ in range(1_000_000):
                loop.call_soon(far.sendall, b"x") if waits else far.sendall(b"x")
                await ours.fill()
        await asyncio.sleep(0)


async def test_a_deadline_can_be_moved_and_taken_away() -> None:
    with stream() as (ours, far):
        ours.expire_in(SOON)
        with pytest.raises(TimeoutError):
            await ours.fill()
        ours.expire_in(None)
        far.sendall(b"x")
        assert await ours.fill() == 1
        ours.expire_in(SOON)
        ours.expire_in(60)
        waiting = asyncio.create_task(ours.fill())
        await asyncio.sleep(3 * SOON)
        far.sendall(b"x")
        assert await waiting == 1


# Closing


async def test_closing_wakes_whoever_waits() -> None:
    with stream() as (ours, _):
        stuff(ours.sock)
        waits = [asyncio.create_task(ours.fill()), asyncio.create_task(ours.send(b"x"))]
        await asyncio.sleep(0)
        ours.close()
        for error in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(error, Closed)


async def test_closing_twice_is_closing_once() -> None:
    with stream() as (ours, far):
        ours.close()
        ours.close()
        ours.abort()
        ours.finish_sending()
        assert await read_all(far) == b""
        with pytest.raises(OSError):
            await ours.fill()


async def test_reading_on_after_the_close_is_an_error_whatever_was_read_before() -> None:
    with stream() as (ours, far):
        far.sendall(b"x")
        assert await ours.fill() == 1
        ours.close()
        with pytest.raises(OSError):
            await ours.fill()


async def test_a_cancelled_wait_leaves_the_stream_usable() -> None:
    with stream() as (ours, far):
        waiting = asyncio.create_task(ours.fill())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        far.sendall(b"x")
        assert await ours.fill() == 1


async def test_a_number_that_was_given_to_another_socket_is_left_alone() -> None:
    """A wait that ends after its socket was closed must not stop the watch on whoever got its number."""
    loop = asyncio.get_running_loop()
    with stream() as (ours, _), tcp_pair() as (near, far):
        waiting = asyncio.create_task(ours.fill())
        await asyncio.sleep(0)
        number = ours.sock.fileno()
        ours.close()
        with socket.socket(fileno=_dup_to(near, number)) as another:
            seen = asyncio.Event()
            loop.add_reader(another.fileno(), seen.set)
            await asyncio.gather(waiting, return_exceptions=True)
            far.sendall(b"x")
            await asyncio.wait_for(seen.wait(), 15)
            loop.remove_reader(another.fileno())


def _dup_to(sock: socket.socket, number: int) -> int:
    import os

    return os.dup2(sock.fileno(), number)


async def test_aborting_tells_the_peer_that_this_was_not_the_end() -> None:
    with stream() as (ours, far):
        await ours.send(b"half of it")
        ours.abort()
        with pytest.raises(ConnectionResetError):
            await read_all(far)


async def test_parting_lets_the_last_words_arrive_though_input_was_unread() -> None:
    with stream() as (ours, far):
        far.sendall(bytes(1 << 16))
        await ours.send(b"sorry")
        parting = asyncio.create_task(ours.part())
        assert await asyncio.to_thread(far.recv, 100) == b"sorry"
        assert await read_all(far) == b""
        far.close()
        await parting
        assert ours.sock.fileno() == -1


async def test_parting_does_not_wait_for_a_peer_that_never_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.net.stream._PARTING", SOON)
    with stream() as (ours, _):
        await ours.part()
        assert ours.sock.fileno() == -1


async def test_parting_does_not_listen_to_a_peer_that_never_stops() -> None:
    with stream() as (ours, far):
        far.setblocking(False)
        parting = asyncio.create_task(ours.part())
        sent = 0
        with contextlib.suppress(ConnectionError):
            while not parting.done():
                with contextlib.suppress(BlockingIOError):
                    sent += far.send(bytes(65536))
                await asyncio.sleep(0)
        assert sent < 64 << 20
        await parting


# Handshakes


def greet(buffer: bytearray) -> Handshake[bytes]:
    first = yield from take(buffer, 2)
    yield b"got " + first
    return (yield from take(buffer, 2))


async def test_a_handshake_is_driven_to_its_value_and_leaves_the_rest() -> None:
    with stream() as (ours, far):
        far.sendall(b"abcdef")
        assert await ours.run(greet(ours.buffer)) == b"cd"
        assert ours.buffer == b"ef"
        assert far.recv(10) == b"got ab"


async def test_a_handshake_that_asks_for_nothing_new_is_not_kept_waiting() -> None:
    with stream() as (ours, far):
        far.sendall(b"abcd")
        await ours.fill()
        assert await asyncio.wait_for(ours.run(greet(ours.buffer)), 15) == b"cd"


async def test_a_peer_that_leaves_in_a_handshake_is_an_error() -> None:
    with stream() as (ours, far):
        far.sendall(b"abc")
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(Closed):
            await ours.run(greet(ours.buffer))


async def test_a_refusal_passes_through() -> None:
    def refuse(buffer: bytearray) -> Handshake[None]:
        yield from take(buffer, 1)
        raise Refused(Reason.MALFORMED_REQUEST)

    with stream() as (ours, far):
        far.sendall(b"x")
        with pytest.raises(Refused):
            await ours.run(refuse(ours.buffer))


async def test_a_reset_is_an_error_and_not_an_end() -> None:
    with stream() as (ours, far):
        Stream(far, asyncio.get_running_loop()).abort()
        await until(lambda: ours.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7)
        with pytest.raises(ConnectionResetError):
            await ours.fill()
