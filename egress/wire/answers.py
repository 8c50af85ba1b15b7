"""What a refused client is told, in the words of its protocol.

A refusal is a message, not a mystery: it names the host, the persona, the reason, the rule if one
spoke, and the command that explains more.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from egress.refusals import TABLE, Reason, Refused
from egress.wire.http1 import Field, Request, write_head

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_SHOWN = 300  # of what a client wrote; a well-formed target is shorter

# RFC 4253: versions come first (section 4.2); then packets, in the clear until keys are agreed (section 6).
# A disconnect may come at any time (section 11.1), and its words are shown.
SSH_START = b"SSH-"
_SSH_VERSION = b"SSH-2.0-egress\r\n"
_SSH_DISCONNECT, _NOT_ALLOWED = 1, 1
_SSH_BLOCK, _LEAST_PADDING = 8, 4
_ALLOWABLE = frozenset({Reason.NOT_LISTED, Reason.PORT_NOT_LISTED, Reason.ADDRESS_LITERAL})


def sentence(refused: Refused, asked: str, persona: str) -> str:
    """The reason in words."""
    words = TABLE[refused.reason].sentence.format(target=asked or "the target", persona=persona)
    return f"{words} ({refused.detail})" if refused.detail else words


def facts(refused: Refused, asked: str, persona: str) -> dict[str, str]:
    """Policy had nothing against a failure, so there is nothing of policy's to look up."""
    if refused.reason.is_failure:
        return {"failed": sentence(refused, asked, persona), "reason": refused.reason.value}
    told = {"blocked": sentence(refused, asked, persona), "reason": refused.reason.value}
    if refused.rule is not None:
        told["rule"] = str(refused.rule)
    if asked and persona and refused.reason is not Reason.MALFORMED_HOST:  # whose text is fit for no shell
        told["why"] = f"egress check {quote(refused.request or asked)} --persona {persona}"
    if refused.reason in _ALLOWABLE:
        told["allow"] = f"add {asked} to the allow list of persona {persona}; that command shows where and how"
    return told


class Answer(NamedTuple):
    """A refusal as HTTP of any version has it."""

    status: int
    fields: list[Field]
    body: bytes


def answer(refused: Refused, asked: str, persona: str, fields: Sequence[tuple[str, str]] = ()) -> Answer:
    """What a person or an agent can act on; JSON for those whose request asks for it."""
    told = facts(refused, ascii(asked[:_SHOWN])[1:-1], persona)
    as_json = _wants_json(fields)
    body = (json.dumps({"egress": told}) + "\n" if as_json else _text(told)).encode()
    described = [
        Field("Content-Type", "application/json" if as_json else "text/plain; charset=utf-8"),
        Field("Content-Length", str(len(body))),
        Field("X-Egress-Reason", refused.reason.value),
        Field("Cache-Control", "no-store"),
    ]
    if refused.reason is Reason.CREDENTIALS:
        described.append(Field("Proxy-Authenticate", 'Basic realm="egress"'))
    return Answer(TABLE[refused.reason].http, described, body)


def http(refused: Refused, asked: str, persona: str, request: Request | None, *, close: bool) -> bytes:
    """The answer as HTTP/1.1 has it."""
    status, fields, body = answer(refused, asked, persona, request.fields if request else ())
    fields.append(Field("Connection", "close" if close else "keep-alive"))
    head = write_head(f"HTTP/1.1 {status} {_phrase(refused.reason)}", fields)
    return head if request is not None and request.method == "HEAD" else head + body


def ssh(refused: Refused, asked: str, persona: str) -> bytes:
    """A server's version, and that it parts at once; most clients show the words to their user."""
    words = _text(facts(refused, asked, persona)).strip().encode()
    payload = struct.pack("!BII", _SSH_DISCONNECT, _NOT_ALLOWED, len(words)) + words + struct.pack("!I", 0)
    padding = _LEAST_PADDING + -(5 + len(payload) + _LEAST_PADDING) % _SSH_BLOCK
    return _SSH_VERSION + struct.pack("!IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)


def _wants_json(fields: Sequence[tuple[str, str]]) -> bool:
    return any("application/json" in value.lower() for name, value in fields if name == "accept")


def _text(told: dict[str, str]) -> str:
    lines = [f"egress: {name}: {value}" for name, value in told.items()]
    return "\n".join(lines).encode("ascii", "backslashreplace").decode() + "\n"


def _phrase(reason: Reason) -> str:
    """Clients that hide the body show the phrase."""
    return f"Refused by egress: {reason.value}"
