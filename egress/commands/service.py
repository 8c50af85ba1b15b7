"""What `egress proxy` has open before it serves anybody, and the serving of it: alone, or as one of several workers."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

from egress import app, policysources, signpost
from egress.commands import dns, entrances, foreground, supervision
from egress.commands.options import tell_of_remarks
from egress.commands.say import say
from egress.filteredzone import Blocked
from egress.nameserver import Nameserver
from egress.policy import Policy
from egress.reception import with_listener
from egress.users import Users


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


Opened = Callable[[], AbstractContextManager[Place]]


@contextmanager
def opened(args: argparse.Namespace, setup: app.Setup, users: Users | None) -> Iterator[Place]:
    """Everything that clients come to; what nobody took over is closed in the end."""
    policy = policysources.load(setup.sources)
    asker = dns.persona(args, policy) if args.dns else ""
    doors = entrances.open_all(args, policy, users)
    names: list[dns.Opened] = []
    try:
        names = dns.open_all(args.dns)
        known = users.personas if users else frozenset()
        personas = frozenset(door.persona for _, door in doors if door.persona) | known
        setup = setup._replace(personas=personas)
        policy = setup.load()
        supervision.tell_of_inspection(policy, personas)
        tell_of_remarks(policy, personas)
        with _signpost(doors):
            yield Place(setup, policy, doors, names, asker, Blocked(args.blocked), personas)
    finally:
        entrances.close_all(doors)
        dns.close_all(names)


def _signpost(doors: entrances.Opened) -> AbstractContextManager[None]:
    """For `egress settings`; a gate works as well without."""
    try:
        return signpost.posted(entrances.addresses(doors), os.environ)
    except OSError as error:
        say(f"warning: `egress settings` will not find this gate: {error.filename}: {error.strerror}")
        return nullcontext()


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
