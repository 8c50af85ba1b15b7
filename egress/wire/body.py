"""HTTP/1.1 bodies as they stream by (RFC 9112 sections 6 and 7).

A body takes what it can from the front of a buffer and returns the bytes to pass on, framed as the
receiver needs them and with a mask over what they carry. Chunks are read strictly and written anew, so a
size that two parsers could read differently never leaves the gate; extensions are dropped; trailers of an
answer pass, but not those that frame or route. Trailers of a request do not: nobody judged or counted them.
"""

from __future__ import annotations

import re
from typing import Protocol

from egress.limits import LIMITS, Limits
from egress.refusals import Reason, Refused
from egress.wire.http1 import CHUNKED, HOP_BY_HOP, UNTIL_CLOSE, Field, parse_fields

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_NOT_IN_TRAILERS = HOP_BY_HOP | {
    "host", "content-length", "content-encoding", "content-type", "content-range", "authorization", "cookie",
    "set-cookie", "expect", "max-forwards", "cache-control", "te",
}  # fmt: skip


class Mask(Protocol):
    """Covers what must not be seen, byte for byte, and holds back what may be; an empty piece is the end."""

    def feed(self, piece: bytes) -> bytes: ...


class Body(Protocol):
    done: bool
    moved: int  # bytes of it so far, without what frames them

    def take(self, buffer: bytearray) -> bytes:
        """What of the buffer can be passed on now; empty when more must come first."""

    def end(self) -> bytes:
        """The sender closed: the last bytes to pass on, or Refused if it stopped too early."""


class Sized:
    """Exactly so many bytes."""

    def __init__(self, length: int, mask: Mask | None = None) -> None:
        self._left = length
        self._mask = mask
        self.moved = 0
        self.done = length == 0

    def take(self, buffer: bytearray) -> bytes:
        piece = bytes(buffer[: self._left])
        del buffer[: len(piece)]
        self._left -= len(piece)
        self.moved += len(piece)
        self.done = self._left == 0
        return _covered(piece, self._mask, self.done)

    def end(self) -> bytes:
        raise _bad(f"{self._left} bytes of the body are missing")


class UntilClose:
    """All there is, as chunks for a receiver that knows them."""

    def __init__(self, as_chunks: bool, mask: Mask | None = None) -> None:
        self._as_chunks = as_chunks
        self._mask = mask
        self.moved = 0
        self.done = False

    def take(self, buffer: bytearray) -> bytes:
        self.moved += len(buffer)
        piece = _covered(bytes(buffer), self._mask)
        buffer.clear()
        return _chunk(piece) if self._as_chunks and piece else piece

    def end(self) -> bytes:
        self.done = True
        piece = _covered(b"", self._mask, last=True)
        return (_chunk(piece) if piece else b"") + b"0\r\n\r\n" if self._as_chunks else piece


class Chunked:
    """Chunks in; chunks out, or plain bytes for an HTTP/1.0 receiver."""

    def __init__(
        self, as_chunks: bool = True, limits: Limits = LIMITS, mask: Mask | None = None, trailers: bool = True
    ) -> None:
        self._as_chunks = as_chunks
        self._trailers_pass = trailers and mask is None  # nobody needs them who has secrets, and each could tell
        self._mask = mask
        self.moved = 0
        self._limits = limits
        self._left = 0  # of the current chunk's data
        self._in_data = False
        self._in_trailers = False
        self.done = False

    def take(self, buffer: bytearray) -> bytes:
        out = bytearray()
        while not self.done and self._step(buffer, out):
            pass
        return bytes(out)

    def end(self) -> bytes:
        raise _bad("the body ends before its last chunk")

    def _step(self, buffer: bytearray, out: bytearray) -> bool:
        if self._in_data:
            return self._data(buffer, out)
        return self._trailers(buffer, out) if self._in_trailers else self._size(buffer)

    def _size(self, buffer: bytearray) -> bool:
        end = buffer.find(b"\n", 0, self._limits.chunk_line)
        if end < 0:
            if len(buffer) >= self._limits.chunk_line:
                raise _bad("a chunk-size line is too long")
            return False
        match = _SIZE.fullmatch(buffer[: end - 1]) if buffer[end - 1 : end] == b"\r" else None
        if match is None:
            raise _bad(f"chunk-size line {bytes(buffer[:end][:40])!r} is not hexadecimal and CRLF")
        self._left = int(match[1], 16)
        self._in_data, self._in_trailers = self._left > 0, self._left == 0
        del buffer[: end + 1]
        return True

    def _data(self, buffer: bytearray, out: bytearray) -> bool:
        if self._left:
            piece = bytes(buffer[: self._left])
            del buffer[: len(piece)]
            self._left -= len(piece)
            self.moved += len(piece)
            self._pass_on(_covered(piece, self._mask), out)
        if self._left or len(buffer) < 2:
            return False
        if buffer[:2] != b"\r\n":
            raise _bad("chunk data is longer than its size says")
        del buffer[:2]
        self._in_data = False
        return True

    def _trailers(self, buffer: bytearray, out: bytearray) -> bool:
        if buffer[:2] == b"\r\n":
            return self._finish(buffer, 2, [], out)
        end = buffer.find(b"\r\n\r\n", 0, self._limits.trailer_bytes)
        if end >= 0:
            fields = parse_fields(buffer[: end + 2].decode("latin-1"), self._limits)
            return self._finish(buffer, end + 4, [f for f in fields if f.name not in _NOT_IN_TRAILERS], out)
        if len(buffer) >= self._limits.trailer_bytes:
            raise _bad("the trailers are too large")
        if buffer.count(b"\n") != buffer.count(b"\r\n"):  # its sender thinks that it is over
            raise _bad("a trailer line ends in a bare LF")
        return False

    def _pass_on(self, piece: bytes, out: bytearray) -> None:
        if piece:
            out += _chunk(piece) if self._as_chunks else piece

    def _finish(self, buffer: bytearray, size: int, trailers: list[Field], out: bytearray) -> bool:
        del buffer[:size]
        self._pass_on(_covered(b"", self._mask, last=True), out)
        if self._as_chunks:
            passed = trailers if self._trailers_pass else []
            out += ("0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in passed) + "\r\n").encode("latin-1")
        self.done = True
        return True


def request_body(length: int) -> Body:
    return Chunked(trailers=False) if length == CHUNKED else Sized(length)


def response_body(length: int, as_chunks: bool, mask: Mask | None = None) -> Body:
    """The body of an answer, for a receiver that knows chunks or (HTTP/1.0) does not."""
    if length == UNTIL_CLOSE:
        return UntilClose(as_chunks, mask)
    return Chunked(as_chunks, mask=mask) if length == CHUNKED else Sized(length, mask)


def _covered(piece: bytes, mask: Mask | None, last: bool = False) -> bytes:
    if mask is None:
        return piece
    covered = mask.feed(piece) if piece else b""
    return covered + mask.feed(b"") if last else covered


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _bad(detail: str) -> Refused:
    return Refused(Reason.MALFORMED_REQUEST, detail)
