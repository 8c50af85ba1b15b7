"""Copy bytes both ways until both ends are done.

Each direction is a `Flow` with three states:

    reading   the source is watched; what comes is sent on at once
    writing   the sink took less than it was given: the source is not watched (this is the back-pressure,
              and a stalled reader costs one read or one pipe), the sink is
    ended     the source said so; the sink was told (half-close), and the other direction lives on

Small exchanges are a recv and a send. A read that fills its buffer is the sign of bulk: from then on
bytes go through a kernel pipe with splice(2) and never enter this process, until reads are small again.

Nothing here looks at a clock: limits on idleness and lifetime compare byte counts now and then.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from enum import StrEnum

from egress.limits import LIMITS
from egress.net import readiness
from egress.net.pipepool import Pipe, Pipes
from egress.net.readiness import Readiness
from egress.net.stream import Stream

_BURST = 8  # turns one flow may take before others get theirs
_BUFFER = bytearray(LIMITS.read)  # one for all: it is full only between a recv and its send
_VIEW = memoryview(_BUFFER)
_SPLICE = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK if hasattr(os, "SPLICE_F_NONBLOCK") else 3
_TCP_CLOSE = 7  # tcp_states.h


class Outcome(StrEnum):
    """How a passage ended."""

    CLOSED = "closed"
    RESET = "reset"
    IDLE = "idle"
    LIFETIME = "lifetime"
    REVOKED = "revoked"
    STOPPED = "stopped"
    REFUSED = "refused"  # after something had gone already; a denial stands before it


class Relay:
    """Both directions of one tunnel. It is started when made; `done` has the outcome."""

    __slots__ = ("_client", "_upstream", "done", "down", "up")

    def __init__(self, client: Stream, upstream: Stream, pipes: Pipes, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._upstream = client, upstream
        self.done: asyncio.Future[Outcome] = loop.create_future()
        ready = readiness.of(loop)
        self.up = Flow(client, upstream, self, pipes, ready)
        self.down = Flow(upstream, client, self, pipes, ready)
        self.up.start()
        if not self.done.done():  # the upstream may be gone already
            self.down.start()

    def counts(self) -> tuple[int, int]:
        return self.up.count, self.down.count

    def flow_ended(self) -> None:
        if self.up.ended and self.down.ended:
            self._finish(Outcome.CLOSED)

    def stop(self, outcome: Outcome) -> None:
        """Cut both sides at once; a reset tells them that this was not the end of the data."""
        if not self.done.done():
            self._finish(outcome)
            self._client.abort()
            self._upstream.abort()

    def lost_a_peer(self) -> bool:
        """A source that nobody watches, held up or at its end, died: no event would ever tell."""
        unwatched = [flow for flow in (self.up, self.down) if flow.held_up or flow.ended]
        return not self.done.done() and any(flow.source_is_dead() for flow in unwatched)

    def _finish(self, outcome: Outcome) -> None:
        if not self.done.done():
            self.up.release()
            self.down.release()
            self.done.set_result(outcome)


class Flow:
    __slots__ = (
        "_bulk",
        "_from",
        "_held",
        "_pending",
        "_pipe",
        "_pipes",
        "_ready",
        "_relay",
        "_sink",
        "_source",
        "_to",
        "count",
        "ended",
    )

    def __init__(self, source: Stream, sink: Stream, relay: Relay, pipes: Pipes, ready: Readiness) -> None:
        self._source, self._sink = source.sock, sink.sock
        self._from, self._to = source.sock.fileno(), sink.sock.fileno()
        self._relay, self._pipes, self._ready = relay, pipes, ready
        self._pending = bytes(source.buffer)  # read ahead of the tunnel, such as a ClientHello
        source.buffer.clear()
        self._pipe: Pipe | None = None
        self._held = 0  # bytes in the pipe
        self._bulk = False
        self.count = len(self._pending)
        self.ended = False

    @property
    def held_up(self) -> bool:
        return bool(self._pending or self._held)

    def start(self) -> None:
        self._writable() if self._pending else self._watch_source()

    def source_is_dead(self) -> bool:
        """Reset, not merely closed from both ends: then what it sent last may still wait to be read."""
        if self._source.family == socket.AF_UNIX:
            return False
        is_closed = self._source.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
        return is_closed and _has_failed(self._source)

    def release(self) -> None:
        self._ready.ignore_input(self._from)
        self._ready.ignore_room(self._to)
        self._return_pipe()

    def _watch_source(self) -> None:
        self._ready.when_readable(self._from, self._readable)

    def _readable(self) -> None:
        try:
            for _ in range(_BURST):
                if not (self._splice() if self._bulk else self._copy()):
                    return
        except BlockingIOError:
            return
        except OSError:
            self._relay.stop(Outcome.RESET)

    def _copy(self) -> bool:
        """One recv and one send; whether there may be more at once."""
        size = self._source.recv_into(_BUFFER)
        if not size:
            return self._end()
        self.count += size
        sent = self._send(_VIEW[:size])
        if sent < size:
            self._pending = bytes(_VIEW[sent:size])
            return self._hold_up()
        self._bulk = size == LIMITS.read
        return self._bulk

    def _splice(self) -> bool:
        """One pipeful; whether there may be more at once."""
        if self._pipe is None:
            self._pipe = self._borrow()
            if self._pipe is None:
                return False
        try:
            size = os.splice(self._from, self._pipe.writer, self._pipe.size, flags=_SPLICE)
        except BlockingIOError:
            self._return_pipe()
            raise
        if not size:
            self._return_pipe()
            return self._end()
        self.count += size
        self._held = size
        if not self._drain_pipe():
            return self._hold_up()
        if size < LIMITS.read:
            self._bulk = False
            self._return_pipe()
        return True

    def _writable(self) -> None:
        """The sink takes bytes: give it what was held up, then read on."""
        try:
            done = self._unload()
        except OSError:
            self._relay.stop(Outcome.RESET)
        else:
            self._resume() if done else self._ready.when_writable(self._to, self._writable)

    def _unload(self) -> bool:
        if self._pending:
            self._pending = self._pending[self._send(memoryview(self._pending)) :]
        return not self._pending and (not self._held or self._drain_pipe())

    def _resume(self) -> None:
        self._return_pipe()  # it may be long before more comes
        self._ready.ignore_room(self._to)
        self._watch_source()

    def _send(self, data: memoryview) -> int:
        try:
            return self._sink.send(data)
        except BlockingIOError:
            return 0

    def _drain_pipe(self) -> bool:
        assert self._pipe is not None  # noqa: S101  # held bytes are in it
        try:
            while self._held:
                self._held -= os.splice(self._pipe.reader, self._to, self._held, flags=_SPLICE)
        except BlockingIOError:
            return False
        return True

    def _hold_up(self) -> bool:
        """Stop reading until the sink is ready."""
        self._ready.ignore_input(self._from)
        self._ready.when_writable(self._to, self._writable)
        return False

    def _end(self) -> bool:
        self.ended = True
        self._ready.ignore_input(self._from)
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._relay.stop(Outcome.RESET)
        else:
            self._relay.flow_ended()
        return False

    def _borrow(self) -> Pipe | None:
        try:
            return self._pipes.borrow()
        except OSError:  # out of descriptors: copying needs none
            self._bulk = False
            return None

    def _return_pipe(self) -> None:
        if self._pipe is not None:
            self._pipes.give_back(self._pipe, empty=not self._held)
            self._pipe, self._held = None, 0


def _has_failed(sock: socket.socket) -> bool:
    """Whether it has an error that nobody was told of yet; it stays to be told."""
    look = select.poll()
    look.register(sock, 0)
    return any(event & select.POLLERR for _, event in look.poll(0))
