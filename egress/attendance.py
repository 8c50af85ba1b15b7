"""Whether a client is still there, while somebody makes up their mind about it.

It may have spoken already, and what it said must stay unread until it is let in: so its end is not looked for
behind its words, but asked of the kernel, which knows of a peer's end of sending before we read up to it.
A client that has ended its sending before anything was answered has left.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Coroutine
from typing import Any, TypeVar

from egress.net.stream import Stream

_EVERY = 1.0  # seconds between two looks
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL

T = TypeVar("T")


async def unless_gone(client: Stream, work: Coroutine[Any, Any, T], otherwise: T, every: float = _EVERY) -> T:
    """What `work` comes to; if the client leaves before that, the work is ended and it is `otherwise`."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait((task,), timeout=every))[0]:
            if is_gone(client):
                return otherwise
        return task.result()
    finally:
        task.cancel()


def is_gone(client: Stream) -> bool:
    look = select.poll()
    look.register(client.sock, _GONE)
    return bool(look.poll(0))
