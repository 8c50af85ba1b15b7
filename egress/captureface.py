"""Connections that were caught on their way: the client believes that it talks to its target.

Where it was going comes from the kernel, and which name that address stands for from our nameserver, so
there is no protocol of ours to speak. A refusal is told in the client's own, if its first bytes show
which: HTTP gets a 403 with its text, TLS an alert, SSH a disconnect with its words; anything else is reset.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from egress.gateway import Gateway
from egress.model import Decision, Host, Source, Target, Verdict, Via
from egress.names import parse_host
from egress.net.stream import Stream
from egress.refusals import Reason, Refused
from egress.rules import Pattern, Rule
from egress.sessions import Door
from egress.wire import answers, clienthello, sniff
from egress.wire.sniff import Protocol

_LISTENS = 1.0  # for a refused client's first words; one that waits for the server's gets a reset


class Capture(NamedTuple):
    """A face for captured connections: where each was going, and which name that stands for."""

    destination: Callable[[socket.socket], tuple[str, int]]
    name_of: Callable[[str], Host | None]
    in_use: Counter[str]  # addresses that connections are open to, which must not come to mean another name

    async def converse(self, gate: Gateway, client: Stream, door: Door) -> None:
        ip, port = self.destination(client.sock)
        target = Target(self.name_of(ip) or parse_host(ip), port)
        self.in_use[ip] += 1
        try:
            await _carry(gate, client, door.persona or "", target)
        finally:
            self.in_use[ip] -= 1
            if not self.in_use[ip]:
                del self.in_use[ip]


class HostPort(NamedTuple):
    """A face for one service of this host, given to the sandbox by name of its port."""

    port: int

    async def converse(self, gate: Gateway, client: Stream, door: Door) -> None:
        source = Source("--host-port", 0)
        target = Target(parse_host("127.0.0.1"), self.port)
        rule = Rule(Pattern(target.host), frozenset({self.port}), tls=False, private=True, source=source)
        decision = Decision(Verdict.ALLOW, Reason.LISTED, rule)
        try:
            await gate.carry_on(gate.admit(client, door.persona or "", Via.CAPTURE, target, decision))
        except Refused:
            client.abort()


async def _carry(gate: Gateway, client: Stream, persona: str, target: Target) -> None:
    try:
        await gate.carry(client, persona, Via.CAPTURE, target)
    except Refused as refused:
        if not refused.told:
            await _tell(client, refused, target, persona)


async def _tell(client: Stream, refused: Refused, target: Target, persona: str) -> None:
    client.expire_in(_LISTENS)
    try:
        spoken = client.buffer or await client.fill()
    except TimeoutError:
        spoken = None
    protocol = sniff.protocol(client.buffer[0]) if spoken else Protocol.OTHER
    if client.buffer.startswith(answers.SSH_START):
        await client.send(answers.ssh(refused, str(target), persona))
        await client.part()
    elif protocol is Protocol.HTTP:
        await client.send(answers.http(refused, str(target), persona, None, close=True))
        await client.part()
    elif protocol is Protocol.TLS:
        await client.send(clienthello.ALERT_ACCESS_DENIED)
        await client.part()
    else:
        client.abort()
