"""One direction between two terminals, on the event loop.

What the sink does not take at once is kept, and the source is not read again until it is gone: a slow
terminal slows the program down, as it would without us. Nothing that was read is lost: the end of the source
is told when the sink has all of it.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import suppress

_READ = 65536
_PATIENCE = 1.0  # for a sink that takes nothing, where everything else waits


class Copy:
    """It is made at rest. `ended` is called once the source is at its end, `lost` when the sink is."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: int,
        sink: int,
        ended: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop, self._source, self._sink = loop, source, sink
        self._ended, self._lost = ended, lost
        self._unsent = b""
        self._is_wanted = False
        self._at_end = False

    def start(self) -> None:
        self._is_wanted = True
        self._watch()

    def rest(self) -> None:
        """Read no more for now; what was read still goes."""
        self._is_wanted = False
        self._loop.remove_reader(self._source)

    def stop(self) -> None:
        self.rest()
        self._loop.remove_writer(self._sink)

    def catch_up(self) -> None:
        """Move, at once, all that there is, if the sink takes it."""
        with suppress(OSError):  # it will be met again
            while self._unsent or self._read():
                self._write()
                if self._unsent and not select.select([], [self._sink], [], _PATIENCE)[1]:
                    break
        self._go_on()

    def _watch(self) -> None:
        if self._is_wanted and not self._unsent and not self._at_end:
            self._loop.add_reader(self._source, self._readable)

    def _readable(self) -> None:
        if self._read():
            self._writable()
        elif self._at_end:
            self.stop()
            self._ended()

    def _read(self) -> bool:
        """Whether there was something. A terminal whose other side is closed says so by an error."""
        try:
            self._unsent = os.read(self._source, _READ)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._unsent = b""
        self._at_end = not self._unsent
        return not self._at_end

    def _writable(self) -> None:
        try:
            self._write()
        except OSError:
            self.stop()
            self._lost()
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._unsent:
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._writable)
        else:
            self._loop.remove_writer(self._sink)
            self._watch()

    def _write(self) -> None:
        with suppress(BlockingIOError):
            self._unsent = self._unsent[os.write(self._sink, self._unsent) :]
