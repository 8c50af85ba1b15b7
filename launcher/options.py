"""What `egress-launch` was asked to do, as a value, and how its words are read."""

from __future__ import annotations

import re
from typing import NamedTuple

from launcher.mounts import PlanError

_PORT = re.compile(r"[1-9][0-9]{0,4}")
_SIZE = re.compile(r"([1-9][0-9]*)([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Publish(NamedTuple):
    inside: int
    outside: int


class Resources(NamedTuple):
    """Bounds on the whole sandbox; None where nothing was asked."""

    memory: int | None = None
    cpus: float | None = None
    pids: int | None = None
    timeout: float | None = None


class Options(NamedTuple):
    command: tuple[str, ...]
    persona: str | None = None
    policy: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    project: str = "."
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    publish: tuple[Publish, ...] = ()
    host_ports: tuple[int, ...] = ()
    seccomp: str = "default"
    bridge: str = "handover"
    resources: Resources = Resources()
    audit: str | None = None
    dns_server: str | None = None
    upstream: str | None = None
    quiet: bool = False
    verbose: bool = False
    dry_run: bool = False
    print_argv: bool = False


def parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or (port := int(text)) > 65535:
        raise PlanError(f"{text!r} is not a port from 1 to 65535", status=2)
    return port


def parse_publish(text: str) -> Publish:
    """`3000` or `3000:8080`: the port inside, and the one on the host where it is another."""
    inside, colon, outside = text.partition(":")
    return Publish(parse_port(inside), parse_port(outside if colon else inside))


def parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.upper())
    if match is None:
        raise PlanError(f"{text!r} is not a size such as 512M or 4G", status=2)
    return int(match[1]) * _UNITS[match[2]]


def parse_positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise PlanError(f"{text!r} is not a positive number", status=2)
    return value
