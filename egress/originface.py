"""HTTP/1.1 in the clear, in a tunnel to a host whose requests are looked into.

The client believes that it talks to its target: it writes paths instead of URIs, and its Host header must
name the tunnel's target, on every request. What is not HTTP does not get through.
"""

from __future__ import annotations

from egress.forward import Forwarder
from egress.gateway import Gateway
from egress.httpface import next_request, refuse
from egress.model import Via
from egress.net.relay import Outcome
from egress.net.stream import Closed
from egress.passage import Passage
from egress.refusals import Reason, Refused
from egress.requestdesk import HTTP, check_host
from egress.wire import http1, sniff
from egress.wire.http1 import Request
from egress.wire.sniff import Protocol

_SCHEME = "http://"
_UNSUPPORTED = frozenset({"CONNECT", "TRACE", "TRACK", "PRI"})


async def converse(gate: Gateway, passage: Passage) -> str:
    forwarder = Forwarder(gate, passage.client, Via.INSPECT)
    passage.carrier = _Requests(passage, forwarder)
    passage.client.expire_in(gate.limits.handshake)
    try:
        await _hear(passage)
        while await _request(gate, passage, forwarder):
            await next_request(gate, passage.client)
    except Closed:
        pass
    finally:
        forwarder.close()
    return Outcome.CLOSED


class _Requests:
    """The requests of a tunnel, one after another, as what moves its bytes."""

    def __init__(self, passage: Passage, forwarder: Forwarder) -> None:
        self._passage, self._forwarder = passage, forwarder

    def counts(self) -> tuple[int, int]:
        return self._forwarder.counts()

    def stop(self, outcome: Outcome) -> None:
        self._passage.client.abort()
        if self._forwarder.current is not None:
            self._forwarder.current.stop(outcome)

    def lost_a_peer(self) -> bool:
        return False  # each request looks after its own


async def _hear(passage: Passage) -> None:
    client = passage.client
    if not client.buffer and not await client.fill():
        raise Closed("the client said nothing")
    if sniff.protocol(client.buffer[0]) is not Protocol.HTTP:
        client.abort()
        refused = Refused(Reason.NOT_HTTP)
        refused.told = True
        raise refused


async def _request(gate: Gateway, passage: Passage, forwarder: Forwarder) -> bool:
    """Serve one request; whether another may follow."""
    client, persona, target = passage.client, passage.persona, passage.target
    request: Request | None = None
    try:
        request = await client.run(http1.read_request(client.buffer, gate.limits))
        path = _path(request, passage)
        return await forwarder.exchange(request, persona, target, path)
    except Refused as refused:
        refused.asked = str(target)
        return await refuse(gate, client, refused, request, persona, Via.INSPECT)


def _path(request: Request, passage: Passage) -> str:
    if request.method in _UNSUPPORTED:
        raise Refused(Reason.UNSUPPORTED, f"method {request.method}")
    for named in http1.values(request.fields, "host"):
        check_host(named, passage.target, HTTP)
    if request.uri[: len(_SCHEME)].lower() != _SCHEME:
        return _origin_form(request.method, request.uri)
    authority, slash, path = request.uri[len(_SCHEME) :].partition("/")
    check_host(authority, passage.target, HTTP)
    return slash + path or "/"


def _origin_form(method: str, uri: str) -> str:
    if uri.startswith("/") or (method == "OPTIONS" and uri == "*"):
        return uri
    raise Refused(Reason.MALFORMED_REQUEST, f"the request line has {uri[:80]!r} for a path")
