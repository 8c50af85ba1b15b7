"""The composition root: a running gate, put together from its parts."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

import idna  # noqa: F401  # `names` needs it late, when there may be no descriptor left to import with

from egress import enforce, policysources
from egress.attribution import Attribution
from egress.audit import Audit
from egress.enginestart import Config
from egress.gateway import Gateway
from egress.inspecting import Inspecting, Opener
from egress.limits import LIMITS, Limits
from egress.net.dnsclient import DnsServer
from egress.net.resolver import Resolver
from egress.net.upstream import NO_UPSTREAM, Upstreams
from egress.oversight import Control, Oversight, Wishes
from egress.passage import Traffic
from egress.policy import Policy
from egress.policysources import Sources
from egress.questions import Questions
from egress.reception import Reception
from egress.refusals import Reason, Refused
from egress.reload import Reloader
from egress.requestdesk import Desk
from egress.sessions import Door, Live, new_session_id
from egress.uploads import Uploads
from egress.users import Doorkeeper
from egress.vault import Vault

_RESERVED_DESCRIPTORS = 256
_DESCRIPTORS_EACH = 3  # a client, its upstream, and at times one that is kept for its next request


NO_WISHES = Wishes()


class Setup(NamedTuple):
    """What a gate is made from."""

    sources: Sources
    audit: str
    report: Callable[[str], None]
    vault: Vault
    users: Doorkeeper | None = None
    dns_server: DnsServer | None = None
    upstreams: Upstreams = NO_UPSTREAM
    limits: Limits = LIMITS
    personas: Container[str] | None = None  # in use; the one of its sources where that says enough
    log_queries: bool = False
    wishes: Wishes = NO_WISHES
    attribution: Attribution | None = None
    authority: Callable[[], Config] | None = None  # that an engine is made with, when one is needed
    backend: str = ""  # what the launcher has made the clients' sandbox with,
    lacks: tuple[str, ...] = ()  # and what that does not enforce: both for the record

    def load(self) -> Policy:
        return enforce.load(self.sources, self.vault, self.personas)


class Gate:
    """Starts when made, inside a running loop. Listening sockets are opened, or come from elsewhere."""

    def __init__(self, setup: Setup, policy: Policy, loop: asyncio.AbstractEventLoop) -> None:
        limits = fit_descriptors(setup.limits)
        self.audit = Audit(setup.audit, new_session_id(), setup.report, loop.call_soon, setup.backend, setup.lacks)
        self.audit.probe()
        self.live = Live(policy)
        self.traffic = Traffic(loop, limits)
        self.resolver = Resolver(loop, limits, setup.dns_server)
        self.desk = Desk(setup.vault, Uploads(), log_queries=setup.log_queries)
        self.gateway = Gateway(
            self.live, self.audit, self.resolver, self.traffic, self.desk, loop, setup.users, setup.upstreams, limits
        )
        self.gateway.attribution = setup.attribution
        self.inspection = self.gateway.inspection = Inspecting(lambda: _opener(setup, self.gateway))
        if _inspects(policy, setup):
            self.inspection.start()  # before anyone waits for it
        self.oversight = Oversight(self.gateway, setup.sources, setup.wishes, setup.report)
        self.reception = Reception(self.gateway)
        self.reloader = Reloader(
            self.gateway, setup.load, lambda: policysources.fingerprint(setup.sources), setup.report
        )

    async def start(self, personas: Iterable[str]) -> None:
        """Open what people look at, for the personas that there are doors for."""
        await self.oversight.start(_control, personas)

    def open(self, sock: socket.socket, door: Door) -> None:
        self.reception.open(sock, door)

    async def close(self) -> None:
        """Stop taking connections, end those that are open, and leave every word of it on record."""
        self.reloader.close()
        self.traffic.close()
        await self.reception.close()
        await self.oversight.close()
        self.inspection.close()
        self.resolver.close()
        self.desk.uploads.close()
        self.audit.close()


def _inspects(policy: Policy, setup: Setup) -> bool:
    used = (setup.sources.persona,) if setup.personas is None else setup.personas
    return any(policy.personas[name].inspected for name in policy.personas if name in used)


def _opener(setup: Setup, gateway: Gateway) -> Opener:
    from egress.inspection.inspector import Inspector

    if setup.authority is None:
        raise Refused(Reason.INSPECTION_UNAVAILABLE, "no rule needed it when the sandbox was made: start it anew")
    return Inspector(gateway, setup.authority(), setup.report)


def _control(gateway: Gateway, questions: Questions | None, personas: Iterable[str]) -> Control:
    from egress.control.app import Control

    return Control(gateway, questions, personas)


def fit_descriptors(limits: Limits) -> Limits:
    """Take all the descriptors we may have, and promise no more connections than they carry."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limits._replace(
        connections=min(limits.connections, max(16, (hard - _RESERVED_DESCRIPTORS) // _DESCRIPTORS_EACH))
    )
