"""What frames of HTTP/2 cost, so that nobody can have the engine busy for nothing.

A frame of nine bytes can take as long to handle as one that is full. Pings, settings, priorities, windows that
open by a byte, and above all requests that are taken back at once (CVE-2023-44487: such a stream is closed, so no
limit of open streams counts it) cost their sender next to nothing. So each peer has a purse. Frames that carry
nothing are paid from it; it fills with time, and with every answer and piece of data that goes back, since those
are what windows and pings are about. Who has spent all is told to calm down, and left.

Frames are also taken in turns: after so many of one connection, the others have theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from h2.exceptions import DenialOfServiceError
from h2.frame_buffer import FrameBuffer
from hyperframe.frame import DataFrame, Frame, RstStreamFrame

from egress.limits import FRAMES

_RESET = 4  # a request was read, asked about and put on record by then
_HEAD, _PIECE, _PER_KIB = 5.0, 2.0, 1 / 1024  # earned with a header section, a piece of a body, and its size


class Flooded(DenialOfServiceError):
    """The purse is empty."""


class Purse:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._counted = clock, clock()
        self._left = float(FRAMES.idle_frames)

    def earn(self, amount: float) -> None:
        self._left = min(self._left + amount, FRAMES.saved_frames)

    def pay(self, amount: int) -> None:
        """Flooded, if it cannot. Time is only looked at when all else is spent."""
        if self._left < amount:
            now = self._clock()
            grown = (now - self._counted) * FRAMES.idle_frames_a_second
            self._left, self._counted = self._left + min(grown, FRAMES.idle_frames), now
            if self._left < amount:
                raise Flooded(f"more than {FRAMES.idle_frames_a_second} frames a second that carry nothing")
        self._left -= amount


class Metered(FrameBuffer):
    """h2's reader of frames, which pays for each and stops at the end of a turn."""

    def __init__(self, *, server: bool) -> None:
        super().__init__(server=server)
        self.purse = Purse()
        self.is_behind = False  # there may be more than the turn was long
        self._turn = 0

    def begin(self) -> None:
        self._turn, self.is_behind = FRAMES.frames_in_a_turn, False

    def __next__(self) -> Frame:
        if self._turn <= 0:
            self.is_behind = True
            raise StopIteration
        frame = super().__next__()
        self._turn -= 1
        price = _price(frame)
        if price:
            self.purse.pay(price)
        return frame

    def earn_head(self) -> None:
        self.purse.earn(_HEAD)

    def earn_piece(self, size: int) -> None:
        self.purse.earn(_PIECE + size * _PER_KIB)


def _price(frame: Frame) -> int:
    if isinstance(frame, DataFrame):
        return 0 if frame.data or "END_STREAM" in frame.flags else 1
    return _RESET if isinstance(frame, RstStreamFrame) else 1
