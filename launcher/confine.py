"""Holding a sandbox to its limits: done to its first process while bwrap waits, so to all that come of it.

What counts is what can be read back. Whatever a cgroup turns out not to hold gets the second best, and the
answer says which is which.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Collection
from typing import NamedTuple

from launcher import cgroup
from launcher.limits import Enforced, Kind, LimitPlan, Measure, is_held, report, second_best, settings


class Confined(NamedTuple):
    enforced: Enforced
    made: cgroup.Made | None = None

    def release(self) -> None:
        """To be called when the sandbox has ended. A cgroup of systemd's goes by itself."""
        if self.made is not None:
            self.made.remove()


def confine(plan: LimitPlan, pid: int) -> Confined:
    """It may fork: no thread or event loop may exist yet."""
    if not plan.wanted:
        return Confined(Enforced())
    held, made = _by_cgroup(plan, pid)
    failed = {}
    for kind in (kind for kind in plan.wanted if kind not in held):
        try:
            _apply(second_best(kind, plan.resources, plan.facts), pid)
        except OSError as error:
            failed[kind] = error.strerror or str(error)
    return Confined(report(plan, held, failed), made)


def _by_cgroup(plan: LimitPlan, pid: int) -> tuple[Collection[Kind], cgroup.Made | None]:
    if plan.facts.manager is not None:
        from launcher import scope

        try:
            scope.make(plan.facts.manager, pid, plan.resources)
            return _held(plan, cgroup.of_process(pid, cgroup.mounted())), None
        except scope.ScopeError:
            pass  # then by ourselves
    if plan.group is None:
        return (), None
    try:
        made = cgroup.Made(plan.group, settings(plan.resources))
    except OSError:
        return (), None
    try:
        made.add(pid)
    except OSError:
        made.remove()
        return (), None
    return _held(plan, made.path), made


def _held(plan: LimitPlan, path: str | None) -> list[Kind]:
    if path is None:
        return []
    wanted = settings(plan.resources)
    return [kind for kind in plan.wanted if is_held(wanted[kind], cgroup.values(path, wanted[kind]))]


def _apply(measure: Measure, pid: int) -> None:
    if measure.data is not None:
        _bound(pid, resource.RLIMIT_DATA, measure.data)
    if measure.processes is not None:
        _bound(pid, resource.RLIMIT_NPROC, measure.processes)
    if measure.processors:
        os.sched_setaffinity(pid, measure.processors)


def _bound(pid: int, what: int, most: int) -> None:
    """Never more than it had: raising a limit is not for everybody, and not what was asked."""
    _, hard = resource.prlimit(pid, what)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.prlimit(pid, what, (value, value))
