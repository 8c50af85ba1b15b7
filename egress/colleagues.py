"""What the workers of one gate say to each other.

The first of them leads: it reads the policy's files, and has the page, the metrics and the questions to a person.
Each of the others has a line to it, a pair of sockets whose messages keep their borders:

    a worker                                     the one that leads
    ───────────────────────────────────────────────────────────────────────────────────────────
    Here         it begins                  ▶    what its predecessor asked is withdrawn
    Written      records of the log         ▶    for whoever watches, and the metrics
    Counted      what else has happened     ▶
    Ask          may they reach it?         ▶    asked of a person, one question for all workers
    Withdraw     it left meanwhile          ▶
                                            ◀    Answer
    its questions are asked again           ◀    Here       it begins
    the bulletin is read                    ◀    PutUp      there is another policy

Both ends are held by the parent as well, so a line outlives who speaks on it. Nobody waits for a line: what does
not go through is kept up to a bound, records, or counts as not asked, questions. Nothing is decided by what is
said here but the answers of a person; policy and log do not depend on it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from egress.questions import Choice

_LONGEST = 256 * 1024


class Here(msgspec.Struct, tag=True, frozen=True):
    pass


class PutUp(msgspec.Struct, tag=True, frozen=True):
    pass


class Written(msgspec.Struct, tag=True, frozen=True):
    lines: list[bytes]


class Counted(msgspec.Struct, tag=True, frozen=True):
    """Since the last time; `failing` is how it is now."""

    allowed: int
    blocked: int
    failing: str | None
    times: dict[str, tuple[list[int], float]]


class Ask(msgspec.Struct, tag=True, frozen=True):
    number: int
    persona: str
    host: str
    port: int
    reason: str


class Withdraw(msgspec.Struct, tag=True, frozen=True):
    number: int


class Answer(msgspec.Struct, tag=True, frozen=True):
    number: int
    choice: Choice | None
    asked: bool = True


Message = Here | PutUp | Written | Counted | Ask | Withdraw | Answer


class Line:
    """One end, served from when `hear` is given."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock, self._loop = sock, loop
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Message).decode
        self._hear: Callable[[Message], None] = lambda _: None
        sock.setblocking(False)

    def serve(self, hear: Callable[[Message], None]) -> None:
        self._hear = hear
        self._loop.add_reader(self._sock.fileno(), self._readable)

    def send(self, message: Message) -> bool:
        """Whether it went through."""
        try:
            self._sock.send(self._encode(message))
        except OSError:  # it is full, or the gate is about to end
            return False
        return True

    def close(self) -> None:
        self._loop.remove_reader(self._sock.fileno())

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_LONGEST)
        except OSError:
            return
        if data:
            self._hear(self._decode(data))
        else:
            self.close()


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
