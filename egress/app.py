"""The composition root: a running gate, put together from its parts."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Container, Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import idna  # noqa: F401  # `names` needs it late, when there may be no descriptor left to import with

from egress import enforce, policysources
from egress.attribution import Attribution
from egress.audit import Audit
from egress.counts import Counts
from egress.enginestart import Config
from egress.gateway import Gateway
from egress.inspecting import Inspecting, Opener
from egress.ledger import alone
from egress.limits import LIMITS, Limits
from egress.net.dnsclient import DnsServer
from egress.net.resolver import Resolver
from egress.net.upstream import NO_UPSTREAM, Upstreams
from egress.oversight import Control, Desks, Oversight, Wishes
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

if TYPE_CHECKING:
    from egress.crew import Worker
    from egress.following import Overseen
    from egress.leading import Leading

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
    counts: Counts | None = None
    worker: Worker | None = None  # where the gate is several processes: this one
    desks: Desks | None = None  # that are open already

    def load(self) -> Policy:
        return enforce.load(self.sources, self.vault, self.personas)

    def fingerprint(self) -> Hashable:
        return policysources.fingerprint(self.sources)


class Gate:
    """Starts when made, inside a running loop. Listening sockets are opened, or come from elsewhere."""

    def __init__(self, setup: Setup, policy: Policy, loop: asyncio.AbstractEventLoop) -> None:
        limits, worker = fit_descriptors(setup.limits), setup.worker
        session = new_session_id() if worker is None else worker.crew.session
        row = alone(limits.connections) if worker is None else worker.row
        self.audit = Audit(setup.audit, session, setup.report, loop.call_soon, setup.backend, setup.lacks, row.next_id)
        self.audit.probe()
        self.live = Live(policy, 1 if worker is None else worker.crew.bulletin.taken)
        self.traffic = Traffic(loop, limits, row)
        self.resolver = Resolver(loop, limits, setup.dns_server)
        self.desk = Desk(setup.vault, Uploads(setup.counts), log_queries=setup.log_queries)
        self.gateway = Gateway(
            self.live, self.audit, self.resolver, self.traffic, self.desk, loop, setup.users, setup.upstreams, limits
        )
        self.gateway.attribution = setup.attribution
        self.inspection = self.gateway.inspection = Inspecting(lambda: _opener(setup, self.gateway))
        if _inspects(policy, setup):
            self.inspection.start()  # before anyone waits for it
        self.reception = Reception(self.gateway)
        self.leading: Leading | None = None
        if worker is None:
            self._work_alone(setup)
        else:
            self._work_with_others(setup, worker)

    def _work_alone(self, setup: Setup) -> None:
        self.oversight: Oversight | Overseen = Oversight(self.gateway, setup.sources, setup.wishes, setup.report)
        self.reloader = Reloader(self.gateway, setup.load, setup.fingerprint, setup.report)

    def _work_with_others(self, setup: Setup, worker: Worker) -> None:
        """One leads: it reads the files, and is what people look at. The others follow it."""
        from egress import together

        if worker.leads:
            oversight = Oversight(self.gateway, setup.sources, setup.wishes, setup.report, setup.desks)
            self.leading = together.lead(self.gateway, worker.crew, oversight.questions)
            self.oversight = oversight
            load = (setup.load, setup.fingerprint, setup.vault)
            self.reloader = together.reloading_first(self.gateway, worker.crew, load, setup.report, self.leading)
        else:
            self.reloader = together.reloading_after(self.gateway, worker.crew, setup.vault, setup.report)
            self.oversight = together.follow(self.gateway, worker, setup.wishes, setup.desks, self.reloader)

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
        if self.leading is not None:
            await self.leading.close()
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
