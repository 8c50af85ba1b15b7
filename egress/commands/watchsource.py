"""Where `egress watch` has its news from: a running gate, over its control socket, or the audit log.

A gate tells everything and takes answers; the log has only what was decided. The gate is asked in HTTP/1.0, whose
answers end with the connection and are not in chunks: what follows the head is the stream of events itself.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

import msgspec

from egress import controlsocket
from egress.auditfollow import Tail
from egress.auditread import Entry, Records
from egress.controlsocket import Running

_PATIENCE = 5.0
_CHUNK = 256 * 1024
_LONGEST = 8 * 1024 * 1024  # of an event; a batch of records has a few hundred kilobytes


class Pending(msgspec.Struct, frozen=True):
    """A question that waits."""

    id: int
    persona: str
    host: str
    port: int
    reason: str
    deadline: float
    count: int


class State(msgspec.Struct, frozen=True):
    session: str
    doors: list[str]
    open: int
    allowed: int
    blocked: int
    now: float
    failing: str | None = None


class Asked(msgspec.Struct, frozen=True):
    asking: bool
    pending: list[Pending]


News = list[Entry] | State | Asked
_KINDS: dict[str, Any] = {"records": list[Entry], "state": State, "questions": Asked}
_DECODERS: dict[str, Callable[[bytes], News]] = {
    kind: msgspec.json.Decoder(what).decode for kind, what in _KINDS.items()
}


class Ended(Exception):
    """There is no more to come from here."""


class Gate:
    """A running gate. `fileno` can be waited for."""

    def __init__(self, running: Running, tail: int) -> None:
        self.name = f"session {running.session}"
        self._path = running.path
        self._sock = controlsocket.connect(running.path, _PATIENCE)
        self._sock.sendall(f"GET /api/events?tail={tail} HTTP/1.0\r\nHost: egress\r\n\r\n".encode())
        self._sock.setblocking(False)
        self._events = Events()

    def fileno(self) -> int:
        return self._sock.fileno()

    def read(self) -> list[News]:
        """What has come; Ended, when the gate has."""
        try:
            chunk = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            raise Ended from None
        if not chunk:
            raise Ended
        return list(self._events.feed(chunk))

    def answer(self, number: int, choice: str) -> bool:
        """Whether the question was still there."""
        connection = _UnixConnection(self._path)
        try:
            connection.request("POST", "/api/answer", json.dumps({"id": number, "choice": choice}))
            return bool(json.loads(connection.getresponse().read()).get("taken"))
        except (OSError, HTTPException, ValueError, AttributeError):
            return False
        finally:
            connection.close()

    def close(self) -> None:
        self._sock.close()


class Log:
    """The audit log as it grows; there is nothing to wait for, so it is looked at."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._tail = Tail(path)
        self._records = Records()

    def fileno(self) -> None:
        return None

    def read(self) -> list[News]:
        try:
            return [self._records.entries(block) for block in iter(self._tail.read, b"")]
        except OSError as error:
            raise Ended(f"{self.name}: {error.strerror or error}") from None

    def answer(self, number: int, choice: str) -> bool:
        return False

    def close(self) -> None:
        self._tail.close()


class Event(NamedTuple):
    kind: str
    data: bytes


class Events:
    """Server-sent events out of bytes that are cut anywhere; the head of the answer comes before the first."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[News]:
        self._rest += chunk
        if not self._begun:
            head, end, rest = self._rest.partition(b"\r\n\r\n")
            if not end:
                return
            if head.split(b" ", 2)[1:2] != [b"200"]:
                raise Ended(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
            self._begun, self._rest = True, rest
        *whole, self._rest = self._rest.split(b"\n\n")
        if len(self._rest) > _LONGEST:
            raise Ended("an event has no end")
        for block in whole:
            yield from _decoded(block)


def _decoded(block: bytes) -> Iterator[News]:
    """What an event says. One of a kind that is not known here says nothing."""
    fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n"))
    decode = _DECODERS.get(fields.get(b"event", b"").decode("ascii", "replace"))
    if decode is not None:
        try:
            yield decode(fields.get(b"data", b""))
        except msgspec.DecodeError as error:
            raise Ended(f"the gate speaks another language: {error}") from None


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket; the host that it names is nobody's."""

    def __init__(self, path: str) -> None:
        super().__init__("egress", timeout=_PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock: socket.socket = controlsocket.connect(self._path, _PATIENCE)
