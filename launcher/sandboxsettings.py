"""How a sandbox is to be made, as a value; and as the words that `egress-launch` takes for the same.

The words are the only way in: the process that hosts a sandbox reads them as the command line is read, so what
a program asks for and what a person types cannot come to mean different things.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypedDict

from launcher.sandboxresults import SandboxError

Path = str | os.PathLike[str]


class Fields(TypedDict, total=False):
    """The names of `Settings`, for who gives them one by one."""

    persona: str | None
    project: Path
    policy: Sequence[Path]
    allow: Sequence[str]
    write: Sequence[Path]
    read: Sequence[Path]
    hide: Sequence[Path]
    sockets: Sequence[Path]
    env: Mapping[str, str | None]
    host_ports: Sequence[int]
    memory: str | None
    cpus: float | None
    pids: int | None
    timeout: float | None
    seccomp: str
    backend: str | None
    fallback: str | None
    image: str | None
    audit: Path | None
    dns_server: str | None
    upstream: str | None
    upstream_ca: Sequence[Path]
    excluded: Sequence[str]
    allow_unsandboxed: bool
    output_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Paths are relative to the caller's directory, at the time that the sandbox is made."""

    persona: str | None = None  # whose rules apply
    project: Path = "."  # the writable directory
    policy: Sequence[Path] = ()  # further files
    allow: Sequence[str] = ()  # hosts, over the persona's
    write: Sequence[Path] = ()
    read: Sequence[Path] = ()
    hide: Sequence[Path] = ()
    sockets: Sequence[Path] = ()  # Unix sockets of the host
    env: Mapping[str, str | None] = field(default_factory=dict)  # None: as it is in the caller's environment
    host_ports: Sequence[int] = ()  # services of the host's loopback
    memory: str | None = None  # such as "4G"
    cpus: float | None = None
    pids: int | None = None
    timeout: float | None = None  # seconds, for each command
    seccomp: str = "default"
    backend: str | None = None  # for `wrap`; what is held open is made by bubblewrap
    fallback: str | None = None
    image: str | None = None
    audit: Path | None = None
    dns_server: str | None = None
    upstream: str | None = None
    upstream_ca: Sequence[Path] = ()
    excluded: Sequence[str] = ()  # names of programs that are not for the sandbox
    allow_unsandboxed: bool = False  # whether those may run outside of it
    output_limit: int = 64 << 20  # bytes of each stream that `run` keeps

    def words(self) -> list[str]:
        """The options of `egress-launch` for this sandbox."""
        pairs = [pair for name, option in _OPTIONS.items() for pair in _pairs(option, getattr(self, name))]
        pairs += [("--env", name if value is None else f"{name}={value}") for name, value in self.env.items()]
        for option, value in pairs:
            if not value or "\0" in value:
                raise SandboxError(f"{value!r} is no value for {option}", "egress-launch --help", 2)
        return [f"{option}={value}" for option, value in pairs]


_OPTIONS = {
    "persona": "--persona",
    "project": "--project",
    "policy": "--policy",
    "allow": "--allow",
    "write": "--rw",
    "read": "--ro",
    "hide": "--hide",
    "sockets": "--socket",
    "host_ports": "--host-port",
    "memory": "--memory",
    "cpus": "--cpus",
    "pids": "--pids",
    "timeout": "--timeout",
    "seccomp": "--seccomp",
    "backend": "--backend",
    "fallback": "--fallback",
    "image": "--image",
    "audit": "--audit",
    "dns_server": "--dns-server",
    "upstream": "--upstream",
    "upstream_ca": "--upstream-ca",
}
_PATHS = ("project", "policy", "write", "read", "hide", "sockets", "audit", "upstream_ca")
_ABSOLUTE = frozenset(_OPTIONS[name] for name in _PATHS)
NAMES = frozenset(each.name for each in fields(Settings))


def _pairs(option: str, value: object) -> list[tuple[str, str]]:
    if value is None:
        return []
    many = value if isinstance(value, list | tuple) else [value]
    return [(option, _word(option, each)) for each in many]


def _word(option: str, value: object) -> str:
    if option in _ABSOLUTE and isinstance(value, str | os.PathLike):
        return os.path.abspath(os.path.expanduser(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
