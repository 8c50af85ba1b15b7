"""What a persona says of the room it works in. The gate asks none of it; the launcher builds by it. Pure.

`extends` adds lists up, and of single values the nearest persona's speaks. So does its `allow_calls`: to put
two lists of what is allowed together would allow more than either says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from egress.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

BACKENDS = ("bwrap", "landlock", "podman", "docker", "none")
FALLBACKS = ("error", "warn")


class Filesystem(NamedTuple):
    """What may be seen and changed besides the project. Paths are absolute, below ~, or below the project."""

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()


class Tools(NamedTuple):
    """For an agent's own permission system: what it may use without asking, and what never."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Walls(NamedTuple):
    """How the sandbox is made; None where the persona does not say."""

    backend: str | None = None
    fallback: str | None = None
    image: str | None = None
    sockets: tuple[str, ...] = ()
    deny_calls: tuple[str, ...] = ()
    allow_calls: tuple[str, ...] | None = None
    memory: str | None = None
    cpus: str | None = None
    pids: str | None = None
    timeout: str | None = None


def files_of(family: Iterable[Filesystem]) -> Filesystem:
    """Those of a persona and of the ones that it extends, the nearest first."""
    return Filesystem(*map(union, zip(*family, strict=True)))


def tools_of(family: Iterable[Tools]) -> Tools:
    return Tools(*map(union, zip(*family, strict=True)))


def walls_of(family: Sequence[Walls]) -> Walls:
    said: dict[str, Any] = {}
    for walls in reversed(family):
        said |= {name: value for name, value in walls._asdict().items() if value is not None}
    for name in ("sockets", "deny_calls"):
        said[name] = union(getattr(walls, name) for walls in family)
    return Walls(**said)


def union(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(lists)))
