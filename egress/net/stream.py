"""A connected socket with a read buffer and a deadline.

Plain non-blocking sockets rather than asyncio's transports: the bytes must be ours to splice, a
back-pressured peer must simply not be read, and a refused one must be closable with nothing in
flight. Each wait costs one reader registration and no task; a deadline is one timer for a whole phase.
A peer that never makes us wait is made to let others have their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from egress.limits import LIMITS
from egress.wire.handshake import Handshake, T

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_PARTING, _PARTING_READS = 2.0, 64
_BURST = 8  # reads in a row, none of them waited for


class Closed(ConnectionError):
    """The peer went away in the middle of something."""


class Stream:
    __slots__ = ("_burst", "_expired", "_loop", "_reading", "_timer", "_writing", "buffer", "sock")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.sock = sock
        self.buffer = bytearray()
        self._loop = loop
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._burst = 0

    async def fill(self) -> int:
        """Append what the peer sends next to the buffer; 0 is its end of sending."""
        self._burst += 1
        if self._burst > _BURST:
            await self._yield()
        while True:
            try:
                data = self.sock.recv(LIMITS.read)
            except BlockingIOError:
                await self._readable()
            else:
                self.buffer += data
                return len(data)

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it, waiting for the peer to take it."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                await self._writable()

    async def run(self, handshake: Handshake[T]) -> T:
        """Drive a sans-IO handshake over this socket to its value."""
        try:
            while True:
                answer = next(handshake)
                if answer:
                    await self.send(answer)
                elif not await self.fill():
                    raise Closed("the peer closed the connection in the middle of a handshake")
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration does not carry T

    def expire_in(self, seconds: float | None) -> None:
        """From `seconds` on, every wait raises TimeoutError; None takes the deadline away."""
        if self._timer is not None:
            self._timer.cancel()
        self._expired = False
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._expire)

    def finish_sending(self) -> None:
        with contextlib.suppress(OSError):  # it is gone already, and the reader will find that out
            self.sock.shutdown(socket.SHUT_WR)

    async def part(self) -> None:
        """Close so that the last words arrive: a close with unread input would reset the connection."""
        self.finish_sending()
        self.expire_in(_PARTING)
        with contextlib.suppress(OSError):
            for _ in range(_PARTING_READS):
                self.buffer.clear()
                if not await self.fill():
                    break
        self.close()

    def close(self) -> None:
        self._forget(Closed("closed"))
        self.sock.close()

    def surrender(self) -> int:
        """The socket's descriptor, for another to have; this stream is done with it."""
        self._forget(Closed("surrendered"))
        return self.sock.detach()

    def abort(self) -> None:
        """Close with a reset, so that the peer cannot take a cut stream for a whole one."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.close()

    def _expire(self) -> None:
        self._expired = True
        self._wake(TimeoutError("deadline"))

    def _forget(self, error: Exception) -> None:
        self.expire_in(None)
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
            self._loop.remove_writer(self.sock.fileno())
        self._wake(error)

    def _wake(self, error: Exception) -> None:
        for waiter in (self._reading, self._writing):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)

    async def _yield(self) -> None:
        self._burst = 0
        await asyncio.sleep(0)
        if self._expired:
            raise TimeoutError("deadline")

    async def _readable(self) -> None:
        self._burst = 0
        self._reading = waiter = self._waiter()
        fd = self.sock.fileno()
        self._loop.add_reader(fd, _done, waiter)
        try:
            await waiter
        finally:
            self._reading = None
            del waiter  # it may hold an exception that holds this very frame
            if self.sock.fileno() == fd:  # not closed meanwhile: the number may be another's by now
                self._loop.remove_reader(fd)

    async def _writable(self) -> None:
        self._writing = waiter = self._waiter()
        fd = self.sock.fileno()
        self._loop.add_writer(fd, _done, waiter)
        try:
            await waiter
        finally:
            self._writing = None
            del waiter
            if self.sock.fileno() == fd:
                self._loop.remove_writer(fd)

    def _waiter(self) -> asyncio.Future[None]:
        if self._expired:
            raise TimeoutError("deadline")
        return self._loop.create_future()


def _done(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
