"""The client's side of CONNECT, as spoken to an upstream proxy (RFC 9110 section 9.3.6).

A handshake over a buffer. Only 200 opens a tunnel: its head is the whole answer, whatever length it
claims, and what stands behind it is the target's first word. No field means anything to us, but a head
that is not well formed is not taken on trust: where it ends decides where the tunnel begins.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from egress.limits import LIMITS, Limits
from egress.model import Target
from egress.refusals import Reason, Refused
from egress.wire.handshake import NOTHING, Handshake

_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")
_PHRASE = 80


class Reply(NamedTuple):
    status: int
    phrase: str

    def __str__(self) -> str:
        return f"{self.status} {self.phrase}".rstrip()


def request(target: Target, authorization: str | None = None) -> bytes:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii")


def connect(
    buffer: bytearray, target: Target, authorization: str | None = None, limits: Limits = LIMITS
) -> Handshake[Reply]:
    """Ask for the tunnel; the reply, when it is final."""
    yield request(target, authorization)
    for _ in range(limits.interim_responses + 1):
        reply = parse_reply((yield from _head(buffer, limits.header_bytes)), limits)
        if reply.status >= 200 or reply.status == 101:  # 101 is final too, and not what was asked for
            return reply
    raise _unreadable("endless interim responses")


def parse_reply(head: bytes, limits: Limits = LIMITS) -> Reply:
    """A head without its last empty line."""
    first, *fields = head.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise _unreadable("a line that is no HTTP/1 status")
    if len(fields) > limits.header_count or not all(map(_FIELD.fullmatch, fields)):
        raise _unreadable("too many or malformed header fields")
    phrase = (status[2] or b"").decode("ascii", "ignore")
    return Reply(int(status[1]), "".join(filter(str.isprintable, phrase))[:_PHRASE].strip())


def _head(buffer: bytearray, most: int) -> Handshake[bytes]:
    seen = 0
    while (end := buffer.find(_END, seen, most)) < 0:
        if len(buffer) >= most:
            raise _unreadable(f"a head of more than {most} bytes")
        seen = max(len(buffer) - len(_END) + 1, 0)
        yield NOTHING
    head = bytes(buffer[:end])
    del buffer[: end + len(_END)]
    return head


def _unreadable(what: str) -> Refused:
    return Refused(Reason.UNREACHABLE, f"answered with {what}")
