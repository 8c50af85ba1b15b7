"""Both ways until both ends are done: the kernel's pipes and the copying loop, with real TCP around them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from gatekit import reset, tcp_pair, until

from egress.limits import KIB, LIMITS, MIB
from egress.net.pipepool import Pipe, Pipes
from egress.net.relay import Outcome, Relay
from egress.net.stream import Stream

LOOPS = "asyncio", "uvloop"
pytestmark = pytest.mark.usefixtures("nothing_left")


class CountedPipes(Pipes):
    """Pipes that know how many were ever lent, and how many are out."""

    def __init__(self) -> None:
        super().__init__()
        self.lent = self.out = 0

    def borrow(self) -> Pipe:
        pipe = super().borrow()
        self.lent, self.out = self.lent + 1, self.out + 1
        return pipe

    def give_back(self, pipe: Pipe, empty: bool) -> None:
        self.out -= 1
        super().give_back(pipe, empty)

    def close(self) -> None:
        self.out += len(self._free)
        super().close()


class NoPipes(Pipes):
    def borrow(self) -> Pipe:
        raise OSError(24, "too many open files")


class End:
    """What a test holds of a tunnel: one of its two far ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, data: bytes, *, last: bool = False) -> None:
        self.writer.write(data)
        if last:
            self.writer.write_eof()
        await self.writer.drain()

    async def hear(self, count: int = -1) -> bytes:
        return await asyncio.wait_for(self.reader.read() if count < 0 else self.reader.readexactly(count), 15)

    def die(self) -> None:
        reset(self.writer)


class Tunnel:
    def __init__(self, relay: Relay, client: End, upstream: End, pipes: CountedPipes) -> None:
        self.relay, self.client, self.upstream, self.pipes = relay, client, upstream, pipes

    @property
    def counts(self) -> tuple[int, int]:
        return self.relay.up.count, self.relay.down.count

    async def outcome(self) -> Outcome:
        return await asyncio.wait_for(asyncio.shield(self.relay.done), 15)


@asynccontextmanager
async def tunnel(pipes: Pipes | None = None, ahead: bytes = b"", first_word: bytes = b"") -> AsyncIterator[Tunnel]:
    """A relay at work; `ahead` and `first_word` were read of the client and the upstream before it began."""
    loop = asyncio.get_running_loop()
    lent = pipes or CountedPipes()
    with tcp_pair() as (near_client, far_client), tcp_pair() as (near_upstream, far_upstream):
        ends = [End(*await asyncio.open_connection(sock=sock.dup())) for sock in (far_client, far_upstream)]
        far_client.close()
        far_upstream.close()
        streams = [Stream(sock, loop) for sock in (near_client, near_upstream)]
        streams[0].buffer += ahead
        streams[1].buffer += first_word
        relay = Relay(*streams, lent, loop)
        try:
            yield Tunnel(relay, *ends, lent)  # type: ignore[arg-type]
        finally:
            relay.stop(Outcome.STOPPED)
            for stream in streams:
                stream.close()
            for end in ends:
                end.writer.close()
                with contextlib.suppress(ConnectionError):
                    await end.writer.wait_closed()
            lent.close()


async def test_each_side_hears_the_other_and_both_ends_make_an_end() -> None:
    async with tunnel() as t:
        await t.client.say(b"question")
        assert await t.upstream.hear(8) == b"question"
        await t.upstream.say(b"answer", last=True)
        assert await t.client.hear() == b"answer"
        assert not t.relay.done.done()
        await t.client.say(b"!", last=True)
        assert await t.upstream.hear() == b"!"
        assert await t.outcome() is Outcome.CLOSED
        assert t.counts == (9, 6)
        assert t.pipes.lent == 0


@pytest.mark.parametrize("first", ["client", "upstream"])
async def test_who_is_done_sending_still_hears(first: str) -> None:
    async with tunnel() as t:
        early, late = (t.client, t.upstream) if first == "client" else (t.upstream, t.client)
        await early.say(b"", last=True)
        assert await late.hear() == b""
        for _ in range(3):
            await late.say(b"still here")
            assert await early.hear(10) == b"still here"
        await late.say(b"", last=True)
        assert await early.hear() == b""
        assert await t.outcome() is Outcome.CLOSED


