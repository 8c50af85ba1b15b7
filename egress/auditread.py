"""Lines of the log become values again.

A log is read for what it says, not believed: it may come from another machine, a full disk may have cut a
line short, and everything in it was chosen by someone who was refused. A line that is no record is counted
and left out. Of a record only the fields below are decoded, a whole block of lines in one call, which is
what makes a million of them a matter of a second.

    bytes, cut anywhere → Lines → blocks of whole lines → Records → entries
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Generic, TypeVar

import msgspec

MAX_LINE = 1024 * 1024  # a record has a few hundred bytes, and at most a few thousand
_MOST_OPEN = 32768  # as many connections as a gate with 65,536 descriptors has
_NO_RECORD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

K = TypeVar("K")
T = TypeVar("T")
Text = Annotated[str, msgspec.Meta(max_length=4096)]  # a host of 300 characters, each of them escaped, and more
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Process(msgspec.Struct, frozen=True, gc=False):
    """The program inside that made a connection, where that was found out."""

    pid: int | None = None
    exe: Text | None = None
    command: Text | None = None


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Any record; the fields that its event does not have are empty. See audit.schema.json."""

    ts: Text
    session: Text
    event: Text
    persona: Text = ""
    id: Count = 0
    via: Text = ""
    host: Text = ""
    port: Port | None = None
    verdict: Text = ""
    reason: Text = ""
    rule: Text | None = None
    process: Process | None = None
    backend: Text = ""
    lacks: tuple[Text, ...] = ()
    up: Count = 0
    down: Count = 0
    outcome: Text = ""
    lost: Count = 0


class Lines:
    """Puts lines together again that were cut where the reading happened to stop."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """The whole lines that there are now. What follows them is kept, up to the longest line there may be."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._rest = (self._rest + chunk)[:MAX_LINE]  # cut so, it is no record, and counted as none
            return b""
        block, self._rest = self._rest + chunk[:end], chunk[end:]
        return block

    def end(self) -> bytes:
        """A last line that nobody ended."""
        block, self._rest = self._rest, b""
        return block


class Records:
    """Decodes blocks of lines, and counts what it had to leave out."""

    def __init__(self) -> None:
        self.torn = 0
        decoder = msgspec.json.Decoder(Entry)
        self._one, self._all = decoder.decode, decoder.decode_lines

    def entries(self, block: bytes) -> list[Entry]:
        try:
            return self._all(block)
        except _NO_RECORD:  # at least one line is none: look at each
            return [entry for _, entry in self.pairs(block)]

    def pairs(self, block: bytes) -> Iterator[tuple[bytes, Entry]]:
        """Each record with the line it stands in."""
        for line in block.split(b"\n"):
            if line and not line.isspace():
                try:
                    yield line, self._one(line)
                except _NO_RECORD:
                    self.torn += 1


class Recent(Generic[K, T]):
    """A table that keeps at least the newest `size` of its entries, and at most twice as many.

    Two generations, of which the older is dropped whole: a dictionary that is always relieved of its first
    key takes ever longer to find it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[K, T] = {}
        self._old: dict[K, T] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._young or key in self._old

    def put(self, key: K, value: T) -> None:
        self._young[key] = value
        if len(self._young) >= self._size:
            self._old, self._young = self._young, {}

    def pop(self, key: K) -> T | None:
        value = self._young.pop(key, None)
        return self._old.pop(key, None) if value is None else value


class Passages(Generic[T]):
    """What is remembered of each connection between its first record and its last.

    The two have a session and an id in common. A connection whose gate was killed has no last record, so only
    the newest are remembered.
    """

    def __init__(self) -> None:
        self._open: Recent[tuple[str, int], T] = Recent(_MOST_OPEN)

    def begin(self, entry: Entry, value: T) -> None:
        if entry.via != "dns":  # a question, which nothing follows
            self._open.put((entry.session, entry.id), value)

    def end(self, entry: Entry) -> T | None:
        return self._open.pop((entry.session, entry.id))
