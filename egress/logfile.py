"""A file that lines are appended to, and that is looked after: still there, still ours, still at the end of a line.

Each line, or several at once, is one write(2) with O_APPEND, so that gates that share a file do not mix. Before it
comes a look whether the file that is held open is the one at its path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

_OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Cut(OSError):
    """Not all that was to be written is there; of the records that were, so many are whole."""

    def __init__(self, whole: int) -> None:
        super().__init__(errno.ENOSPC, "no space left on device")
        self.whole = whole


class LogFile:
    """The regular file at a path, reopened whenever it is no longer there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._identity = (-1, -1)
        self._end = 0  # where we left it, or saw that others had
        self._torn = False

    def append(self, lines: Sequence[bytes]) -> None:
        self.ready()
        data = b"".join(lines) if len(lines) > 1 else lines[0]
        if self._torn:  # a full disk cut a record short: end that line before the next one
            data = b"\n" + data
        written = os.write(self._fd, data)
        self._end += written
        if written < len(data):
            whole = data.count(b"\n", self._torn, written)
            self._torn = (self._torn and not written) or data[:written][-1:] not in (b"", b"\n")
            raise Cut(whole)
        self._torn = False

    def ready(self) -> None:
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != self._identity:
            self._reopen()
        elif there.st_size != self._end:
            self._look(there.st_size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._identity = -1, (-1, -1)

    def _reopen(self) -> None:
        self.close()
        fd = os.open(self._path, _OPEN, 0o600)
        status = os.fstat(fd)
        if objection := _objection(status):
            os.close(fd)
            raise OSError(22, objection)
        self._fd, self._identity = fd, (status.st_dev, status.st_ino)
        self._look(status.st_size)

    def _look(self, size: int) -> None:
        """Somebody else has written, another worker or another gate, and perhaps not to the end of a line."""
        self._end = size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"


def _objection(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if status.st_uid != os.geteuid() or status.st_nlink != 1 or status.st_mode & 0o022:
        return "others can write it, or have another name for it"
    return None
