"""The composition root: a running gate, put together from its parts."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from typing import NamedTuple

import idna  # noqa: F401  # `names` needs it late, when there may be no descriptor left to import with

from egress import enforce, policysources
from egress.audit import Audit
from egress.gateway import Gateway
from egress.limits import LIMITS, Limits
from egress.net.dnsclient import DnsServer
from egress.net.resolver import Resolver
from egress.net.upstream import NO_UPSTREAM, Upstreams
from egress.passage import Traffic
from egress.policy import Policy
from egress.policysources import Sources
from egress.reception import Reception
from egress.reload import Reloader
from egress.sessions import Door, Live, new_session_id
from egress.users import Users

_RESERVED_DESCRIPTORS = 256
_DESCRIPTORS_EACH = 3  # a client, its upstream, and at times one that is kept for its next request


class Setup(NamedTuple):
    """What a gate is made from."""

    sources: Sources
    audit: str
    report: Callable[[str], None]
    users: Users | None = None
    dns_server: DnsServer | None = None
    upstreams: Upstreams = NO_UPSTREAM
    limits: Limits = LIMITS


class Gate:
    """Starts when made, inside a running loop. Listening sockets are opened, or come from elsewhere."""

    def __init__(self, setup: Setup, policy: Policy, loop: asyncio.AbstractEventLoop) -> None:
        limits = fit_descriptors(setup.limits)
        self.audit = Audit(setup.audit, new_session_id(), setup.report)
        self.audit.probe()
        self.live = Live(policy)
        self.traffic = Traffic(loop, limits)
        self.resolver = Resolver(loop, limits, setup.dns_server)
        self.gateway = Gateway(
            self.live, self.audit, self.resolver, self.traffic, loop, setup.users, setup.upstreams, limits
        )
        self.reception = Reception(self.gateway)
        self.reloader = Reloader(
            self.gateway,
            lambda: enforce.load(setup.sources),
            lambda: policysources.fingerprint(setup.sources),
            setup.report,
        )

    def open(self, sock: socket.socket, door: Door) -> None:
        self.reception.open(sock, door)

    async def close(self) -> None:
        """Stop taking connections, end those that are open, and leave every word of it on record."""
        self.reloader.close()
        self.traffic.close()
        await self.reception.close()
        self.resolver.close()
        self.audit.close()


def fit_descriptors(limits: Limits) -> Limits:
    """Take all the descriptors we may have, and promise no more connections than they carry."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limits._replace(
        connections=min(limits.connections, max(16, (hard - _RESERVED_DESCRIPTORS) // _DESCRIPTORS_EACH))
    )
