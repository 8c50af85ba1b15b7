"""Which connection a message of the gate is for, and a look at all of them once a second."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Sequence

from egress.counts import Counts
from egress.inspection.authority import Authority
from egress.inspection.channel import Channel
from egress.inspection.connection import Inspected
from egress.inspection.house import House
from egress.inspection.messages import Open, Reached, Stop, ToEngine, Unreached, Verdict
from egress.inspection.tlsends import Ends

_LOOK = 1.0  # seconds


def open_line(
    line: socket.socket, counts: Counts, authority: Authority, roots: Sequence[bytes], more: Sequence[str]
) -> asyncio.AbstractEventLoop:
    """A loop that serves the gate, and stops when it hangs up."""
    logging.disable(logging.CRITICAL)  # mitmproxy's; what happened is told to the gate
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    Switchboard(line, loop, Ends(authority, roots, more), counts)
    gc.freeze()
    gc.enable()
    return loop


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Switchboard:
    """All connections that the gate handed over."""

    def __init__(self, line: socket.socket, loop: asyncio.AbstractEventLoop, ends: Ends, counts: Counts) -> None:
        channel = Channel(line, loop, ToEngine, self._hear, loop.stop)
        self._house = House(loop, ends, counts, channel.send)
        self._held: dict[int, Inspected] = {}
        loop.call_later(_LOOK, self._look)

    def _hear(self, message: ToEngine, fd: int | None) -> None:
        if isinstance(message, Open) and fd is not None:
            self._held[message.conn] = held = Inspected(self._house, message, self._forget)
            held.start(fd)
            return
        held_now = self._held.get(message.conn)
        if fd is not None and (held_now is None or not isinstance(message, Reached)):
            os.close(fd)
        if held_now is not None:
            _tell(held_now, message, fd)

    def _forget(self, conn: int) -> None:
        self._held.pop(conn, None)

    def _look(self) -> None:
        self._house.loop.call_later(_LOOK, self._look)
        now = self._house.loop.time()
        for held in list(self._held.values()):
            held.look(now)


def _tell(held: Inspected, message: ToEngine, fd: int | None) -> None:
    if isinstance(message, Verdict):
        held.decided(message)
    elif isinstance(message, Reached) and fd is not None:
        held.reached(message.serial, fd)
    elif isinstance(message, Unreached):
        held.unreached(message)
    elif isinstance(message, Stop):
        held.stop()
