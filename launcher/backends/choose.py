"""Which backend a run gets: the one that was asked for, or none that is weaker without leave. Pure.

    error    what was asked for, or no start
    warn     what was asked for, or the next weaker one that can be used here; each step is told

Whether a backend can be used is found out by trying it, which takes time: so it is asked of one after another,
and not of those that are not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from launcher.backends.model import Backend, Chosen, Fit, Unfit
from launcher.mounts import PlanError

Examine = Callable[[Backend], Fit | Unfit]

# Strongest first. A container is left for the host's own files only where nothing else was said.
WEAKER: Mapping[Backend, tuple[Backend, ...]] = {
    Backend.BWRAP: (Backend.LANDLOCK, Backend.NONE),
    Backend.LANDLOCK: (Backend.NONE,),
    Backend.PODMAN: (Backend.BWRAP, Backend.LANDLOCK, Backend.NONE),
    Backend.DOCKER: (Backend.BWRAP, Backend.LANDLOCK, Backend.NONE),
    Backend.NONE: (),
}


def choose(wanted: Backend, may_be_weaker: bool, examine: Examine) -> Chosen:
    passed_over: list[Unfit] = []
    for backend in (wanted, *(WEAKER[wanted] if may_be_weaker else ())):
        found = examine(backend)
        if isinstance(found, Fit):
            return Chosen(found, tuple(passed_over))
        passed_over.append(found)
    first = passed_over[0]
    raise PlanError(f"backend {first.backend} cannot be used: {first.why}", first.hint)


def steps(chosen: Chosen) -> list[str]:
    """What was passed over on the way, for the user to mend."""
    return [f"not {unfit.backend}: {unfit.why} (hint: {unfit.hint.splitlines()[0]})" for unfit in chosen.passed_over]
