"""Whose rules a run obeys: from the options to the persona's outline."""

from __future__ import annotations

import os
import sys

from egress import policysources
from egress.policysources import Sources
from egress.record import TYPE_CHECKING
from launcher.mounts import PlanError
from launcher.options import Options
from launcher.outline import Outline, recall, remember

if TYPE_CHECKING:
    from egress.problems import PolicyError

_LACKING = "the secret for "  # as such a problem begins


def sources_of(options: Options) -> Sources:
    project = os.path.abspath(options.project)
    return _meant(policysources.locate(options.policy, options.allow, options.persona, writable=(project,)))


def outline_of(sources: Sources) -> Outline:
    known = recall(sources, os.environ)
    if known is not None:
        return known
    from egress.problems import PolicyError
    from launcher.outlining import draw

    try:
        outline, lasts = draw(sources, os.environ)
    except PolicyError as error:
        raise PlanError(str(error), _remedy(error, sources), status=2) from None
    if lasts:
        remember(sources, outline, os.environ)
    return outline


def _meant(sources: Sources) -> Sources:
    """Without --persona, the only one that the named files have, if it is one. It is looked for at every start."""
    if sources.persona is not None or not sources.files:
        return sources
    try:
        name = policysources.implied(sources)
    except ValueError:  # what is wrong with the files is told by who reads them all
        return sources
    if name is not None:
        files = " ".join(file.shown for file in sources.files)
        sys.stderr.write(f"egress: persona {name}, the only one in {files}\n")
    return sources._replace(persona=name)


def _remedy(error: PolicyError, sources: Sources) -> str:
    from egress.problems import UnknownPersona

    if isinstance(error, UnknownPersona):
        return "egress policy show"
    if any(problem.source.file == "--allow" for problem in error.problems):
        return "--allow example.com, or --allow example.com:8443"
    if any(problem.message.startswith(_LACKING) for problem in error.problems):
        return "set it on the host, where the sandbox does not see it; or write `optional: true` in the secret"
    return " ".join(("egress policy lint", *(file.shown for file in sources.files)))
