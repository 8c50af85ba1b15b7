"""SOCKS5 as the gate's clients speak it: greeting, perhaps a password, one request, a tunnel."""

from __future__ import annotations

from egress.gateway import Gateway
from egress.model import Via
from egress.net.stream import Stream
from egress.refusals import Reason, Refused
from egress.sessions import Door
from egress.wire import socks5


async def converse(gate: Gateway, client: Stream, door: Door) -> None:
    persona = ""
    try:
        persona = await _identify(gate, client, door)
        target = await client.run(socks5.request(client.buffer))
        await gate.carry(client, persona, Via.SOCKS5, target, socks5.SUCCEEDED)
    except Refused as refused:
        gate.note(refused, persona or door.persona or "", Via.SOCKS5, client)
        if not refused.told:
            await client.send(socks5.answer(refused))
        await client.part()


async def refuse_version_4(gate: Gateway, client: Stream, door: Door) -> None:
    refused = Refused(Reason.UNSUPPORTED, "SOCKS version 4; use SOCKS5 with host names")
    gate.note(refused, door.persona or "", Via.SOCKS5, client)
    await client.send(socks5.SOCKS4_REFUSED)
    await client.part()


async def _identify(gate: Gateway, client: Stream, door: Door) -> str:
    credentials = await client.run(socks5.greeting(client.buffer, password=door.persona is None))
    if door.persona is not None:
        return door.persona
    persona = await gate.persona_of(credentials)
    if persona is None:
        raise socks5.Rejected(socks5.AUTH_FAILED, Reason.CREDENTIALS, "unknown user or wrong password")
    await client.send(socks5.AUTH_OK)
    return persona
