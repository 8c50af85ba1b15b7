"""HTTP/1.1 as the gate's clients speak it: CONNECT, or one request after another, each decided by itself."""

from __future__ import annotations

import asyncio
import re

from egress.forward import Forwarder
from egress.gateway import Gateway
from egress.model import Target, Via
from egress.names import Malformed, parse_authority
from egress.net.stream import Closed, Stream
from egress.refusals import TABLE, Reason, Refused
from egress.sessions import Door
from egress.users import parse_basic
from egress.wire import answers, http1

_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)")
_UNSUPPORTED = frozenset({"TRACE", "TRACK", "PRI"})
_IN_THE_CLEAR = frozenset({"http", "ws"})  # a WebSocket begins as a request, and some ask for it by its own scheme


async def converse(gate: Gateway, client: Stream, door: Door) -> None:
    forwarder = Forwarder(gate, client)
    try:
        while await _request(gate, client, door, forwarder):
            await next_request(gate, client)
    finally:
        forwarder.close()


async def next_request(gate: Gateway, client: Stream) -> None:
    """Wait for another request, if the client has not sent one already."""
    if client.buffer:
        await asyncio.sleep(0)  # a thousand requests may stand in there: others have their turn between them
    else:
        client.expire_in(gate.limits.keep_alive)
        if not await client.fill():
            raise Closed("the client is done")
    client.expire_in(gate.limits.handshake)


async def _request(gate: Gateway, client: Stream, door: Door, forwarder: Forwarder) -> bool:
    """Serve one request; whether another may follow on this connection."""
    request: http1.Request | None = None
    persona, asked = door.persona or "", ""
    try:
        request = await client.run(http1.read_request(client.buffer, gate.limits))
        persona = await _identify(gate, request, door)
        target, path = _target(request)
        asked = str(target)
        if request.method == "CONNECT":
            await gate.carry(client, persona, Via.CONNECT, target, answers.ESTABLISHED)
            return False
        return await forwarder.exchange(request, persona, target, path)
    except TimeoutError:
        if request is not None:
            raise
        return await refuse(gate, client, Refused(Reason.TIMEOUT), request, persona)
    except Refused as refused:
        refused.asked = asked or refused.asked
        return await refuse(gate, client, refused, request, persona)


async def refuse(
    gate: Gateway, client: Stream, refused: Refused, request: http1.Request | None, persona: str, via: Via = Via.HTTP
) -> bool:
    """Tell the client why; whether it may go on. What could not be read, or has a body to come, ends it."""
    client.expire_in(gate.limits.handshake)  # for those who ask and never listen
    gate.note(refused, persona, Via.CONNECT if request is not None and request.method == "CONNECT" else via, client)
    stays = request is not None and _may_go_on(request, refused)
    if not refused.told:
        await client.send(answers.http(refused, refused.asked, persona, request, close=not stays))
    if not stays:
        await client.part()
    return stays


def _may_go_on(request: http1.Request, refused: Refused) -> bool:
    bad = refused.told or TABLE[refused.reason].http == 400
    return not bad and request.method != "CONNECT" and not request.length and request.keeps_alive


async def _identify(gate: Gateway, request: http1.Request, door: Door) -> str:
    if door.persona is not None:
        return door.persona
    offered = http1.values(request.fields, "proxy-authorization")
    persona = await gate.persona_of(parse_basic(offered[0])) if len(offered) == 1 else None
    if persona is None:
        raise Refused(Reason.CREDENTIALS)
    return persona


def _target(request: http1.Request) -> tuple[Target, str]:
    """Where a request goes, from its request line alone: the Host header has no say."""
    if request.method in _UNSUPPORTED:
        raise Refused(Reason.UNSUPPORTED, f"method {request.method}")
    if request.method == "CONNECT":
        return _authority(request.uri, None), ""
    match = _ABSOLUTE.fullmatch(request.uri)
    if match is None:
        raise Refused(Reason.NOT_A_PROXY_REQUEST, f"the request line has {request.uri[:80]!r}")
    scheme, authority, path = match.groups()
    if scheme.lower() not in _IN_THE_CLEAR:
        raise Refused(Reason.NOT_A_PROXY_REQUEST, f"{scheme}:// in the clear; use CONNECT")
    return _authority(authority, 80), _path(request.method, path)


def _authority(text: str, default_port: int | None) -> Target:
    try:
        return parse_authority(text, default_port)
    except Malformed as error:
        raise Refused(Reason.MALFORMED_HOST, str(error), asked=text) from None


def _path(method: str, path: str) -> str:
    if path.startswith("/"):
        return path
    return "*" if method == "OPTIONS" and not path else "/" + path
