"""One direction between two terminals: nothing is lost, whatever the other side does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable

import pytest

from launcher.ttycopy import Copy

MUCH = os.urandom(1 << 20)


class Line:
    """write ─▶ source │ sink ─▶ read"""

    def __init__(self) -> None:
        self.source, self.write = os.pipe()
        self.read, self.sink = os.pipe()
        self._open = {self.source, self.write, self.read, self.sink}
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.copy = Copy(
            loop, self.source, self.sink, lambda: self.ended.set_result(None), lambda: self.lost.set_result(None)
        )

    def shut(self, descriptor: int) -> None:
        self._open.remove(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        self.copy.stop()
        for descriptor in list(self._open):
            self.shut(descriptor)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    made = Line()
    yield made
    made.close()


async def write_all(descriptor: int, data: bytes) -> None:
    while data:
        await when_ready(asyncio.get_running_loop().add_writer, descriptor)
        asyncio.get_running_loop().remove_writer(descriptor)
        data = data[os.write(descriptor, data) :]


async def read_slowly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        await when_ready(asyncio.get_running_loop().add_reader, descriptor)
        asyncio.get_running_loop().remove_reader(descriptor)
        data += os.read(descriptor, 1000)
    return data


async def when_ready(watch: Callable[..., None], descriptor: int) -> None:
    ready = asyncio.Event()
    watch(descriptor, ready.set)
    await asyncio.wait_for(ready.wait(), 20)


async def test_a_slow_sink_gets_everything_before_the_end_is_told(line: Line) -> None:
    line.copy.start()
    writing = asyncio.create_task(write_all(line.write, MUCH))
    assert await read_slowly(line.read, len(MUCH)) == MUCH
    await writing
    assert not line.ended.done()
    line.shut(line.write)
    await asyncio.wait_for(line.ended, 20)


async def test_a_sink_that_is_gone_is_told(line: Line) -> None:
    line.shut(line.read)
    os.write(line.write, b"words")
    line.copy.start()
    await asyncio.wait_for(line.lost, 20)


async def test_at_rest_nothing_is_read_and_afterwards_all_of_it(line: Line) -> None:
    line.copy.start()
    line.copy.rest()
    os.write(line.write, b"words")
    for _ in range(10):
        await asyncio.sleep(0)
    assert os.read(line.source, 100) == b"words"
    os.write(line.write, b"more")
    line.copy.start()
    assert await read_slowly(line.read, 4) == b"more"


async def test_what_is_there_can_be_moved_at_once(line: Line) -> None:
    os.write(line.write, b"last words")
    line.copy.catch_up()
    assert os.read(line.read, 100) == b"last words"
