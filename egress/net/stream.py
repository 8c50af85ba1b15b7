"""A connected socket with a read buffer and a deadline.

Plain non-blocking sockets rather than asyncio's transports: the bytes must be ours to splice, a
back-pressured peer must simply not be read, and a refused one must be closable with nothing in
flight. A wait is a future and no task, and most of them cost no system call (see `readiness`). A deadline is for
a whole phase, and a note until somebody waits: only then there is a timer, which is left running when the
deadline moves, and looks again when its time has come. Most phases end without one.
A peer that never makes us wait is made to let others have their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from egress.limits import LIMITS
from egress.net import readiness
from egress.wire.handshake import Handshake, T

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_PARTING, _PARTING_READS = 2.0, 64
_BURST = 8  # reads in a row, none of them waited for
_GRAIN = 0.001  # seconds; what a loop's clock and its timers may differ by
_NEVER = float("inf")


class Closed(ConnectionError):
    """The peer went away in the middle of something."""


class Stream:
    __slots__ = (
        "_burst", "_drained", "_fd", "_loop", "_readiness", "_reading", "_timer", "_until", "_writing",
        "buffer", "sock",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.sock = sock
        self.buffer = bytearray()
        self._fd = sock.fileno()  # -1 once it is closed
        self._loop = loop
        self._readiness = readiness.of(loop)
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = _NEVER
        self._burst = 0
        self._drained = False  # the last read took all there was

    async def fill(self) -> int:
        """Append what the peer sends next to the buffer; 0 is its end of sending."""
        self._burst += 1
        if self._burst > _BURST:
            await self._yield()
        if self._drained:  # to ask for more at once would be in vain
            await self._readable()
        while True:
            try:
                data = self.sock.recv(LIMITS.read)
            except BlockingIOError:
                await self._readable()
            else:
                self.buffer += data
                self._drained = 0 < len(data) < LIMITS.read
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
        self._until = _NEVER if seconds is None else self._loop.time() + seconds
        if self._reading is not None or self._writing is not None:
            self._mind_the_time()

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
        if self._fd >= 0:
            self._readiness.forget(self._fd)
            self._end(Closed("closed"))
            self.sock.close()

    def surrender(self) -> int:
        """The socket's descriptor, for another to have; this stream is done with it."""
        self._readiness.remove(self._fd)
        self._end(Closed("surrendered"))
        return self.sock.detach()

    def abort(self) -> None:
        """Close with a reset, so that the peer cannot take a cut stream for a whole one."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.close()

    def _end(self, error: Exception) -> None:
        self._fd = -1
        self._drained = False  # who reads on is to hear of it
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake(error)

    def _wake(self, error: Exception) -> None:
        for waiter in (self._reading, self._writing):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)

    def _mind_the_time(self) -> None:
        """Be called when the deadline comes, or before."""
        if self._timer is not None and self._timer.when() > self._until:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._until != _NEVER:
            self._timer = self._loop.call_at(self._until, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._is_late():
            self._wake(TimeoutError("deadline"))
        elif self._reading is not None or self._writing is not None:
            self._mind_the_time()

    def _is_late(self) -> bool:
        return self._loop.time() > self._until - _GRAIN

    async def _yield(self) -> None:
        self._burst = 0
        await asyncio.sleep(0)
        if self._is_late():
            raise TimeoutError("deadline")

    async def _readable(self) -> None:
        self._burst = 0
        self._reading = self._waiter()
        self._readiness.when_readable(self._fd, self._has_input)
        try:
            await self._reading
        finally:
            self._reading = None
            if self._fd >= 0:  # not closed meanwhile: the number may be another's by now
                self._readiness.ignore_input(self._fd)

    async def _writable(self) -> None:
        self._writing = self._waiter()
        self._readiness.when_writable(self._fd, self._has_room)
        try:
            await self._writing
        finally:
            self._writing = None
            if self._fd >= 0:
                self._readiness.ignore_room(self._fd)

    def _has_input(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    def _has_room(self) -> None:
        if self._writing is not None and not self._writing.done():
            self._writing.set_result(None)

    def _waiter(self) -> asyncio.Future[None]:
        if self._until != _NEVER:
            if self._is_late():
                raise TimeoutError("deadline")
            self._mind_the_time()
        return self._loop.create_future()
