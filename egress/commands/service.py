"""What `egress proxy` has open before it serves anybody, and the serving of it: alone, or as one of several workers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from egress import app, policysources
from egress.commands import dns, entrances, foreground, supervision
from egress.filteredzone import Blocked
from egress.nameserver import Nameserver
from egress.policy import Policy
from egress.reception import with_listener


class Place(NamedTuple):
    """Where a gate is served, by which parts, under which policy."""

    setup: app.Setup
    policy: Policy
    doors: entrances.Opened
    names: list[dns.Opened]
    asker: str  # whose names they are
    blocked: Blocked
    personas: frozenset[str]

    def facts(self) -> Iterator[str]:
        """For whoever started us."""
        yield from (f"{each} {self.asker}" for each in self.names)
        yield from (entrances.describe(sock, door) for sock, door in self.doors)


@contextmanager
def opened(args: argparse.Namespace, setup: app.Setup) -> Iterator[Place]:
    """Everything that clients come to; what nobody took over is closed in the end."""
    policy = policysources.load(setup.sources)
    asker = dns.persona(args, policy) if args.dns else ""
    doors = entrances.open_all(args, policy, setup.users)
    names: list[dns.Opened] = []
    try:
        names = dns.open_all(args.dns)
        known = setup.users.personas if setup.users else frozenset()
        personas = frozenset(door.persona for _, door in doors if door.persona) | known
        setup = setup._replace(personas=personas)
        policy = setup.load()
        supervision.tell_of_inspection(policy, personas)
        yield Place(setup, policy, doors, names, asker, Blocked(args.blocked), personas)
    finally:
        entrances.close_all(doors)
        dns.close_all(names)


async def serve(
    place: Place,
    stop: asyncio.Event,
    on_hangup: Callable[[], None],
    on_open: Callable[[], None],
    on_up: Callable[[app.Gate], None],
) -> None:
    """Until told to stop."""
    async with foreground.gate(place.setup, place.policy, on_hangup) as gate:
        nameserver = _nameserver(place, gate)
        for sock, door in place.doors:
            gate.open(sock, door)
        on_open()
        await gate.start(place.personas)
        on_up(gate)
        await stop.wait()
        if nameserver is not None:
            await nameserver.close()


def _nameserver(place: Place, gate: app.Gate) -> Nameserver | None:
    """One for all workers, so that one register knows who asks too much."""
    worker = place.setup.worker
    if place.names and (worker is None or worker.leads):
        return dns.serve(gate, place.setup, place.asker, place.blocked, place.names)
    for each in place.names:
        gate.gateway.listeners = with_listener(gate.gateway.listeners, each.tcp)
    return None
