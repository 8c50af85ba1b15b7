"""Answers that the engine gives by itself, where there is nothing to ask the gate.

They look like the gate's own refusals: plain text that names the reason, and a header that a program can read.
What a peer sent is never repeated in them.

A gRPC client shows nothing of an answer that is not gRPC. It gets the same words as a gRPC status instead, in one
header section and nothing after it ("Trailers-Only" in its specification of HTTP/2).
"""

from __future__ import annotations

from typing import NamedTuple

Pair = tuple[bytes, bytes]

_INTERNAL = 13
# HTTP status → gRPC status: as its own mapping has it, and more exact where we know more.
_GRPC_STATUS = {400: 3, 401: 16, 403: 7, 405: 12, 413: 8, 421: 7, 429: 8, 431: 8, 502: 14, 503: 14, 504: 14}


class Reply(NamedTuple):
    status: int
    fields: tuple[Pair, ...]
    body: bytes


def reply(status: int, reason: str, words: str, verb: str = "blocked") -> Reply:
    body = f"egress: {verb}: {words}\negress: reason: {reason}\n".encode("ascii", "backslashreplace")
    fields = (
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"x-egress-reason", reason.encode()),
        (b"cache-control", b"no-store"),
    )
    return Reply(status, fields, body)


def failed(status: int, reason: str, words: str) -> Reply:
    """Policy had nothing against it."""
    return reply(status, reason, words, verb="failed")


def as_grpc(told: Reply) -> Reply:
    """The same, for a client that speaks gRPC."""
    kept = [pair for pair in told.fields if pair[0].lower() not in (b"content-type", b"content-length")]
    status = b"%d" % _GRPC_STATUS.get(told.status, _INTERNAL)
    words = b"; ".join(line for line in told.body.splitlines() if line)
    fields = (
        (b"content-type", b"application/grpc"),
        (b"grpc-status", status),
        (b"grpc-message", _escaped(words)),
        *kept,
    )
    return Reply(200, fields, b"")


def _escaped(words: bytes) -> bytes:
    """As grpc-message wants it: printable ASCII, and no percent sign by itself."""
    return b"".join(b"%c" % each if 0x20 <= each < 0x7F and each != 0x25 else b"%%%02X" % each for each in words)


MALFORMED = reply(400, "malformed_request", "the request is malformed or ambiguous")
TOO_LARGE = reply(431, "too_large", "the header section of the request is too large")
UNSUPPORTED = reply(405, "unsupported", "the gate does not support this method or protocol")
UPLOAD_LIMIT = reply(413, "upload_limit", "the request sends more than its rule permits")
BAD_RESPONSE = failed(502, "bad_response", "the server gave an answer that cannot be passed on safely")


def bad_certificate(host: str, words: str) -> Reply:
    return failed(502, "bad_certificate", f"the certificate of {host} is not valid ({words})")
