"""How long an inspected connection is waited for, by a clock that the test has in its hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from typing import NamedTuple

import h2.connection
import pytest
from gatekit import until

from egress.counts import ENGINE, Counts
from egress.inspection import pace, toll
from egress.inspection.authority import Authority
from egress.inspection.connection import Inspected
from egress.inspection.house import House
from egress.inspection.messages import Ask, Closed, Done, Message, Open, Reach, Verdict
from egress.inspection.tlsends import Ends
from egress.limits import FRAMES, LIMITS

pytestmark = pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")  # older ones take nothing else
HOST = "slow.test"


class Held(NamedTuple):
    """A connection as the gate hands it over: with the beginning of its ClientHello read."""

    connection: Inspected
    said: list[Message]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def look_in(self, seconds: float) -> None:
        self.connection.look(asyncio.get_running_loop().time() + seconds)

    @property
    def asked(self) -> list[int]:
        return [message.request for message in self.said if isinstance(message, Ask)]

    @property
    def ends(self) -> list[Closed]:
        return [message for message in self.said if isinstance(message, Closed)]


@contextlib.asynccontextmanager
async def handed_over(*, silent: bool = False, alpn: str = "http/1.1") -> AsyncIterator[Held]:
    loop, said = asyncio.get_running_loop(), list[Message]()
    made, authority = Counts.make(8), Authority.make((HOST,))
    counts = Counts(made.fd, ENGINE)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    trust = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    trust.set_alpn_protocols([alpn])
    tls = {} if silent else {"ssl": trust, "server_hostname": HOST}
    opening = asyncio.ensure_future(asyncio.open_connection(sock=theirs, **tls))
    seen = b"\x16\x03\x01" if silent else await loop.sock_recv(ours, 65536)
    house = House(loop, Ends(authority, (), ()), counts, said.append)
    connection = Inspected(house, Open(1, HOST, 443, seen), lambda _: None)
    connection.start(ours.detach())
    reader, writer = await opening
    yield Held(connection, said, reader, writer)
    connection.stop()
    writer.close()
    await until(lambda: not house.tasks and any(isinstance(message, Closed) for message in said))
    counts.close()
    made.close()
    os.close(made.fd)


async def test_a_head_that_never_comes_to_its_end_is_not_waited_for() -> None:
    async with handed_over() as held:
        held.writer.write(b"GET / HTTP/1.1\r\nHost: slow.test\r\nX: ")
        await held.writer.drain()
        held.look_in(LIMITS.keep_alive - 5)
        assert held.ends == []
        held.look_in(LIMITS.keep_alive + 5)
        await until(lambda: held.ends)
        assert held.ends[0].failure == "no request came in time"
        with contextlib.suppress(ConnectionError):
            assert await held.reader.read() == b""


async def test_nor_one_that_comes_byte_by_byte() -> None:
    async with handed_over() as held:
        for byte in b"GET / HT":
            held.writer.write(bytes((byte,)))
            await held.writer.drain()
            held.look_in(1)
        held.look_in(LIMITS.keep_alive + 5)
        await until(lambda: held.ends)
        assert held.ends[0].failure == "no request came in time"


async def test_a_request_that_the_gate_thinks_about_is_waited_for() -> None:
    async with handed_over() as held:
        held.writer.write(b"GET / HTTP/1.1\r\nHost: slow.test\r\n\r\n")
        await until(lambda: any(isinstance(message, Ask) for message in held.said))
        held.look_in(LIMITS.keep_alive * 10)
        assert held.ends == []
        held.connection.decided(Verdict(1, 1, 403, [], b"no"))
        assert (await held.reader.readline()).startswith(b"HTTP/1.1 403")


async def test_a_handshake_that_never_comes_to_its_end_is_not_waited_for() -> None:
    async with handed_over(silent=True) as held:
        held.look_in(LIMITS.handshake - 5)
        assert held.ends == []
        held.look_in(LIMITS.handshake + 5)
        await until(lambda: held.ends)
        assert held.ends[0].failure == "the TLS handshake did not come to its end in time"


async def test_a_client_with_many_questions_before_the_gate_is_not_read_until_they_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = FRAMES._replace(questions=4, frames_in_a_turn=8)
    monkeypatch.setattr(toll, "FRAMES", few)
    monkeypatch.setattr(pace, "FRAMES", few)
    async with handed_over(alpn="h2") as held:
        held.writer.write(taken_back(40))
        await until(lambda: len(held.asked) > few.questions)
        await held.writer.drain()
        held.look_in(1)
        assert len(held.asked) <= few.questions + few.frames_in_a_turn
        answered: set[int] = set()
        while len(answered) < 40:
            await until(lambda: bool(set(held.asked) - answered))
            assert len(set(held.asked) - answered) <= few.questions + few.frames_in_a_turn
            for request in set(held.asked) - answered:
                answered.add(request)
                held.connection.decided(Verdict(1, request))
        assert len(held.asked) == 40


async def test_a_request_that_was_taken_back_while_the_gate_thought_reaches_nobody() -> None:
    async with handed_over(alpn="h2") as held:
        held.writer.write(taken_back(1))
        await until(lambda: held.asked == [1])
        held.connection.decided(Verdict(1, 1))
        assert [message.outcome for message in held.said if isinstance(message, Done)] == ["reset"]
        assert not any(isinstance(message, Reach) for message in held.said)


def taken_back(count: int) -> bytes:
    """That many requests, each with its reset right behind it."""
    client = h2.connection.H2Connection()
    client.initiate_connection()
    head = [(":method", "GET"), (":scheme", "https"), (":authority", HOST), (":path", "/")]
    for _ in range(count):
        number = client.get_next_available_stream_id()
        client.send_headers(number, head, end_stream=True)
        client.reset_stream(number, 8)
    return client.data_to_send()
