"""Drives a sans-IO handshake with bytes instead of a socket.

The rules are those of a real driver: what the handshake yields is sent; when it yields nothing it
wants more input, and gets the next chunk. A handshake that wants more than there is raises `Starved`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from egress.refusals import Reason, Refused
from egress.wire.handshake import Handshake, T

# A deadline would be a timed assertion, and a database a directory left behind.
FUZZ = settings(max_examples=int(os.environ.get("EGRESS_FUZZ_EXAMPLES", "200")), deadline=None, database=None)
MANY = 1000  # answers; no handshake has so much to say


class Starved(Exception):
    """The input ended before the handshake did: a real client would now be waiting, or gone."""


class Refusal(NamedTuple):
    """A refusal as a value: what must not depend on how the bytes were cut."""

    reason: Reason
    asked: str


STARVED = "starved"


class Outcome(NamedTuple):
    value: object  # what the handshake returned, or a Refusal, or STARVED
    sent: bytes
    left: bytes  # what it left for the next reader, arrived or not


def feed(handshake: Handshake[T], buffer: bytearray, chunks: Iterable[bytes]) -> tuple[T, bytes]:
    """Run to the end; the value, and all that was sent. Chunks it did not want are not taken."""
    sent = bytearray()
    value = _run(handshake, buffer, iter(chunks), sent)
    return value, bytes(sent)


def _run(handshake: Handshake[T], buffer: bytearray, coming: Iterator[bytes], sent: bytearray) -> T:
    for _ in range(MANY * MANY):
        try:
            answer = next(handshake)
        except StopIteration as done:
            return done.value
        sent += answer
        assert len(sent) < MANY, "a handshake that does not stop talking"
        if not answer:
            chunk = next(coming, None)
            if chunk is None:
                raise Starved
            buffer += chunk
    raise AssertionError("a handshake that does not end")


def outcome(start: Callable[[bytearray], Handshake[T]], chunks: Iterable[bytes]) -> Outcome:
    """Run a handshake on a buffer of its own; a refusal is an outcome too, and so is starvation."""
    buffer, sent, coming = bytearray(), bytearray(), iter(chunks)
    try:
        value: object = _run(start(buffer), buffer, coming, sent)
    except Refused as refused:
        return Outcome(Refusal(refused.reason, refused.asked), bytes(sent), b"")
    except Starved:
        return Outcome(STARVED, bytes(sent), b"")
    return Outcome(value, bytes(sent), bytes(buffer) + b"".join(coming))


def whole(data: bytes) -> list[bytes]:
    return [data]


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The pieces between the places, none of them empty: an empty read is the end of a socket."""
    edges = sorted({0, len(data), *(place for place in places if 0 < place < len(data))})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def cuttings(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Every way to cut the data, with a liking for few cuts."""
    return st.lists(st.integers(1, max(1, len(data) - 1)), max_size=12).map(lambda places: cut(data, places))


def however_cut(start: Callable[[bytearray], Handshake[T]], data: bytes, trailing: bytes = b"") -> Outcome:
    """The outcome, which must be one and the same whole and byte by byte, with and without trailing data."""
    expected = outcome(start, whole(data))
    assert outcome(start, one_by_one(data)) == expected
    for chunks in ([data + trailing], [data, trailing], one_by_one(data + trailing)) if trailing else ():
        got = outcome(start, chunks)
        assert got[:2] == expected[:2]
        assert isinstance(got.value, Refusal | str) or got.left == expected.left + trailing
    return expected
