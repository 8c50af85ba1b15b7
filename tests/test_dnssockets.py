"""The sockets of the nameserver: what they carry, in which order, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping

import pytest
from gatekit import PATIENCE, until
from loops import on_both_loops, open_descriptors

from egress.dnslimits import DNS_LIMITS, DnsLimits
from egress.net import dnssockets
from egress.net.dnssockets import Conversations, Datagrams, Reply, open_both, open_udp
from egress.net.listeners import open_tcp


class Echo:
    """A desk that answers with what it is asked, at once, or later for questions that begin with `wait`."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.asked: list[tuple[bytes, bool]] = []
        self.waiting: list[tuple[bytes, Reply]] = []

    def ready(self) -> Mapping[bytes, bytes]:
        return self.kept

    def handle(self, packet: bytes, udp: bool, reply: Reply) -> None:
        self.asked.append((packet, udp))
        if packet.startswith(b"wait"):
            self.waiting.append((packet, reply))
        elif not packet.startswith(b"hush"):
            reply(packet)


@contextlib.asynccontextmanager
async def datagrams(desk: Echo) -> AsyncIterator[socket.socket]:
    """A client's socket, connected to ours."""
    ours = open_udp("127.0.0.1", 0)
    address = ours.getsockname()
    serving = Datagrams(ours, desk, asyncio.get_running_loop())
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(address)
        try:
            yield client
        finally:
            await serving.close()


async def heard(client: socket.socket) -> bytes:
    return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 65535), PATIENCE)


@on_both_loops
async def test_a_datagram_is_answered_from_what_is_ready_behind_its_own_id() -> None:
    desk = Echo()
    desk.kept[b"question"] = b"answer"
    async with datagrams(desk) as client:
        client.send(b"\1\2question")
        assert await heard(client) == b"\1\2answer"
        client.send(b"\1\2questiom")
        assert await heard(client) == b"\1\2questiom"
    assert desk.asked == [(b"\1\2questiom", True)]


@pytest.mark.parametrize("packet", [b"", b"\0", b"\0\0"])
@on_both_loops
async def test_a_datagram_of_almost_nothing_is_handed_over_like_any_other(packet: bytes) -> None:
    desk = Echo()
    async with datagrams(desk) as client:
        client.send(packet)
        assert await heard(client) == packet


@on_both_loops
async def test_hundreds_of_datagrams_at_once_are_all_answered() -> None:
    async with datagrams(Echo()) as client:
        for number in range(200):
            client.send(b"%d" % number)
        assert {await heard(client) for _ in range(200)} == {b"%d" % number for number in range(200)}


@on_both_loops
async def test_a_datagram_that_is_too_large_arrives_cut() -> None:
    desk = Echo()
    async with datagrams(desk) as client:
        client.send(b"x" * 9000)
        assert await heard(client) == b"x" * 4096


@on_both_loops
async def test_a_late_answer_goes_to_who_asked_and_one_after_the_end_to_nobody() -> None:
    desk = Echo()
    async with datagrams(desk) as client:
        client.send(b"wait 1")
        client.send(b"wait 2")
        await until(lambda: len(desk.waiting) == 2)
        desk.waiting[0][1](b"late")
        assert await heard(client) == b"late"
    desk.waiting[1][1](b"too late")


@on_both_loops
async def test_a_client_that_has_gone_or_an_answer_that_is_too_large_disturbs_nobody() -> None:
    desk = Echo()
    async with datagrams(desk) as client:
        with socket.socket(type=socket.SOCK_DGRAM) as other:
            other.connect(client.getpeername())
            other.send(b"wait")
            await until(lambda: desk.waiting)
        desk.waiting[0][1](b"answer")
        desk.waiting[0][1](b"x" * 70000)
        client.send(b"next")
        assert await heard(client) == b"next"


def test_a_port_for_both_is_looked_for_until_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def third_time(host: str, port: int) -> socket.socket:
        tried.append(port)
        if len(tried) < 3:
            raise OSError(98, "address already in use")
        return open_udp(host, port)

    monkeypatch.setattr(dnssockets, "open_udp", third_time)
    udp, tcp = open_both("127.0.0.1", 0)
    with udp, tcp:
        assert udp.getsockname() == tcp.getsockname()
    assert len(tried) == 3


def test_a_port_that_was_asked_for_is_had_both_ways_or_not_at_all() -> None:
    udp, tcp = open_both("127.0.0.1", 0)
    tcp.close()
    with udp:
        before = open_descriptors()
        with pytest.raises(OSError, match="in use"):
            open_both(*udp.getsockname())
        assert open_descriptors() == before


# TCP


