"""The seam between a run and what makes its sandbox, for backends other than bubblewrap.

    Site     before anything runs: what it changes of the options and of the plan, and how that is shown
    Place    the sandbox itself, made and held, then released, watched and closed; `launcher.room.Room` is one

A backend is a module of this package with `examine`, which says whether it can be used here and what it then
lacks, and `site`; its row is in `launcher.backends.known`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from egress.record import NamedTuple

if TYPE_CHECKING:
    import asyncio

    from launcher.backends.model import Fit
    from launcher.confine import Confined
    from launcher.netns.connector import Connector
    from launcher.netns.handover import Handover
    from launcher.options import Options
    from launcher.plan import Facts, Plan
    from launcher.request import Request
    from launcher.seccomp import Filter
    from launcher.terminal import Terminal
    from launcher.trust import Given


class Entrance(NamedTuple):
    """A listening socket in the host's own network, and what whoever comes there must know."""

    sock: socket.socket
    name: str
    password: str

    @property
    def url(self) -> str:
        host, port = self.sock.getsockname()
        return f"http://{self.name}:{self.password}@{host}:{port}"


class Watching(Protocol):
    """A sandbox's life, seen from the event loop; `ended` has the exit code."""

    ended: asyncio.Future[int]
    timed_out: bool
    could_not_run: bool

    def is_running(self) -> bool: ...
    def end_in(self, seconds: float) -> None: ...


class Place(Protocol):
    handover: Handover | None
    entrance: Entrance | None
    confined: Confined | None

    @property
    def sandbox(self) -> int:
        """The process that all others in it descend from."""

    @property
    def connector(self) -> Connector | None: ...
    def release(self) -> None: ...
    def at_once(self) -> int | None:
        """The exit code of a command that is over already, and asked nothing; None if a gate is needed."""

    def watch(self, terminal: Terminal | None, loop: asyncio.AbstractEventLoop) -> Watching: ...
    def changed(self) -> list[str]:
        """Protected paths that the run has changed all the same, for the end."""

    def close(self) -> None: ...


class Site(Protocol):
    fit: Fit
    takes_terminal: bool  # or the user's own is used as it is

    def settle(self, options: Options) -> Options:
        """What was asked, as it can be done here; PlanError for what cannot."""

    def trusted(self) -> tuple[Given, ...]:
        """The files that let programs trust inspected hosts."""

    def arrange(self, request: Request, trusting: bool) -> Request: ...
    def see(self, facts: Facts) -> Facts:
        """What of this machine matters for it."""

    def show(self, plan: Plan, as_line: bool) -> str: ...
    def room(
        self, plan: Plan, options: Options, terminal: Terminal | None, filters: Filter, given: Mapping[str, int]
    ) -> Place: ...
    def close(self) -> None: ...
