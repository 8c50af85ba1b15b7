"""What all inspected connections of an engine share."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from egress.counts import Counts
from egress.inspection.messages import Message
from egress.inspection.peer import Peer, attach
from egress.inspection.tlsends import Ends


class Settings:
    """What mitmproxy's layers look up. Its own `Options` are slow to ask and are made for command lines."""

    body_size_limit = stream_large_bodies = None
    connection_strategy = "lazy"
    http2 = normalize_outbound_headers = validate_inbound_headers = websocket = True
    http2_ping_keepalive = 0
    keep_host_header = proxy_debug = rawtcp = store_streamed_bodies = False


class House:
    def __init__(self, loop: asyncio.AbstractEventLoop, ends: Ends, counts: Counts, tell: Callable[[Message], None]):
        self.loop, self.ends, self.counts, self.tell = loop, ends, counts, tell
        self.settings: Any = Settings()
        self.tasks: set[asyncio.Task[None]] = set()

    def attach(self, sock: socket.socket, peer: Peer, then: Callable[[], None]) -> None:
        task = self.loop.create_task(attach(sock, peer, self.loop))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda done: peer.connection_lost(None) if _failed(done) else then())


def _failed(done: asyncio.Task[None]) -> bool:
    return done.cancelled() or done.exception() is not None
