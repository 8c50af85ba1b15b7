"""The words every room shares: who asks, for what, and what the answer was.

Values are `NamedTuple`s rather than dataclasses: they are as frozen and as small, cost less to make
on the path of a connection, and importing `dataclasses` would cost the launcher 8 ms before exec.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, NewType

if TYPE_CHECKING:
    from egress.refusals import Reason
    from egress.rules import Rule

# A host in its one canonical spelling. Only `names` makes one.
Host = NewType("Host", str)


class Target(NamedTuple):
    """Where a client asks to go."""

    host: Host
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Verdict(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class Via(StrEnum):
    """The way a request came in."""

    CONNECT = "connect"
    HTTP = "http"
    SOCKS5 = "socks5"
    CAPTURE = "capture"
    DNS = "dns"
    INSPECT = "inspect"


class Source(NamedTuple):
    """Where a line of policy stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Decision(NamedTuple):
    """A verdict never comes alone: it has its reason and, where one spoke, its rule."""

    verdict: Verdict
    reason: Reason
    rule: Rule | None = None
    would_deny: Reason | None = None  # what an observing gate let pass would have been refused for

    @property
    def allowed(self) -> bool:
        return self.verdict is Verdict.ALLOW


class Candidate(NamedTuple):
    """An address a name resolved to, before anyone has said that it may be dialled."""

    ip: str
    port: int
    own: bool = False  # it belongs to this very host


class Vetted(NamedTuple):
    """Addresses that may be dialled; only `policy.vet` makes one."""

    addresses: tuple[Candidate, ...]
