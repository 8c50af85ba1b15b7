"""Flow control of HTTP/2, passed on from one side to the other.

mitmproxy takes in whatever comes, in windows of two gigabytes, and keeps what the other side does not take.
Not reading the socket would not do either: the very updates that open the other direction's windows come
through it, and both sides would wait for each other. So windows are small, and what was received is
acknowledged once it could be passed on: who is not read downstream cannot send upstream.

Frames are taken in turns, and paid for (`toll.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from mitmproxy.proxy import events
from mitmproxy.proxy.layers.http import _http2
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from egress.inspection.toll import Metered

_STREAM, _CONNECTION = 2 * 1024 * 1024, 16 * 1024 * 1024
UNSENT = 256 * 1024  # bytes of a stream that wait, from which on no more is asked for


class Release(events.Event):
    """Something may have been passed on: acknowledge what was held."""


class Turn(events.Event):
    """Others had theirs: go on with the frames that are left."""


class Windowed(BufferedH2Connection):
    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.local_settings.initial_window_size = _STREAM
        self.local_settings.acknowledge()
        self.held: dict[int, int] = {}
        self.holds: Callable[[int], bool] = lambda _: False
        self.incoming_buffer: Metered = Metered(server=not config.client_side)

    def initiate_connection(self) -> None:
        H2Connection.initiate_connection(self)
        self.increment_flow_control_window(_CONNECTION - self.inbound_flow_control_window)

    def receive_data(self, data: bytes) -> Any:
        self.incoming_buffer.begin()
        return super().receive_data(data)

    def send_headers(self, *args: Any, **more: Any) -> None:
        self.incoming_buffer.earn_head()
        super().send_headers(*args, **more)

    def send_data(self, stream_id: int, data: Any, end_stream: bool = False, pad_length: Any = None) -> None:
        self.incoming_buffer.earn_piece(len(data))
        super().send_data(stream_id, data, end_stream, pad_length)

    def acknowledge_received_data(self, acknowledged_size: int, stream_id: int) -> None:
        if acknowledged_size and self.holds(stream_id):
            self.held[stream_id] = self.held.get(stream_id, 0) + acknowledged_size
        else:
            super().acknowledge_received_data(acknowledged_size, stream_id)

    def release(self) -> bytes:
        """Acknowledge what can be, as bytes to send."""
        for stream_id in [each for each in self.held if not self.holds(each)]:
            super().acknowledge_received_data(self.held.pop(stream_id), stream_id)
        return self.data_to_send() or b""

    @property
    def can_release(self) -> bool:
        return any(not self.holds(stream_id) for stream_id in self.held)

    @property
    def is_behind(self) -> bool:
        return self.incoming_buffer.is_behind

    def unsent(self, stream_id: int | None) -> int:
        waiting: Any = self.stream_buffers.get(stream_id, ()) if stream_id is not None else ()
        return sum(len(piece.data) for piece in waiting)


_http2.BufferedH2Connection = Windowed  # type: ignore[attr-defined]  # the name that mitmproxy makes them by
