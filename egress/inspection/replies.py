"""Answers that the engine gives by itself, where there is nothing to ask the gate.

They look like the gate's own refusals: plain text that names the reason, and a header that a program can read.
What a peer sent is never repeated in them.
"""

from __future__ import annotations

from typing import NamedTuple

Pair = tuple[bytes, bytes]


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


MALFORMED = reply(400, "malformed_request", "the request is malformed or ambiguous")
TOO_LARGE = reply(431, "too_large", "the header section of the request is too large")
UNSUPPORTED = reply(405, "unsupported", "the gate does not support this method or protocol")
UPLOAD_LIMIT = reply(413, "upload_limit", "the request sends more than its rule permits")
BAD_RESPONSE = failed(502, "bad_response", "the server gave an answer that cannot be passed on safely")


def bad_certificate(host: str, words: str) -> Reply:
    return failed(502, "bad_certificate", f"the certificate of {host} is not valid ({words})")
