"""A log as it grows, whatever rotation does to it meanwhile (`tail -F`).

The gate writes to the file at its path, so that is the file to read. When another one stands there the old
one is left at its end, and not at once: a gate may have looked just before the change, and write just after.
A file that has shrunk was truncated, and begins anew. While there is none, the old one is all there is.

Looking is left to whoever has the clock: `read` returns some of what has come since it was last called.
"""

from __future__ import annotations

import os
from io import FileIO

from egress.auditread import Lines

_CHUNK = 128 * 1024


class Tail:
    """Reads a log from its present end on, or from its start. A log that is not there yet is new when it comes."""

    def __init__(self, path: str, from_start: bool = False) -> None:
        self._path = path
        self._lines = Lines()
        self._leaving = False  # the file was replaced, and has been given one more look
        self._file = self._open()
        if self._file is not None and not from_start:
            self._file.seek(0, os.SEEK_END)

    @property
    def is_waiting(self) -> bool:
        """There is no log yet."""
        return self._file is None

    def read(self) -> bytes:
        """Whole lines that were added, or nothing; OSError, if the log is there and may not be read."""
        if self._file is None:
            self._file = self._open()
        if self._file is None:
            return b""
        if chunk := self._chunk(self._file):
            return self._lines.feed(chunk)
        return self._move_on() if self._was_replaced(self._file) else b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _chunk(self, file: FileIO) -> bytes:
        if os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)
            self._lines = Lines()
        return file.read(_CHUNK)

    def _move_on(self) -> bytes:
        self._leaving = not self._leaving
        if self._leaving:
            return b""
        self.close()
        self._file = self._open()
        return self._lines.end()

    def _was_replaced(self, file: FileIO) -> bool:
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(file.fileno()))
        except FileNotFoundError:
            return False

    def _open(self) -> FileIO | None:
        try:
            return open(self._path, "rb", buffering=0)
        except FileNotFoundError:
            return None
