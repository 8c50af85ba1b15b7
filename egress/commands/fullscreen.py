"""The whole terminal, for a while: another screen, keys one by one, and everything as it was afterwards.

Sequences are those of ECMA-48 and xterm that tmux, screen and every terminal of today know. A frame is written at once,
line over line, so that nothing flickers; what a shorter line leaves behind is erased.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterable
from types import FrameType
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_CAUGHT = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)


class Fullscreen:
    """`with Fullscreen() as screen:` the terminal is ours. `ended` is set when somebody asks us to go."""

    def __init__(self) -> None:
        self.ended = False
        self._suspended = False
        self._keyboard, self._display = sys.stdin.fileno(), sys.stdout.fileno()
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._signals = (-1, -1)

    def __enter__(self) -> Fullscreen:
        self._signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, self._caught) for number in _CAUGHT}
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for end in self._signals:
            os.close(end)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; a terminal that does not say has as many as ever."""
        try:
            columns, rows = os.get_terminal_size(self._display)
        except OSError:
            columns, rows = 0, 0
        return columns or 80, rows or 24

    def draw(self, lines: Iterable[str]) -> None:
        """Lines that fit: no wider and no more than the size."""
        frame = "\r\n".join(f"{line}\x1b[K" for line in lines)
        self._write(f"\x1b[H{frame}\x1b[J")

    def wait(self, seconds: float, *others: int) -> str:
        """Keys that were pressed, if any, once there are some, or one of the others can be read, or time is up."""
        ready, _, _ = select.select([self._keyboard, self._signals[0], *others], [], [], seconds)
        if self._signals[0] in ready:
            os.read(self._signals[0], 64)
        if self._suspended:
            self._suspend()
        if self._keyboard not in ready or self.ended:
            return ""
        pressed = os.read(self._keyboard, 1024)
        self.ended = not pressed  # the terminal is gone
        return pressed.decode("ascii", "replace")

    def _caught(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._suspended = True
        elif number != signal.SIGWINCH:
            self.ended = True

    def _suspend(self) -> None:
        self._suspended = False
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)  # and here we are again, in the foreground
        self._take()

    def _take(self) -> None:
        self._before = termios.tcgetattr(self._keyboard)
        tty.setcbreak(self._keyboard)
        self._write(_ENTER)

    def _give_back(self) -> None:
        try:
            self._write(_LEAVE)
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)
        except (OSError, termios.error):
            pass  # it is gone, and there is nothing to restore

    def _write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self._display, data) :]
