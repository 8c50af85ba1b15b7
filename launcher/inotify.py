"""Names that come and go in directories, as the kernel tells of them (inotify(7))."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_IN_Q_OVERFLOW = 0x4000  # there were more than the kernel keeps
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_ROOM = 64 * 1024


class Watch:
    """Directories that are looked at, given by their descriptors."""

    __slots__ = ("_directories", "fd")

    def __init__(self, directories: Iterable[int]) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._directories: dict[int, int] = {}
        for directory in directories:
            path = f"/proc/self/fd/{directory}".encode()
            watch = libc.inotify_add_watch(self.fd, path, _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE)
            self._directories[watch] = directory

    def changes(self) -> Iterator[tuple[int, str]]:
        """Each change that is waiting: the directory's descriptor and the name in it; no name if any may have."""
        try:
            data = os.read(self.fd, _ROOM)
        except BlockingIOError:
            return
        place = 0
        while place < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size + length
            if mask & _IN_Q_OVERFLOW:
                yield from ((directory, "") for directory in self._directories.values())
            elif watch in self._directories:
                yield self._directories[watch], os.fsdecode(data[place - length : place].rstrip(b"\0"))
