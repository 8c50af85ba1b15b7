"""Who waits for which socket: an epoll(7) of our own, which the event loop watches as one descriptor.

A loop's own readers are made for descriptors that stay. For one that comes and goes with a tunnel, uvloop
asks the kernel eleven times: it tries whether the descriptor can be watched at all, makes it non-blocking
once more, and adds and removes it with every wait. Here a socket is added when it is first waited for, and

- who stops waiting is crossed off, and the kernel is told only if something happens that nobody waits for;
- a socket that is closed leaves the epoll by itself, so `forget` is a note in our own books.

The latter holds for a socket that no other process and no other descriptor shares; for one that may be
shared there is `remove`. What it cannot rule out (a child of ours between its fork and its exec has all of
our descriptors) is an event for a number that is another's by now. So whoever waits must take it for a hint,
which non-blocking sockets make easy.

The epoll is opened for the first socket and closed with the last; a gate has a listener all its life.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_AT_ONCE = 256  # events taken before the loop looks at its timers again

Call = Callable[[], object]


class Readiness:
    __slots__ = ("_epoll", "_readers", "_watched", "_writers", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._epoll: select.epoll | None = None
        self._watched: dict[int, int] = {}  # what the kernel tells us of each descriptor
        self._readers: dict[int, Call] = {}
        self._writers: dict[int, Call] = {}

    def when_readable(self, fd: int, call: Call) -> None:
        """Call it whenever there is something to read, an end or an error, until `ignore_input`."""
        self._readers[fd] = call
        if not self._watched.get(fd, 0) & _IN:
            self._tell_kernel(fd)

    def when_writable(self, fd: int, call: Call) -> None:
        self._writers[fd] = call
        if not self._watched.get(fd, 0) & _OUT:
            self._tell_kernel(fd)

    def ignore_input(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def ignore_room(self, fd: int) -> None:
        """Nobody waits to write there any more."""
        self._writers.pop(fd, None)

    def forget(self, fd: int) -> None:
        """Of a socket that is about to be closed."""
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)
        if self._watched.pop(fd, 0) and not self._watched:
            self._close()

    def remove(self, fd: int) -> None:
        """Of a socket that lives on elsewhere."""
        if fd in self._watched and self._epoll is not None:
            self._epoll.unregister(fd)
        self.forget(fd)

    def _tell_kernel(self, fd: int) -> None:
        """Have what somebody waits for, and no more, be watched."""
        wanted = (_IN if fd in self._readers else 0) | (_OUT if fd in self._writers else 0)
        if not wanted:
            self.remove(fd)
            return
        epoll = self._epoll or self._open()
        if fd in self._watched:
            epoll.modify(fd, wanted)
        else:
            epoll.register(fd, wanted)
        self._watched[fd] = wanted

    def _happened(self) -> None:
        if self._epoll is None:  # closed by what was called before this, in the same turn
            return
        for fd, events in self._epoll.poll(0, _AT_ONCE):
            reader = self._readers.get(fd) if events & ~_OUT else None
            writer = self._writers.get(fd) if events & ~_IN else None
            if reader is not None:
                reader()
            if writer is not None:
                writer()
            elif reader is None:
                self._unwanted(fd)

    def _unwanted(self, fd: int) -> None:
        with contextlib.suppress(OSError):  # it is another's number, or nobody's
            if fd in self._watched:
                self._tell_kernel(fd)
            elif self._epoll is not None:
                self._epoll.unregister(fd)

    def _open(self) -> select.epoll:
        self._epoll = select.epoll()
        self.loop.add_reader(self._epoll.fileno(), self._happened)
        return self._epoll

    def _close(self) -> None:
        if self._epoll is not None:
            self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None


_latest: Readiness | None = None


def of(loop: asyncio.AbstractEventLoop) -> Readiness:
    """The one of this loop. A process has one loop, or one after the other; several would do with several."""
    global _latest  # noqa: PLW0603  # a cache of one value
    if _latest is None or _latest.loop is not loop:
        _latest = Readiness(loop)
    return _latest
