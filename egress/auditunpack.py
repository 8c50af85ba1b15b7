"""Compressed files, read as they were before.

How a file is compressed is seen from its first bytes; its name may say anything. A file that was cut short
must not look like one that ends there, so all that the libraries have to say about it becomes `Damaged`.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BufferedReader
from typing import NamedTuple, Protocol

_STEP = 1024  # of compressed input: what it unpacks to is bounded by its format to some megabytes


class Damaged(Exception):
    """The file is not whole; what was read before is sound."""


class NoUnpacker(Exception):
    """The package that this format needs is not installed; its name."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Format(NamedTuple):
    stream: Readable
    damage: tuple[type[Exception], ...]  # what reading it raises where the file is not whole


def unpacked(raw: BufferedReader) -> Readable:
    start = raw.peek(8)
    for magic, opened in _FORMATS.items():
        if start.startswith(magic):
            return _Unpacked(*opened(raw))
    return raw


class _Unpacked:
    def __init__(self, stream: Readable, damage: tuple[type[Exception], ...]) -> None:
        self._stream, self._damage = stream, damage

    def read(self, size: int, /) -> bytes:
        try:
            return self._stream.read(size)
        except self._damage as error:
            raise Damaged(str(error)) from None


class _Zstd:
    """Frame after frame. The library's own reader takes a frame that was cut short for one that has ended."""

    def __init__(self, raw: BufferedReader) -> None:
        try:
            import zstandard
        except ImportError:
            raise NoUnpacker("zstandard") from None
        self._raw = raw
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""
        self.damage = (EOFError, zstandard.ZstdError)

    def read(self, _: int, /) -> bytes:
        while packed := self._rest or self._raw.read(_STEP):
            frame = self._frame or self._new_frame()
            data = frame.decompress(packed)
            self._frame, self._rest = (None, frame.unused_data) if frame.eof else (frame, b"")
            if data:
                return data
        if self._frame is not None:
            raise EOFError("it ends in the middle of a frame")
        return b""


def _gzip(raw: BufferedReader) -> _Format:
    import gzip
    import zlib

    return _Format(gzip.GzipFile(fileobj=raw), (EOFError, gzip.BadGzipFile, zlib.error))


def _bz2(raw: BufferedReader) -> _Format:
    import bz2

    return _Format(bz2.BZ2File(raw), (EOFError, OSError))


def _xz(raw: BufferedReader) -> _Format:
    import lzma

    return _Format(lzma.LZMAFile(raw), (EOFError, lzma.LZMAError))


def _zstd(raw: BufferedReader) -> _Format:
    stream = _Zstd(raw)
    return _Format(stream, stream.damage)


_FORMATS: dict[bytes, Callable[[BufferedReader], _Format]] = {
    b"\x1f\x8b": _gzip,
    b"BZh": _bz2,
    b"\xfd7zXZ\x00": _xz,
    b"\x28\xb5\x2f\xfd": _zstd,
}
