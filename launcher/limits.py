"""What a sandbox may use at most: what was asked, what this machine can hold it to, and what it cannot.

    cgroup    holds the sandbox as a whole, and nothing inside can lift it. A systemd makes one on request;
              where none runs, one of our own will do, if we may make it. Version 2 only
    second    without that: RLIMIT_DATA per process for memory (not RLIMIT_AS: node, java and go reserve far
              more addresses than they use); RLIMIT_NPROC, which since Linux 5.14 counts per user namespace
              and so per sandbox, but never counts root; and affinity, which bounds processors by whole
              numbers and only as long as no program chooses for itself
    nothing   and then the user is told: a limit that does not hold is never passed over

Here are values only; `launcher.confine` acts on them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from launcher.options import Resources

_PERIOD = 100_000  # microseconds, over which the kernel counts processor time
_LEAST_QUOTA = 1000  # of these; the kernel refuses less
_COUNTS_PER_NAMESPACE = (5, 14)
_UNITS = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


class Kind(StrEnum):
    """What can be bounded, by its name in `Resources`."""

    MEMORY = "memory"
    CPUS = "cpus"
    PIDS = "pids"


CONTROLLERS = {Kind.MEMORY: "memory", Kind.CPUS: "cpu", Kind.PIDS: "pids"}


class Group(NamedTuple):
    """A cgroup in which we may make another."""

    path: str
    controllers: frozenset[str]  # that the new one can have


class Facts(NamedTuple):
    kernel: tuple[int, int]
    is_root: bool
    processors: tuple[int, ...]  # that we may use ourselves
    manager: str | None = None  # the socket of a systemd that this user may ask
    groups: tuple[Group, ...] = ()  # the nearest first
    own_users: bool = True  # the sandbox has a user namespace of its own


class LimitPlan(NamedTuple):
    resources: Resources
    facts: Facts
    group: Group | None = None  # where to make a cgroup, if no systemd does

    @property
    def wanted(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in Kind if getattr(self.resources, kind) is not None)


class Measure(NamedTuple):
    """The second best for one limit: what to do to a process, and how far it holds."""

    data: int | None = None  # RLIMIT_DATA
    processes: int | None = None  # RLIMIT_NPROC
    processors: tuple[int, ...] = ()
    applied: str = ""
    missing: str = ""


class Enforced(NamedTuple):
    """What holds, and what was asked for and does not, in words."""

    applied: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def plan_limits(resources: Resources, facts: Facts) -> LimitPlan:
    plan = LimitPlan(resources, facts)
    return plan._replace(group=_best(facts.groups, {CONTROLLERS[kind] for kind in plan.wanted}))


def _best(groups: Collection[Group], wanted: set[str]) -> Group | None:
    """The one that can hold most of it; of equals, the nearest."""
    best = max(groups, key=lambda group: len(wanted & group.controllers), default=None)
    return best if best is not None and wanted & best.controllers else None


def settings(resources: Resources) -> dict[Kind, dict[str, str]]:
    """The files of a cgroup and their content. Without a bound on swap, memory would be bounded in speed only."""
    found: dict[Kind, dict[str, str]] = {}
    if resources.memory is not None:
        found[Kind.MEMORY] = {"memory.max": str(resources.memory), "memory.swap.max": "0"}
    if resources.cpus is not None:
        found[Kind.CPUS] = {"cpu.max": f"{max(_LEAST_QUOTA, round(resources.cpus * _PERIOD))} {_PERIOD}"}
    if resources.pids is not None:
        found[Kind.PIDS] = {"pids.max": str(resources.pids)}
    return found


def is_held(wanted: Mapping[str, str], found: Mapping[str, str]) -> bool:
    """Whether what a cgroup's files say is as strict as what was wanted. A machine without swap has no file for it."""
    return all(
        _amount(found[name]) <= _amount(value) if name in found else name == "memory.swap.max"
        for name, value in wanted.items()
    )


def _amount(text: str) -> float:
    """`max`, a number, or a quota and its period. The kernel rounds sizes down, and systemd chooses the period."""
    quota, _, period = text.partition(" ")
    return float("inf") if quota == "max" else float(quota) / float(period or 1)


def second_best(kind: Kind, resources: Resources, facts: Facts) -> Measure:
    return _SECOND[kind](resources, facts)


def _memory(resources: Resources, _: Facts) -> Measure:
    size = in_words(resources.memory or 0)
    together = "what all processes use together, shared memory and files in /tmp are not bounded"
    return Measure(resources.memory, applied=f"memory: {size} for each process", missing=f"memory: {together}")


def _cpus(resources: Resources, facts: Facts) -> Measure:
    asked, there = resources.cpus or 0, len(facts.processors)
    if asked >= there:
        return Measure(applied=f"cpus: {asked:g}, and there are {there}")
    count = max(1, int(asked))
    applied = f"cpus: {count} of {there}"
    missing = f"cpus: {asked:g} is not to be had" if count > asked else "cpus: a program can choose others for itself"
    return Measure(processors=facts.processors[-count:], applied=applied, missing=missing)


def _pids(resources: Resources, facts: Facts) -> Measure:
    if facts.is_root:
        return Measure(missing="pids: the kernel does not count root's processes")
    if not facts.own_users:
        return Measure(missing="pids: without a user namespace all of a user's processes are counted together")
    if facts.kernel < _COUNTS_PER_NAMESPACE:
        return Measure(missing="pids: this kernel counts all of a user's processes together")
    return Measure(processes=resources.pids, applied=f"pids: {resources.pids}")


_SECOND = {Kind.MEMORY: _memory, Kind.CPUS: _cpus, Kind.PIDS: _pids}


def report(plan: LimitPlan, held: Collection[Kind], failed: Mapping[Kind, str]) -> Enforced:
    """`held` are those that a cgroup holds; `failed`, why the second best could not be done for some others."""
    applied = [_held(kind, plan.resources) for kind in plan.wanted if kind in held]
    missing = []
    for kind in (kind for kind in plan.wanted if kind not in held):
        measure = second_best(kind, plan.resources, plan.facts)
        if kind in failed:
            measure = Measure(missing=f"{kind}: {failed[kind]}")
        applied += [measure.applied] if measure.applied else []
        missing += [f"{measure.missing} (no cgroup for it)"] if measure.missing else []
    return Enforced(tuple(applied), tuple(missing))


def _held(kind: Kind, resources: Resources) -> str:
    if kind is Kind.MEMORY:
        return f"memory: {in_words(resources.memory or 0)} for all processes together"
    return f"cpus: {resources.cpus:g}" if kind is Kind.CPUS else f"pids: {resources.pids}"


def in_words(size: int) -> str:
    """As it would be written on the command line."""
    return next((f"{size // unit}{name}" for name, unit in _UNITS if size and size % unit == 0), str(size))
