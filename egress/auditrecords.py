"""The records of the audit trail, in the order of their fields. Pure."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from egress.model import Verdict, Via
from egress.refusals import Reason


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What every record has, in the order it is written."""

    v: int = 1
    ts: str
    session: str
    persona: str
    id: int
    backend: str | UnsetType = UNSET  # what keeps the client in, where the launcher has put it somewhere
    lacks: tuple[str, ...] | UnsetType = UNSET  # and what that does not hold


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The program that made a connection, where that was looked for and found."""

    pid: int  # as its sandbox counts
    exe: str | UnsetType = UNSET
    command: str | UnsetType = UNSET  # its beginning, with credentials masked


class DecisionRecord(Record, frozen=True, kw_only=True):
    event: str = "decision"
    via: Via
    host: str
    port: int | None
    verdict: Verdict
    reason: Reason
    rule: str | None
    would_deny: Reason | UnsetType = UNSET
    method: str | UnsetType = UNSET  # of a request that was looked into
    path: str | UnsetType = UNSET
    process: Process | UnsetType = UNSET


class FloodRecord(DecisionRecord, frozen=True, kw_only=True):
    """One record for many questions to the nameserver: so many were refused below `*.parent`."""

    count: int


class EndRecord(Record, frozen=True, kw_only=True):
    event: str = "end"
    ip: str | None
    up: int
    down: int
    ms: int
    outcome: str
    status: int | UnsetType = UNSET  # of the answer to a request that was looked into


class PolicyRecord(Record, frozen=True, kw_only=True):
    """A reload: `generation` counts the good ones; `error` says why a bad one was not taken."""

    event: str = "policy"
    generation: int
    error: str | None


class GapRecord(Record, frozen=True, kw_only=True):
    """So many records were lost while the log could not be written."""

    event: str = "gap"
    lost: int
