"""The user's terminal, lent to the sandbox through a terminal of its own.

    the user's terminal, raw  ◀──▶  master │ slave  ◀──▶  the sandbox

The sandbox never holds the user's terminal, so what it can do to one (TIOCSTI, TIOCLINUX, leaving it raw) it
does to its own. Keys pass as bytes, and the slave's own line discipline makes Ctrl-C and Ctrl-Z of them, for
whichever job is in the foreground there. When the whole job stops, so do we, with the terminal as it was.

The relay uses its own opening of /dev/tty: a terminal held up by Ctrl-S must not hold up the gate, and
making the shared descriptor non-blocking would change it for the shell as well.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_READ = 65536
_MOST_UNSENT = 1 << 20


def on_terminal() -> bool:
    return os.isatty(0) and os.isatty(1)


class Terminal:
    """Opened before the sandbox starts, relayed while it runs, restored when it is over."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()
        self._tty = os.open("/dev/tty", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        self._before = termios.tcgetattr(self._tty)
        termios.tcsetattr(self.slave, termios.TCSANOW, self._before)
        self.is_restored = True
        os.set_blocking(self.master, False)
        self.resize()

    def streams(self) -> tuple[int, int, int]:
        """What the sandbox gets as its three: our terminal, but a redirected stderr as it is."""
        return self.slave, self.slave, self.slave if os.isatty(2) else 2

    def take(self) -> None:
        """Raw: every key is the sandbox's."""
        self.is_restored = False
        mode = termios.tcgetattr(self._tty)
        mode[0] &= ~(
            termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP
            | termios.INLCR | termios.IGNCR | termios.ICRNL | termios.IXON
        )  # fmt: skip
        mode[1] &= ~termios.OPOST
        mode[2] = mode[2] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
        mode[3] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._tty, termios.TCSADRAIN, mode)

    def restore(self) -> None:
        self.is_restored = True
        with suppress(termios.error):  # it is gone, and nobody to restore it for
            termios.tcsetattr(self._tty, termios.TCSADRAIN, self._before)

    def resize(self) -> None:
        with suppress(OSError):
            size = fcntl.ioctl(self._tty, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def suspend(self) -> None:
        """Stop as the job did; returns when the user brings us back."""
        self.restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(0, signal.SIGTSTP)
        self.take()
        self.resize()

    def close(self) -> None:
        self.restore()
        for descriptor in (self.master, self.slave, self._tty):
            with suppress(OSError):
                os.close(descriptor)

    def relay(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Copy both ways until the sandbox's side is closed by all who had it."""
        os.close(self.slave)
        ended: asyncio.Future[None] = loop.create_future()
        _Copy(loop, self._tty, self.master, ended)
        _Copy(loop, self.master, self._tty, ended)
        return ended


class _Copy:
    """One direction; what the sink does not take is kept, up to a bound, and then the source waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, source: int, sink: int, ended: asyncio.Future[None]) -> None:
        self._loop, self._source, self._sink, self._ended = loop, source, sink, ended
        self._unsent = b""
        loop.add_reader(source, self._readable)
        ended.add_done_callback(self._stop)

    def _readable(self) -> None:
        try:
            data = os.read(self._source, _READ)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            if error.errno != errno.EIO:  # EIO: the last slave was closed, or the terminal hung up
                raise
        if not data:
            self._finish()
            return
        self._unsent += data
        self._send()

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._sink, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._finish()
            return
        self._wait() if self._unsent else self._go_on()

    def _wait(self) -> None:
        self._loop.add_writer(self._sink, self._send)
        if len(self._unsent) > _MOST_UNSENT:
            self._loop.remove_reader(self._source)

    def _go_on(self) -> None:
        self._loop.remove_writer(self._sink)
        if not self._ended.done():
            self._loop.add_reader(self._source, self._readable)

    def _finish(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _stop(self, _: object) -> None:
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._sink)
