"""How protocol readers are written: generators over a buffer, with no IO of their own.

A handshake looks at `buffer`, consumes what it understood from its front and returns a value; bytes
behind that stay for whoever reads next. It yields bytes that it wants sent to the peer, and is resumed when
they are; or it yields NOTHING when it needs more input, and is resumed when some was appended to the buffer.
It raises `Refused` for what it will not accept. The same generator is driven by a socket in
`net.stream` and by plain bytes, whole or one at a time, in tests.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Handshake = Generator[bytes, None, T]
NOTHING = b""


def take(buffer: bytearray, count: int) -> Handshake[bytes]:
    """The next `count` bytes."""
    while len(buffer) < count:
        yield NOTHING
    taken = bytes(buffer[:count])
    del buffer[:count]
    return taken
