"""What a caller and the process that hosts its sandbox say to each other, a packet of a SEQPACKET pair each.

    on the channel, the sandbox's                    on a line, one per command
    caller → host   Open, in memory                  caller → host   Signal
    host → caller   Ready or Failed                  host → caller   Started or Refused, then Ended
    caller → host   Start, in memory, with its
                    three streams and its line

The end of a line on the caller's side is the end of its command, and the end of the channel that of the sandbox,
so nothing needs to be undone by whoever is killed. Bytes are bytes: neither words nor names of files are text.
"""

from __future__ import annotations

import msgspec

MOST = 128 * 1024  # bytes of a packet to the host
MOST_ANSWER = 1 << 20
MOST_ASKED = 16 << 20  # of what comes in memory
DESCRIPTORS = 5


class Open(msgspec.Struct, tag=True):
    words: list[str]  # the options of egress-launch
    environ: dict[bytes, bytes]  # the caller's, before its host's Python was told where to find things


class Ready(msgspec.Struct, tag=True):
    session: str  # as the log has it
    directory: str
    env: dict[bytes, bytes]
    warnings: list[str]


class Failed(msgspec.Struct, tag=True):
    message: str
    hint: str
    status: int


class Start(msgspec.Struct, tag=True):
    argv: list[bytes]
    directory: bytes
    env: dict[bytes, bytes]  # over the sandbox's own
    timeout: float | None


class Started(msgspec.Struct, tag=True):
    pid: int  # as the sandbox counts


class Signal(msgspec.Struct, tag=True):
    number: int


class Refused(msgspec.Struct, tag=True):
    """There is no such command, directory or process."""

    kind: str  # a letter of `enterchild`
    error: int


class Program(msgspec.Struct):
    pid: int
    exe: str
    command: str


class Denial(msgspec.Struct):
    host: str
    port: int | None
    reason: str
    process: Program | None


class Ended(msgspec.Struct, tag=True):
    status: int  # as waitpid(2) has it
    timed_out: bool
    blocked: list[Denial]
    warnings: list[str]


ToHost = Open | Start | Signal
ToCaller = Ready | Failed | Started | Refused | Ended

encode = msgspec.msgpack.Encoder().encode
to_host = msgspec.msgpack.Decoder(ToHost).decode
to_caller = msgspec.msgpack.Decoder(ToCaller).decode
