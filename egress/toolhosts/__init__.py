"""The hosts that a tool's own configuration names, so that a mirror is followed by itself.

    expand("npm")        where npm, set up as it is on this machine, fetches packages from
    environment("npm")   what tells the npm inside, which cannot see its user's configuration, the same
    problems("npm")      settings that could not be used
    fingerprint()        differs when any of it may have changed

No registry is named in this program: where a tool is not configured, it says itself what its default is.
Everything read stays as long as nothing that it was read from has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module

from egress.model import Host
from egress.record import NamedTuple
from egress.toolhosts.findings import Found
from egress.toolhosts.machine import Machine, identity, this_machine

TOOLS = ("npm", "pip", "apt")


class ToolHost(NamedTuple):
    host: Host
    port: int
    tls: bool
    private: bool  # it may be on one's own network: where a tool goes is for the machine's owner to say
    source: str


def expand(tool: str, machine: Machine | None = None) -> tuple[ToolHost, ...]:
    """Where a tool fetches from; nothing, if it is neither installed nor configured."""
    hosts: dict[tuple[Host, int], ToolHost] = {}
    for host, port, tls, _, source, _ in _found(tool, machine).registries:
        hosts.setdefault((host, port), ToolHost(host, port, tls, True, source))
    return tuple(hosts.values())


def environment(tool: str, machine: Machine | None = None) -> dict[str, str]:
    """Variables with which the tool uses the same registries inside. URLs in them hold no user or password."""
    return dict(_found(tool, machine).environment)


def problems(tool: str, machine: Machine | None = None) -> tuple[str, ...]:
    return _found(tool, machine).problems


def fingerprint() -> Hashable:
    """Of all that was read so far; costs a system call for each file."""
    return tuple(_state(machine, found) for machine, found in _known.values())


_known: dict[tuple[str, tuple[str, ...], str], tuple[Machine, Found]] = {}


def _found(tool: str, machine: Machine | None) -> Found:
    if tool not in TOOLS:
        raise ValueError(f"no such tool {tool!r}, expected one of {', '.join(TOOLS)}")
    machine = machine or this_machine()
    key = tool, machine.writable, machine.root
    if key not in _known or _is_stale(machine, *_known[key]):
        find: Callable[[Machine], Found] = import_module(f"egress.toolhosts.{tool}").find
        copied = machine._replace(environ=dict(machine.environ))  # to be compared with later
        _known[key] = copied, find(copied)
    return _known[key][1]


def _is_stale(machine: Machine, known: Machine, found: Found) -> bool:
    return machine.environ != known.environ or any(identity(path) != seen for path, seen in found.files.items())


def _state(machine: Machine, found: Found) -> Hashable:
    variables = hash(frozenset(machine.environ.items()))  # hashed: there are credentials among them
    return variables, tuple(map(identity, found.files))
