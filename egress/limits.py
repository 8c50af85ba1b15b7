"""Every bound of the gate, in one place. Sizes in bytes, times in seconds."""

from __future__ import annotations

from typing import NamedTuple

KIB = 1024
MIB = 1024 * KIB


class Limits(NamedTuple):
    # what a client may send before it is understood
    request_line: int = 16 * KIB
    header_bytes: int = 64 * KIB
    header_count: int = 200
    chunk_line: int = 1 * KIB
    trailer_bytes: int = 16 * KIB
    interim_responses: int = 16
    client_hello: int = 64 * KIB
    # how long things may take
    handshake: float = 10.0  # accept to a whole request, and ClientHello after the reply
    resolve: float = 10.0
    connect: float = 20.0
    keep_alive: float = 60.0
    response: float = 300.0  # request sent to the first byte of the answer
    idle: float = 3600.0
    lifetime: float = 24 * 3600.0
    # how much there may be of things
    connections: int = 8000
    lookups: int = 32
    resolver_cache: int = 4096
    resolver_ttl: float = 30.0
    addresses: int = 16  # of one name
    read: int = 64 * KIB
    pipe: int = 1 * MIB


class FrameLimits(NamedTuple):
    """What a peer of HTTP/2 may ask of the engine, which has no other numbers than these."""

    idle_frames: int = 1000  # that carry nothing, at once …
    idle_frames_a_second: int = 200  # … and from then on
    saved_frames: int = 10_000  # that an exchange which answers its peer can have put by
    frames_in_a_turn: int = 256  # of one connection, before others have theirs
    questions: int = 100  # of one connection, that wait for the gate


LIMITS = Limits()
FRAMES = FrameLimits()