async def test_what_was_read_before_the_tunnel_goes_first_and_counts() -> None:
    async with tunnel(ahead=b"hello", first_word=b"220 ready") as t:
        await t.client.say(b" world", last=True)
        await t.upstream.say(b" to serve", last=True)
        assert await t.upstream.hear() == b"hello world"
        assert await t.client.hear() == b"220 ready to serve"
        assert await t.outcome() is Outcome.CLOSED
        assert t.counts == (11, 18)


@pytest.mark.parametrize("pipes", [CountedPipes, NoPipes])
async def test_bulk_arrives_whole_spliced_or_copied(pipes: type[Pipes]) -> None:
    data = random.Random(1).randbytes(8 * MIB + 12_345)
    async with tunnel(pipes()) as t:
        saying = asyncio.create_task(t.client.say(data, last=True))
        heard = await t.upstream.hear()
        assert heard == data
        await saying
        await t.upstream.say(b"thanks", last=True)
        assert await t.client.hear() == b"thanks"
        assert await t.outcome() is Outcome.CLOSED
        assert t.counts == (len(data), 6)
        if isinstance(t.pipes, CountedPipes):
            assert t.pipes.lent > 0
            assert t.pipes.out == 0


async def test_a_sender_is_held_up_while_the_other_end_does_not_read() -> None:
    """Upstream is in a hurry and the client sleeps: the gate takes a pipeful at most, and reads no more."""
    async with tunnel() as t:
        t.client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        sock = t.upstream.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
        data = random.Random(2).randbytes(48 * MIB)
        saying = asyncio.create_task(t.upstream.say(data, last=True))
        await until(lambda: t.relay.down.held_up)
        for _ in range(50):
            before = t.relay.down.count
            await asyncio.sleep(0.002)
            if t.relay.down.count == before and t.relay.down.held_up:
                break
        assert not saying.done()
        assert t.relay.down.count < len(data)
        assert t.relay.down._held + len(t.relay.down._pending) <= LIMITS.pipe
        t.client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert hashlib.sha256(await t.client.hear()).digest() == hashlib.sha256(data).digest()
        await saying
        assert t.relay.down.count == len(data)


async def test_a_tunnel_that_was_held_up_and_is_idle_again_holds_no_pipe() -> None:
    async with tunnel() as t:
        t.client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        said = 0
        while not t.pipes.out:
            await t.upstream.say(bytes(MIB))
            said += MIB
            await until(lambda said=said: t.relay.down.count == said or t.pipes.out)
        await until(lambda: t.relay.down.count == said)  # all of it is read, and the last of it is in the pipe
        t.client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await t.client.hear(said)) == said
        assert t.pipes.out == 0


async def test_bulk_that_ends_leaves_no_pipe_with_a_tunnel_that_is_open_the_other_way() -> None:
    for size in range(LIMITS.read, 20 * LIMITS.read, LIMITS.read):
        async with tunnel() as t:
            await t.client.say(bytes(size))
            await until(lambda size=size, t=t: t.relay.up.count == size)
            await t.client.say(b"", last=True)
            assert len(await t.upstream.hear()) == size
            assert t.pipes.out == 0
            assert not t.relay.done.done()


@pytest.mark.parametrize("victim", ["client", "upstream"])
async def test_a_reset_on_one_side_is_a_reset_on_the_other(victim: str) -> None:
    async with tunnel() as t:
        dies, lives = (t.client, t.upstream) if victim == "client" else (t.upstream, t.client)
        await dies.say(b"half of")
        assert await lives.hear(7) == b"half of"
        dies.die()
        with pytest.raises(ConnectionResetError):
            await lives.hear()
        assert await t.outcome() is Outcome.RESET


