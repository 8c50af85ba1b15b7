"""Messages arrive whole, in order and with their descriptors, and no descriptor is left behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from egress.inspection.channel import LONGEST, Channel, pair
from egress.inspection.messages import Ask, Open, Reach, Stop, ToEngine, ToGate, Verdict

LOOPS = "asyncio", "uvloop"


class End:
    def __init__(self, sock: socket.socket, understood: Any) -> None:
        loop = asyncio.get_running_loop()
        self.heard: list[tuple[Any, int | None]] = []
        self.ended = loop.create_future()
        self._woken = asyncio.Event()
        self.channel = Channel(sock, loop, understood, self._hear, lambda: self.ended.set_result(None))

    def _hear(self, message: Any, fd: int | None) -> None:
        self.heard.append((message, fd))
        self._woken.set()

    async def until(self, count: int) -> list[Any]:
        while len(self.heard) < count:
            self._woken.clear()
            await asyncio.wait_for(self._woken.wait(), 10)
        return [message for message, _ in self.heard]


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    """The gate's and the engine's."""
    gates, engines = pair()
    gate, engine = End(gates, ToGate), End(engines, ToEngine)
    yield gate, engine
    gate.channel.close()
    engine.channel.close()


class Token:
    """A descriptor to send, of which it can be told whether any copy is left."""

    def __init__(self) -> None:
        self._end, self.fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def is_gone(self) -> bool:
        try:
            return os.read(self._end, 1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def token() -> Iterator[Token]:
    made = Token()
    yield made
    made.close()


async def test_messages_arrive_as_they_were_sent(ends: tuple[End, End]) -> None:
    gate, engine = ends
    ask = Ask(1, 2, "GET", "https", b"a.test", b"/?q", [(b"X", b"\xff")], None)
    verdict = Verdict(1, 2, put=[(b"x", b"y")], mask=[b"z"])
    engine.channel.send(ask)
    gate.channel.send(verdict)
    assert await gate.until(1) == [ask]
    assert await engine.until(1) == [verdict]


async def test_a_descriptor_comes_with_its_message_and_is_given_away(ends: tuple[End, End], token: Token) -> None:
    gate, engine = ends
    gate.channel.send(Stop(1))
    gate.channel.send(Open(1, "a.test", 443, b"seen"), token.fd)
    gate.channel.send(Stop(2))
    await engine.until(3)
    assert [fd is None for _, fd in engine.heard] == [True, False, True]
    assert not token.is_gone()
    fd = engine.heard[1][1]
    assert fd is not None
    assert not os.get_inheritable(fd)
    os.close(fd)
    assert token.is_gone()


async def test_what_the_other_end_does_not_take_yet_waits_in_order(ends: tuple[End, End]) -> None:
    gate, engine = ends
    messages = [Open(number, "a.test", 443, bytes(50_000)) for number in range(100)]
    for message in messages:
        gate.channel.send(message, os.open("/dev/null", os.O_RDONLY))
    assert await engine.until(100) == messages
    for _, fd in engine.heard:
        assert fd is not None
        os.close(fd)


async def test_the_longest_message_passes_and_a_longer_one_is_an_error(ends: tuple[End, End], token: Token) -> None:
    gate, engine = ends
    room = LONGEST - 64
    gate.channel.send(Open(1, "a.test", 443, bytes(room)))
    assert len((await engine.until(1))[0].seen) == room
    with pytest.raises(ValueError, match="bytes, where"):
        gate.channel.send(Open(1, "a.test", 443, bytes(LONGEST)), token.fd)
    assert token.is_gone()


async def test_the_end_of_the_line_is_told_once(ends: tuple[End, End], token: Token) -> None:
    gate, engine = ends
    engine.channel.send(Reach(1, 1))
    engine.channel.close()
    assert await gate.until(1) == [Reach(1, 1)]
    await asyncio.wait_for(gate.ended, 10)
    assert not gate.channel.is_open
    assert not engine.ended.done()  # who hangs up knows
    gate.channel.send(Stop(1), token.fd)
    assert token.is_gone()


async def test_descriptors_that_wait_when_the_line_is_cut_are_closed(ends: tuple[End, End], token: Token) -> None:
    gate, engine = ends
    for number in range(100):
        gate.channel.send(Open(number, "a.test", 443, bytes(50_000)))
    gate.channel.send(Open(100, "a.test", 443, b""), token.fd)
    assert not token.is_gone()
    gate.channel.close()
    assert token.is_gone()
    await asyncio.wait_for(engine.ended, 10)


@pytest.mark.parametrize("packet", [b"\xc1", b"\x93\x01", b"\x91\xa4Stop", b"\x92\xa5Ready\x01"])
async def test_what_makes_no_sense_ends_the_line(packet: bytes, token: Token) -> None:
    raw, engines = pair()
    engine = End(engines, ToEngine)
    socket.send_fds(raw, [packet], [token.fd])
    os.close(token.fd)
    await asyncio.wait_for(engine.ended, 10)
    assert engine.heard == []
    assert token.is_gone()
    raw.close()


async def test_two_descriptors_with_one_message_end_the_line(token: Token) -> None:
    raw, engines = pair()
    engine = End(engines, ToEngine)
    socket.send_fds(raw, [b"\x92\xa4Stop\x01"], [token.fd, token.fd])
    os.close(token.fd)
    await asyncio.wait_for(engine.ended, 10)
    assert engine.heard == []
    assert token.is_gone()
    raw.close()
