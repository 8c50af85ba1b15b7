"""The sockets of a network inside, each opened as what it is: proxy, capture, name server, a port of the host's.

They share the addresses that stand for names: what the name server gives out, a captured connection goes to, and
an address is not given to another name while a connection to it is open.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from egress import app
from egress.audit import Audit
from egress.captureface import Capture, HostPort
from egress.model import Decision, Verdict, Via
from egress.nameserver import Nameserver, in_sandbox
from egress.refusals import Reason
from egress.sessions import Door
from egress.synthetic import SyntheticNames
from launcher.netns.captured import Rejects, original_destination
from launcher.netns.model import Listener, Role


class Doors:
    """Of one persona. They close with the gate; the name server, and what listens for refusals, with this."""

    def __init__(self, gate: app.Gate, persona: str, loop: asyncio.AbstractEventLoop) -> None:
        self._gate, self._persona, self._loop = gate, persona, loop
        self._open_to: Counter[str] = Counter()
        self._names = SyntheticNames(in_use=self._open_to.__contains__)
        self._nameserver: Nameserver = in_sandbox(gate.live, gate.audit, persona, self._names, loop)
        self._heard: list[int] = []

    def open(self, listeners: Iterable[Listener]) -> None:
        for listener in listeners:
            self._open(listener)

    async def close(self) -> None:
        for descriptor in self._heard:
            self._loop.remove_reader(descriptor)
        await self._nameserver.close()

    def _open(self, listener: Listener) -> None:
        door, sock, reception = Door(self._persona), listener.sock, self._gate.reception
        match listener.role:
            case Role.PROXY:
                reception.open_elsewhere(sock, door)
            case Role.CAPTURE:
                captured = Capture(original_destination, self._names.name_of, self._open_to)
                reception.open_elsewhere(sock, door, captured.converse)
            case Role.HOST_PORT:
                reception.open_elsewhere(sock, door, HostPort(listener.port).converse)
            case Role.DNS_UDP:
                self._nameserver.open_udp(sock)
            case Role.DNS_TCP:
                self._nameserver.open_tcp(sock)
            case Role.REJECTS:
                self._heard.append(sock.fileno())
                self._loop.add_reader(sock.fileno(), self._rejected, Rejects(sock), self._gate.audit)

    def _rejected(self, rejects: Rejects, audit: Audit) -> None:
        """Datagrams were refused by the kernel; the first to each destination goes on record."""
        for packet in rejects.read():
            host = self._names.name_of(packet.ip) or packet.ip
            decision = Decision(Verdict.DENY, Reason.NOT_TCP)
            audit.decision(audit.next_id(), self._persona, Via.CAPTURE, host, packet.port or None, decision)