async def test_an_upstream_that_was_gone_before_the_tunnel_began_resets_it() -> None:
    loop = asyncio.get_running_loop()
    pipes = Pipes()
    with tcp_pair() as (near_client, far_client), tcp_pair() as (near_upstream, far_upstream):
        client, upstream = Stream(near_client, loop), Stream(near_upstream, loop)
        client.buffer += b"a ClientHello"
        Stream(far_upstream, loop).abort()
        await until(lambda: near_upstream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7)
        assert await Relay(client, upstream, pipes, loop).done is Outcome.RESET
        with pytest.raises(ConnectionResetError):
            far_client.recv(1)


async def test_bytes_left_in_a_pipe_reach_no_other_tunnel() -> None:
    pipes = CountedPipes()
    async with tunnel(pipes) as t:
        t.client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        saying = asyncio.create_task(t.upstream.say(b"secret" * (8 * MIB)))
        await until(lambda: t.pipes.out and t.relay.down._held)
        t.relay.stop(Outcome.REVOKED)
        with pytest.raises(ConnectionError):
            await saying
        assert await t.outcome() is Outcome.REVOKED
        assert pipes.out == 0
        with contextlib.closing(pipes):
            while pipes._free:
                pipe = pipes._free.pop()
                with pytest.raises(BlockingIOError):
                    os.read(pipe.reader, 1)
                pipes.out += 1
                pipes.give_back(pipe, empty=False)


async def test_stopping_cuts_both_sides_once() -> None:
    async with tunnel() as t:
        await t.client.say(b"half of")
        assert await t.upstream.hear(7) == b"half of"
        t.relay.stop(Outcome.IDLE)
        t.relay.stop(Outcome.LIFETIME)
        for end in (t.client, t.upstream):
            with pytest.raises(ConnectionResetError):
                await end.hear()
        assert await t.outcome() is Outcome.IDLE
        assert not t.relay.lost_a_peer()


async def test_a_peer_that_dies_while_nobody_listens_to_it_is_found() -> None:
    async with tunnel() as t:
        t.client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        saying = asyncio.create_task(t.upstream.say(bytes(48 * MIB)))
        await until(lambda: t.relay.down.held_up)
        assert not t.relay.lost_a_peer()
        t.upstream.die()
        await asyncio.gather(saying, return_exceptions=True)
        await until(t.relay.lost_a_peer)
        assert not t.relay.done.done()


async def test_a_peer_that_said_its_last_word_and_died_is_found() -> None:
    async with tunnel() as t:
        await t.client.say(b"", last=True)
        assert await t.upstream.hear() == b""
        assert not t.relay.lost_a_peer()
        t.client.die()
        await until(t.relay.lost_a_peer)


async def test_a_stopped_tunnel_with_bytes_in_hand_has_lost_nobody() -> None:
    """The look once a second may come between a stop and its clean-up, when the sockets are closed."""
    async with tunnel(NoPipes()) as t:
        t.client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        saying = asyncio.create_task(t.upstream.say(bytes(48 * MIB)))
        await until(lambda: t.relay.down.held_up)
        t.relay.stop(Outcome.RESET)
        assert not t.relay.lost_a_peer()
        await asyncio.gather(saying, return_exceptions=True)


async def test_unix_sockets_are_relayed_too_and_never_taken_for_dead() -> None:
    loop = asyncio.get_running_loop()
    near_client, far_client = socket.socketpair()
    near_upstream, far_upstream = socket.socketpair()
    pipes = Pipes()
    with near_client, far_client, near_upstream, far_upstream:
        near_client.setblocking(False)
        near_upstream.setblocking(False)
        client, upstream = Stream(near_client, loop), Stream(near_upstream, loop)
        relay = Relay(client, upstream, pipes, loop)
        far_client.sendall(b"x" * 100)
        far_client.shutdown(socket.SHUT_WR)
        far_upstream.shutdown(socket.SHUT_WR)
        assert await asyncio.wait_for(relay.done, 15) is Outcome.CLOSED
        assert not relay.lost_a_peer()
        assert far_upstream.recv(200) == b"x" * 100
        client.close()
        upstream.close()