class Caller:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def say(self, *packets: bytes) -> None:
        await self.write(b"".join(len(packet).to_bytes(2, "big") + packet for packet in packets))

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def hear(self) -> bytes:
        size = int.from_bytes(await self._exactly(2), "big")
        return await self._exactly(size)

    async def rest(self) -> bytes:
        """All that comes until the end, or a reset."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while more := await asyncio.wait_for(self._loop.sock_recv(self.sock, 65535), PATIENCE):
                data += more
        return data

    async def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await asyncio.wait_for(self._loop.sock_recv(self.sock, size - len(data)), PATIENCE)
            assert more, "the line is dead"
            data += more
        return data


class Line:
    def __init__(self, address: tuple[str, int], serving: Conversations) -> None:
        self.address, self.serving = address, serving
        self._socks = contextlib.ExitStack()

    async def call(self, room: int = 0) -> Caller:
        sock = self._socks.enter_context(socket.socket())
        sock.setblocking(False)
        if room:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        return Caller(sock)

    def close(self) -> None:
        self._socks.close()


@contextlib.asynccontextmanager
async def line(desk: Echo, limits: DnsLimits = DNS_LIMITS) -> AsyncIterator[Line]:
    ours = open_tcp("127.0.0.1", 0)
    address = ours.getsockname()
    it = Line(address, Conversations(ours, desk, asyncio.get_running_loop(), limits))
    try:
        yield it
    finally:
        await it.serving.close()
        it.close()


@on_both_loops
async def test_a_client_may_ask_on_without_waiting() -> None:
    desk = Echo()
    desk.kept[b"e"] = b"not for TCP"
    async with line(desk) as it:
        caller = await it.call()
        await caller.say(*(b"%d" % number for number in range(500)))
        assert [await caller.hear() for _ in range(500)] == [b"%d" % number for number in range(500)]
        await caller.say(b"one")
        assert await caller.hear() == b"one"
    assert desk.asked[-1] == (b"one", False)


@on_both_loops
async def test_a_message_may_come_byte_by_byte() -> None:
    async with line(Echo()) as it:
        caller = await it.call()
        for byte in b"\0\5hello\0\2me":
            await caller.write(bytes([byte]))
        assert [await caller.hear(), await caller.hear()] == [b"hello", b"me"]


@on_both_loops
async def test_a_slow_answer_holds_up_no_other() -> None:
    desk = Echo()
    async with line(desk) as it:
        caller = await it.call()
        await caller.say(b"wait", b"quick")
        assert await caller.hear() == b"quick"
        desk.waiting[0][1](b"slow")
        assert await caller.hear() == b"slow"


@on_both_loops
async def test_silence_of_the_desk_is_silence_on_the_line() -> None:
    async with line(Echo()) as it:
        caller = await it.call()
        await caller.say(b"hush", b"next")
        assert await caller.hear() == b"next"


@on_both_loops
async def test_who_stops_asking_still_gets_its_answers() -> None:
    async with line(Echo()) as it:
        caller = await it.call()
        await caller.say(b"one", b"two")
        caller.sock.shutdown(socket.SHUT_WR)
        assert await caller.rest() == b"\0\3one\0\3two"


@on_both_loops
async def test_who_says_nothing_or_half_a_thing_is_hung_up_on() -> None:
    async with line(Echo(), DNS_LIMITS._replace(tcp_idle=0.05)) as it:
        for beginning in (b"", b"\0", b"\0\5hel"):
            caller = await it.call()
            await caller.write(beginning)
            assert await caller.rest() == b""


@on_both_loops
async def test_a_message_larger_than_any_query_ends_the_conversation() -> None:
    desk = Echo()
    async with line(desk) as it:
        caller = await it.call()
        await caller.say(b"x" * 4096)
        assert len(await caller.hear()) == 4096
        await caller.say(b"x" * 4097)
        assert await caller.rest() == b""
    assert len(desk.asked) == 1


@on_both_loops
async def test_there_are_only_so_many_conversations() -> None:
    async with line(Echo(), DNS_LIMITS._replace(tcp_connections=2)) as it:
        callers = [await it.call(), await it.call()]
        for caller in callers:
            await caller.say(b"hello")
            await caller.hear()
        assert await (await it.call()).rest() == b""
        await callers[1].say(b"still here")
        assert await callers[1].hear() == b"still here"
        callers[0].sock.close()
        async with asyncio.timeout(PATIENCE):
            while not await served(it):
                pass


async def served(it: Line) -> bool:
    caller = await it.call()
    with contextlib.suppress(OSError):
        await caller.say(b"hello")
        caller.sock.shutdown(socket.SHUT_WR)
        return await caller.rest() == b"\0\5hello"
    return False


@on_both_loops
async def test_who_asks_without_end_leaves_turns_to_others() -> None:
    turns = 0
    seen = set()

    class Watching(Echo):
        def handle(self, packet: bytes, udp: bool, reply: Reply) -> None:
            seen.add(turns)
            super().handle(packet, udp, reply)

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    desk = Watching()
    async with line(desk) as it:
        other = asyncio.create_task(take_turns())
        caller = await it.call()
        await caller.say(*[b"hush"] * 2000)
        await until(lambda: len(desk.asked) == 2000)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert len(seen) > 1000


@on_both_loops
async def test_who_does_not_take_its_answers_is_not_read() -> None:
    desk = Echo()
    async with line(desk) as it:
        caller = await it.call(room=4096)
        writing = asyncio.create_task(caller.say(*[b"x" * 4000] * 10_000))
        other = await it.call()
        seen = -1
        while seen != len(desk.asked):  # until it stands still for a hundred of another's questions
            seen = len(desk.asked)
            for _ in range(100):
                await other.say(b"me")
                assert await other.hear() == b"me"
            desk.asked = [asked for asked in desk.asked if len(asked[0]) > 2]
        assert 0 < len(desk.asked) < 10_000
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


@on_both_loops
async def test_closing_ends_every_conversation() -> None:
    desk = Echo()
    async with line(desk) as it:
        caller = await it.call()
        await caller.say(b"wait")
        await until(lambda: desk.waiting)
        await it.serving.close()
        assert await caller.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await it.call()
    desk.waiting[0][1](b"too late")
