"""Secrets in an answer become asterisks, as many as they had bytes, however the answer is cut into pieces.

A piece may end in the middle of a secret, so what could be the start of one is held back until the next piece
decides it; everything before goes on at once, which keeps event streams flowing. Matching is leftmost, and
the longest secret at a place wins: the result is that of replacing in the whole text.

A compressed answer hides what it contains. A server that compresses although it was asked not to is read
through `Inflated`, in which a little input may not become a flood.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

_STEP = 64 * 1024
_FLOOD = 8 * 1024 * 1024  # that one piece of input may become
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
CODINGS = frozenset({"gzip", "x-gzip", "deflate"})  # that can be read through


class Masker:
    """The pieces of one text, masked. An empty piece ends it."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)) or b"(?!)")
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What of the text so far is beyond doubt."""
        text = self._held + piece if self._held else piece
        out, at = [], 0
        border = self._border(text, at) if piece else len(text)
        while (match := self._pattern.search(text, at)) and match.start() < border:
            out += [text[at : match.start()], b"*" * len(match[0])]
            at = match.end()
            if piece and border < at:
                border = self._border(text, at)
        self._held = text[max(at, border) :]
        out.append(text[at : max(at, border)])
        return b"".join(out)

    def whole(self, text: bytes) -> bytes:
        """A text that came in one piece, such as a header's value."""
        return self._pattern.sub(_asterisks, text)

    def name(self, text: bytes) -> bytes:
        """A header's name, in which letters lose their case on the way: HTTP/2 has only small ones."""
        return re.sub(self._pattern.pattern, _asterisks, text, flags=re.IGNORECASE)

    def _border(self, text: bytes, at: int) -> int:
        """Where the first thing starts that more input could make a (longer) secret of."""
        for start in range(max(at, len(text) - self._longest + 1), len(text)):
            tail = text[start:]
            if any(secret.startswith(tail) for secret in self._secrets if len(secret) > len(tail)):
                return start
        return len(text)


class Inflated:
    """A gzip or deflate stream, read as it comes. ValueError: it is none, or it swells without measure."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    def feed(self, piece: bytes) -> bytes:
        try:
            return b"".join(self._steps(piece))
        except zlib.error as error:
            raise ValueError(f"the answer is not what its content-encoding says: {error}") from None

    def finish(self) -> None:
        """ValueError, if the end is missing."""
        if self._begun and not self._inflater.eof:
            raise ValueError("the compressed answer ends in the middle")

    def _steps(self, piece: bytes) -> Iterator[bytes]:
        size, full = 0, False
        while piece or full:
            inflated = self._step(piece)
            size += len(inflated)
            if size > _FLOOD:
                raise ValueError(f"a piece of the answer inflates to more than {_FLOOD} bytes")
            yield inflated
            full = len(inflated) == _STEP  # there may be more of it, though all input is taken
            piece = self._inflater.unconsumed_tail or self._inflater.unused_data

    def _step(self, piece: bytes) -> bytes:
        if self._inflater.eof:  # gzip may have several members, one behind the other (RFC 1952 section 2.2)
            self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            inflated = self._inflater.decompress(piece, _STEP)
        except zlib.error:
            if self._begun:
                raise
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # "deflate" without its wrapper, as some send it
            inflated = self._inflater.decompress(piece, _STEP)
        self._begun = True
        return inflated


def masked(fields: Sequence[tuple[bytes, bytes]], masker: Masker) -> tuple[tuple[bytes, bytes], ...]:
    """A header section. A name of asterisks is a name still."""
    return tuple((masker.name(name), masker.whole(value)) for name, value in fields)


def _asterisks(match: re.Match[bytes]) -> bytes:
    return b"*" * len(match[0])
