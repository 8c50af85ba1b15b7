"""Correctness under load: hundreds of tunnels at once through a real gate, every byte of both directions hashed.

Each end sends a stream that only it can know, at the same time as the other, and half-closes when it is done; which
of the two is done first differs. Where it is the client, the server's hash of what arrived comes down after that; else
the server keeps it.

Sizes stand around what the gate reads at once and what a pipe holds, because there it changes from copying to splicing
and back. Some clients are deaf: they take in nothing until all others are done, and more is sent to them than the
buffers of the kernel hold (4 MiB), so that the gate is left with what it cannot send, and must get it right later.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from gateprocess import PLAIN, GateProcess, Rules

pytestmark = pytest.mark.scenario

HOST = "far.example"
KIB = 1024
SIZES = (0, 1, 700, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 300 * KIB, 1024 * KIB, 1024 * KIB + 1, 2500 * KIB)
TUNNELS = 300
PIECES = 20 * KIB, 200 * KIB  # what is written before others get their turn
NARROW = 4 * KIB  # of what a deaf client's socket takes in unread
DEAF = 12
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Job(NamedTuple):
    """One tunnel: what goes up and down, and who ends first."""

    number: int
    up: int
    down: int
    client_first: bool

    def head(self) -> bytes:
        return struct.pack(">IQQ?", *self)

    @property
    def piece(self) -> int:
        return PIECES[self.number // 4 % 2]


HEAD = len(Job(0, 0, 0, True).head())
DIGEST = hashlib.sha256().digest_size


def jobs() -> list[Job]:
    """All pairs of sizes come up, in both manners; large ones are not all together."""
    return [
        Job(number, SIZES[number % len(SIZES)], SIZES[(number // len(SIZES) + number) % len(SIZES)], number % 2 == 0)
        for number in range(TUNNELS)
    ]


def deaf_jobs() -> list[Job]:
    return [Job(number, 300 * KIB, 8192 * KIB + number, True) for number in range(TUNNELS, TUNNELS + DEAF)]


def stream(job: Job, way: str, size: int) -> bytes:
    return hashlib.shake_128(f"{job.number} {way}".encode()).digest(size)


async def send(writer: asyncio.StreamWriter, data: bytes, piece: int = PIECES[0]) -> None:
    for start in range(0, len(data), piece):
        writer.write(data[start : start + piece])
        await writer.drain()


class Far:
    """The server at the other end: keeps what it received, by the number of the tunnel."""

    def __init__(self) -> None:
        self.received: dict[int, bytes] = {}
        self.troubles: list[Exception] = []
        self._over: asyncio.Queue[int] = asyncio.Queue()

    async def finished(self, count: int) -> None:
        """Wait for the end of so many conversations."""
        for _ in range(count):
            await self._over.get()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            job = Job(*struct.unpack(">IQQ?", await reader.readexactly(HEAD)))
            _, self.received[job.number] = await asyncio.gather(self._speak(writer, job), self._hear(reader))
            if job.client_first:  # our direction is still open: the hash goes there
                await send(writer, self.received[job.number])
            writer.close()
            await writer.wait_closed()
        except Exception as error:
            self.troubles.append(error)
            writer.transport.abort()
        finally:
            self._over.put_nowait(1)

    async def _speak(self, writer: asyncio.StreamWriter, job: Job) -> None:
        await send(writer, stream(job, "down", job.down), job.piece)
        if not job.client_first:
            writer.write_eof()

    async def _hear(self, reader: asyncio.StreamReader) -> bytes:
        received = hashlib.sha256()
        while data := await reader.read(256 * KIB):
            received.update(data)
        return received.digest()


async def dial(port: int, narrow: bool) -> Ends:
    sock = socket.socket()
    if narrow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock)


async def through_connect(port: int, target: int, narrow: bool) -> Ends:
    reader, writer = await dial(port, narrow)
    writer.write(f"CONNECT {HOST}:{target} HTTP/1.1\r\nHost: {HOST}:{target}\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    return reader, writer


async def through_socks(port: int, target: int, narrow: bool) -> Ends:
    reader, writer = await dial(port, narrow)
    writer.write(b"\5\1\0")
    assert await reader.readexactly(2) == b"\5\0"
    writer.write(b"\5\1\0\3" + bytes([len(HOST)]) + HOST.encode() + struct.pack(">H", target))
    assert (await reader.readexactly(10))[:2] == b"\5\0"
    return reader, writer


async def carry(job: Job, port: int, target: int, deaf_until: asyncio.Event | None = None) -> bytes:
    """The client's part of a job; all that came down."""
    opened = through_connect if job.number % 3 else through_socks
    reader, writer = await opened(port, target, narrow=deaf_until is not None)
    try:
        writer.write(job.head())
        if not job.client_first:
            received = await reader.read()  # the server is done before we have begun
            await _send_and_end(writer, job)
        else:
            _, received = await asyncio.gather(_send_and_end(writer, job), _hear(reader, deaf_until))
        return received
    finally:
        writer.close()
        await writer.wait_closed()


async def _hear(reader: asyncio.StreamReader, deaf_until: asyncio.Event | None) -> bytes:
    if deaf_until is not None:
        await deaf_until.wait()
    return await reader.read()


async def _send_and_end(writer: asyncio.StreamWriter, job: Job) -> None:
    await send(writer, stream(job, "up", job.up), job.piece)
    writer.write_eof()


@pytest.fixture
async def far() -> AsyncIterator[tuple[Far, int]]:
    far = Far()
    sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
    async with await asyncio.start_server(far.serve, sock=sock):
        yield far, sock.getsockname()[1]


@pytest.fixture
def gate(tmp_path: Path, far: tuple[Far, int]) -> Iterator[GateProcess]:
    _, target = far
    rules = Rules(allow={HOST: f"ports: [{target}]"}, hosts={HOST: target})
    gate = GateProcess(tmp_path / "gate", rules, *PLAIN)
    yield gate
    gate.process.kill()
    gate.process.communicate()


async def test_every_byte_of_hundreds_of_tunnels_arrives_once_and_in_order(
    far: tuple[Far, int], gate: GateProcess
) -> None:
    server, target = far
    work, deaf = jobs(), deaf_jobs()
    others_are_done = asyncio.Event()
    stuck = [asyncio.create_task(carry(job, gate.port, target, others_are_done)) for job in deaf]
    came_down = await asyncio.gather(*(carry(job, gate.port, target) for job in work))
    others_are_done.set()
    came_down += await asyncio.gather(*stuck)
    await server.finished(TUNNELS + DEAF)
    assert server.troubles == []
    sent = {job.number: hashlib.sha256(stream(job, "up", job.up)).digest() for job in work + deaf}
    assert server.received == sent
    for job, received in zip(work + deaf, came_down, strict=True):
        expected = stream(job, "down", job.down) + (sent[job.number] if job.client_first else b"")
        assert hashlib.sha256(received).digest() == hashlib.sha256(expected).digest(), job
    await asyncio.to_thread(gate.stop)


async def test_the_log_has_the_size_of_both_directions_of_every_tunnel(far: tuple[Far, int], gate: GateProcess) -> None:
    server, target = far
    work = jobs()[::3]
    await asyncio.gather(*(carry(job, gate.port, target) for job in work))
    await server.finished(len(work))
    await asyncio.to_thread(gate.decisions)  # waits until each has its end
    await asyncio.to_thread(gate.stop)
    ends = sorted((end["up"], end["down"], end["outcome"]) for end in gate.records(event="end"))
    assert ends == sorted((HEAD + job.up, job.down + DIGEST * job.client_first, "closed") for job in work)
