"""What frames of HTTP/2 cost, by a clock that the test has in its hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import h2.config
import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import (
    DataFrame,
    ExtensionFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from egress.inspection.toll import Flooded, Purse
from egress.inspection.windows import Windowed
from egress.limits import FRAMES

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def spend(purse: Purse) -> int:
    """How many frames it pays for."""
    for paid in range(10 * FRAMES.saved_frames):
        try:
            purse.pay(1)
        except Flooded:
            return paid
    raise AssertionError("it never ends")


def test_a_purse_pays_for_a_burst_and_then_as_fast_as_it_fills() -> None:
    clock = Clock()
    purse = Purse(clock)
    assert spend(purse) == FRAMES.idle_frames
    clock.now += 2
    assert spend(purse) == 2 * FRAMES.idle_frames_a_second
    assert spend(purse) == 0


def test_a_long_silence_is_worth_no_more_than_a_burst() -> None:
    clock = Clock()
    purse = Purse(clock)
    spend(purse)
    clock.now += 24 * 3600
    assert spend(purse) == FRAMES.idle_frames


def test_what_is_earned_can_be_saved_up_to_a_bound() -> None:
    purse = Purse(Clock())
    purse.earn(50)
    assert spend(purse) == FRAMES.idle_frames + 50
    purse.earn(10.0 * FRAMES.saved_frames)
    assert spend(purse) == FRAMES.saved_frames


def server() -> Windowed:
    made = Windowed(h2.config.H2Configuration(client_side=False))
    made.incoming_buffer.purse = Purse(Clock())
    made.initiate_connection()
    made.receive_data(PREFACE)
    made.data_to_send()
    return made


def taken(end: Windowed, frames: Iterable[Frame]) -> int:
    """How many of them, one by one, before it is too much."""
    count = 0
    for frame in frames:
        try:
            end.receive_data(frame.serialize())
        except Flooded:
            break
        count += 1
    return count


def test_frames_are_taken_in_turns() -> None:
    end, pings = server(), FRAMES.frames_in_a_turn + 10
    first = end.receive_data(PingFrame(0, b"12345678").serialize() * pings)
    assert (len(first), end.is_behind) == (FRAMES.frames_in_a_turn, True)
    assert (len(end.receive_data(b"")), end.is_behind) == (10, False)


@pytest.mark.parametrize(
    "frame",
    [
        PingFrame(0, b"12345678"),
        SettingsFrame(0, settings={4: 1000}),
        WindowUpdateFrame(0, window_increment=1),
        PriorityFrame(1, depends_on=0, stream_weight=1),
        ExtensionFrame(0x50, 0),
    ],
)
def test_who_sends_only_frames_that_carry_nothing_is_told_to_calm_down(frame: Frame) -> None:
    end = server()
    assert taken(end, [frame] * 2 * FRAMES.idle_frames) == FRAMES.idle_frames - 1  # and the settings it began with
    assert goodbye(end.data_to_send()) == ErrorCodes.ENHANCE_YOUR_CALM
    assert not end.is_behind


def goodbye(sent: bytes) -> int:
    """The error code of the last frame, which is a GOAWAY without more to say."""
    assert sent[-17 + 3] == 7
    return int.from_bytes(sent[-4:])


HEAD = b"\x82\x87\x84\x01\x01a"  # GET https / and :authority a, by their numbers in HPACK's table


def request(number: int, *, end: bool = True) -> Frame:
    return HeadersFrame(number, HEAD, flags=["END_HEADERS", *(["END_STREAM"] if end else [])])


def test_a_request_that_is_taken_back_costs_more_than_other_frames() -> None:
    pairs = ((request(number), RstStreamFrame(number, error_code=8)) for number in range(1, 9999, 2))
    assert taken(server(), itertools.chain.from_iterable(pairs)) // 2 < FRAMES.idle_frames // 4


def test_requests_that_are_answered_cost_nothing() -> None:
    end = server()
    for number in range(1, 4 * FRAMES.idle_frames, 2):
        end.receive_data(request(number).serialize())
        end.send_headers(number, [(b":status", b"204")])
        end.receive_data(RstStreamFrame(number, error_code=8).serialize())  # as who closes a body unread


def test_windows_that_open_for_what_was_sent_cost_nothing() -> None:
    end = server()
    end.receive_data(request(1).serialize())
    end.send_headers(1, [(b":status", b"200")])
    for _ in range(4 * FRAMES.idle_frames):
        end.send_data(1, b"a few words")
        end.receive_data(b"".join(WindowUpdateFrame(where, window_increment=11).serialize() for where in (0, 1)))


def test_data_is_free_unless_there_is_none_in_it() -> None:
    end = server()
    end.receive_data(request(1, end=False).serialize())
    for _ in range(4 * FRAMES.idle_frames):
        end.receive_data(DataFrame(1, b"x").serialize())
    assert taken(end, [DataFrame(1, b"")] * 4 * FRAMES.idle_frames) < FRAMES.idle_frames
