"""Why there is no TLS with a client, or no connection to a server: what is told of it, and to whom.

mitmproxy's own words may show bytes that a peer sent, so only what is known to be harmless is taken from them.
"""

from __future__ import annotations

from typing import NamedTuple

from egress.inspection import replies
from egress.inspection.exchange import Outcome
from egress.inspection.messages import Unreached
from egress.inspection.replies import Reply

_DISTRUST = ("unknown ca", "bad certificate", "certificate unknown", "does not trust")
_INVALID = "Certificate verify failed: "  # followed by OpenSSL's reason


class Failure(NamedTuple):
    """`words` are what mitmproxy is told, and by which it comes back; requests that wait are given the reply."""

    words: str
    reply: Reply
    outcome: Outcome


def of_client(words: str) -> str:
    """For the gate's log."""
    distrusted = any(sign in words for sign in _DISTRUST)
    return "the client does not trust our certificate" if distrusted else "no TLS with the client"


def of_server(host: str, words: str) -> Failure:
    if words.startswith(_INVALID):
        reply = replies.bad_certificate(host, words.removeprefix(_INVALID))
        return Failure(words, reply, Outcome.BAD_CERTIFICATE)
    return Failure(words or "no TLS with the server", replies.BAD_RESPONSE, Outcome.BAD_RESPONSE)


def of_dialling(told: Unreached) -> Failure:
    reply = Reply(told.status, tuple(told.fields), told.body)
    return Failure(f"unreached: {told.words}", reply, Outcome.UNREACHED)
