"""Every bound of the nameserver, in one place. Times in seconds."""

from __future__ import annotations

from typing import NamedTuple


class DnsLimits(NamedTuple):
    # names that stand for nothing but themselves, in a sandbox
    synthetic_names: int = 100_000
    synthetic_ttl: int = 10
    synthetic_grace: float = 300.0  # clients that keep an address longer than they were told to
    # new names, in each interval
    interval: float = 60.0
    denied_names: int = 50  # below one parent
    wildcard_names: int = 100  # below one wildcard of the allow list, where that means packets upstream
    parents: int = 100
    remembered: int = 10_000  # names that are no longer new
    # answers kept as bytes, and for how long at most
    ready_answers: int = 10_000
    ready_for: float = 1.0
    # looking up
    cache: int = 10_000
    lookups: int = 256  # at once
    waiting: int = 4096  # questions that wait for those
    # TCP
    tcp_connections: int = 150
    tcp_idle: float = 30.0


DNS_LIMITS = DnsLimits()
