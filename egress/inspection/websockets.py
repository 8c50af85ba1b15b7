"""WebSockets, whose every frame is masked that a server sends.

mitmproxy has a hook for messages. Pings, pongs and the reason of a close it passes on with none, although each
can carry 125 bytes of anything, and servers do repeat a key that they do not know in why they hang up. So the
connection itself is another: what it reads from a server is masked before the layer sees it. Messages are not:
they may come in fragments, and have their hook when they are whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator

from mitmproxy.http import HTTPFlow
from mitmproxy.proxy import events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers import websocket
from wsproto.events import CloseConnection, Event, Ping, Pong

from egress.inspection.exchange import EXCHANGE, Exchange
from egress.wire.masking import Masker


class Veiled(websocket.WebsocketConnection):
    masker: Masker | None = None

    def events(self) -> Generator[Event, None, None]:
        for event in super().events():
            yield event if self.masker is None else _masked(event, self.masker)


class Frames(websocket.WebsocketLayer):
    def __init__(self, context: Context, flow: HTTPFlow) -> None:
        super().__init__(context, flow)
        exchange: Exchange = flow.metadata[EXCHANGE]
        self._masker = exchange.masker

    def start(self, event: events.Start) -> CommandGenerator[None]:
        yield from super().start(event)
        assert isinstance(self.server_ws, Veiled)  # noqa: S101  # the name is set below
        self.server_ws.masker = self._masker

    _handle_event = start


def _masked(event: Event, masker: Masker) -> Event:
    if isinstance(event, Ping | Pong):
        return dataclasses.replace(event, payload=masker.whole(bytes(event.payload)))
    if isinstance(event, CloseConnection) and event.reason:
        return dataclasses.replace(event, reason=masker.whole(event.reason.encode()).decode(errors="replace"))
    return event


websocket.WebsocketConnection = Veiled  # type: ignore[misc]  # the names that mitmproxy makes them by
websocket.WebsocketLayer = Frames  # type: ignore[misc]
