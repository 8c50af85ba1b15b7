"""What the gate and the engine say to each other.

The engine opens TLS and reads requests; the gate decides, resolves, dials and writes the log. So the engine
asks, for each request, whether it may go and what to change in it, and for each upstream connection to be
given one. Every message is one packet on a `SOCK_SEQPACKET` pair, tagged by its type; a socket that belongs
to it (`Open`, `Reached`) travels with it as a descriptor.

    gate → engine   Open · Verdict · Reached · Unreached · Stop
    engine → gate   Ready · Ask · Reach · Done · Moved · Closed
"""

from __future__ import annotations

import msgspec

Pairs = list[tuple[bytes, bytes]]  # header fields, in the order and spelling they came in


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


# ---- gate → engine


class Open(Message, frozen=True):
    """A client's connection (with its descriptor), allowed to go to this target and nowhere else."""

    conn: int
    host: str
    port: int
    seen: bytes  # what was already read from it: its ClientHello


class Budget(msgspec.Struct, frozen=True, array_like=True):
    """How much a request may send: by itself, and what its rule's session may in all (a slot of the shared counts)."""

    request: int | None = None
    session: int | None = None
    slot: int = -1


class Verdict(Message, frozen=True):
    """The answer to `Ask`. Refused (`status` is not 0): this answer goes to the client and the upload is dropped."""

    conn: int
    request: int
    status: int = 0
    fields: Pairs = []  # of the refusal
    body: bytes = b""
    put: Pairs = []  # fields of the request that get another value
    mask: list[bytes] = []  # what must not be seen in the answer
    budget: Budget | None = None


class Reached(Message, frozen=True):
    """An upstream connection (its descriptor), dialled at a vetted address."""

    conn: int
    serial: int


class Unreached(Message, frozen=True):
    """There is none; requests that wait for it get this answer."""

    conn: int
    serial: int
    status: int
    fields: Pairs
    body: bytes
    words: str


class Stop(Message, frozen=True):
    """End this connection now."""

    conn: int


# ---- engine → gate


class Ready(Message, frozen=True):
    """The authority is made; connections may be handed over."""

    key: bytes
    certificate: bytes


class Ask(Message, frozen=True):
    conn: int
    request: int
    method: str
    scheme: str
    authority: bytes  # Host or :authority, as it came; empty if there was none
    path: bytes  # with its query
    fields: Pairs
    length: int | None  # of its body, where it was announced


class Reach(Message, frozen=True):
    conn: int
    serial: int


class Done(Message, frozen=True):
    """A request that was allowed is over."""

    conn: int
    request: int
    status: int | None  # None: no answer came
    up: int  # bytes of its body
    down: int
    outcome: str  # closed, reset, unreached, bad_response, bad_certificate; refused: see `status`


class Moved(Message, frozen=True):
    """Bytes on the wire so far, told at most once a second while they move: for the idle limit."""

    conn: int
    up: int
    down: int


class Closed(Message, frozen=True):
    conn: int
    up: int
    down: int
    failure: str | None = None  # why TLS with the client or the upstream came to nothing
    flooded: bool = False  # it was cut off, for frames that carry nothing


ToEngine = Open | Verdict | Reached | Unreached | Stop
ToGate = Ready | Ask | Reach | Done | Moved | Closed
