"""What sandboxes can be made with on this machine, each tried, and what those that are weaker do not enforce."""

from __future__ import annotations

from launcher.backends.known import examine
from launcher.backends.model import Backend, Fit, Unfit
from launcher.checks.model import Finding, fail, ok, warn


def landlock() -> Finding:
    """For where there can be no namespaces; whoever has those does without."""
    found = examine(Backend.LANDLOCK)
    if isinstance(found, Unfit):
        return warn(f"{found.why}; sandboxes of bubblewrap do without", found.hint)
    return ok(f"can be used, {_without(found)}")


def backends() -> Finding:
    found = [examine(backend) for backend in Backend]
    usable = [f"{fit.backend} {_without(fit)}".strip() for fit in found if isinstance(fit, Fit)]
    others = [str(unfit.backend) for unfit in found if isinstance(unfit, Unfit)]
    if not any(isinstance(fit, Fit) and fit.backend is not Backend.NONE for fit in found):
        first = next(unfit for unfit in found if isinstance(unfit, Unfit))
        return fail("no backend that has walls can be used here", first.hint)
    return ok("; ".join([*usable, *([f"not here: {' '.join(others)}"] if others else [])]))


def _without(fit: Fit) -> str:
    return f"without {', '.join(fit.lacks)}" if fit.lacks else ""