async def test_a_busy_tunnel_lets_others_have_their_turn() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with tunnel() as t:
        bystander = asyncio.create_task(others())
        data = bytes(32 * MIB)
        saying = asyncio.create_task(t.client.say(data, last=True))
        sock = t.upstream.writer.get_extra_info("socket").dup()
        t.upstream.reader._transport.pause_reading()  # type: ignore[attr-defined]
        sock.setblocking(True)
        with sock:
            await asyncio.to_thread(lambda: sum(iter(lambda: len(sock.recv(MIB)), 0)))
        await saying
        bystander.cancel()
        assert turns > 10


async def test_many_tunnels_at_once_each_with_its_own_bytes_both_ways() -> None:
    """Every byte is hashed; sizes are such that copying and splicing both happen, and the ends come at odd times."""
    pipes = CountedPipes()
    chance = random.Random(3)
    loads = [(chance.randbytes(_size(chance)), chance.randbytes(_size(chance))) for _ in range(100)]

    async def one(up: bytes, down: bytes) -> tuple[int, int]:
        async with tunnel_with(pipes) as t:
            heard = await asyncio.gather(
                _talk(t.client, up, random.Random(len(up))), _talk(t.upstream, down, random.Random(len(down))),
                _hash(t.upstream), _hash(t.client),
            )  # fmt: skip
            assert heard[2:] == [hashlib.sha256(up).digest(), hashlib.sha256(down).digest()]
            assert await t.outcome() is Outcome.CLOSED
            return t.counts

    counts = await asyncio.gather(*(one(*load) for load in loads))
    assert counts == [(len(up), len(down)) for up, down in loads]
    assert pipes.lent > 0
    assert pipes.out == 0
    pipes.close()


@asynccontextmanager
async def tunnel_with(pipes: CountedPipes) -> AsyncIterator[Tunnel]:
    """A tunnel whose pipes outlive it."""

    class Borrowed(CountedPipes):
        def borrow(self) -> Pipe:
            return pipes.borrow()

        def give_back(self, pipe: Pipe, empty: bool) -> None:
            pipes.give_back(pipe, empty)

        def close(self) -> None:
            pass

    async with tunnel(Borrowed()) as t:
        yield t


def _size(chance: random.Random) -> int:
    return chance.choice([0, 1, 1000, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 300_000, MIB, 3 * MIB + 7])


async def _talk(end: End, data: bytes, chance: random.Random) -> None:
    at = 0
    while at < len(data):
        size = chance.choice([1, 100, 5000, 64 * KIB, 500_000])
        await end.say(data[at : at + size])
        at += size
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    await end.say(b"", last=True)


async def _hash(end: End) -> bytes:
    digest = hashlib.sha256()
    while data := await asyncio.wait_for(end.reader.read(30_000), 15):
        digest.update(data)
    return digest.digest()


# Pipes


async def test_a_pipe_is_lent_again_when_it_came_back_empty() -> None:
    pipes = Pipes()
    first = pipes.borrow()
    pipes.give_back(first, empty=True)
    assert pipes.borrow() == first
    pipes.give_back(first, empty=False)
    with pytest.raises(OSError):
        os.fstat(first.reader)
    pipes.close()


async def test_so_many_pipes_are_kept_and_no_more() -> None:
    pipes = Pipes(size=4 * KIB)
    lent = [pipes.borrow() for _ in range(80)]
    for pipe in lent:
        pipes.give_back(pipe, empty=True)
    assert sum(os.path.exists(f"/proc/self/fd/{pipe.reader}") for pipe in lent) == 64
    pipes.close()


async def test_a_pipe_knows_the_size_that_it_got() -> None:
    pipes = Pipes(size=1 << 40)
    pipe = pipes.borrow()
    assert 0 < pipe.size < 1 << 40
    assert not os.get_blocking(pipe.reader)
    assert not os.get_inheritable(pipe.writer)
    pipes.give_back(pipe, empty=False)
