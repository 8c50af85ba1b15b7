"""What of a run a person wants to look on at, read from the launcher's options as `egress proxy` reads its own."""

from __future__ import annotations

from egress.commands import supervision
from egress.commands.say import Failure
from egress.oversight import Wishes
from launcher.mounts import PlanError
from launcher.options import Options


def wishes(options: Options) -> Wishes:
    try:
        supervision.roots(list(options.upstream_ca))
        return supervision.wishes(options)
    except Failure as failure:
        raise PlanError(str(failure), failure.hint, status=2) from None
