"""The gate's own files: its policy, and its audit log."""

from __future__ import annotations

import os
import tempfile

from egress import places, policysources
from egress.lint import lint
from egress.problems import PolicyError
from launcher.checks.model import Finding, fail, ok, warn

_LINT = "egress policy lint"


def policy() -> Finding:
    sources = policysources.locate()
    try:
        policysources.load(sources)
        book = policysources.read(sources)
    except PolicyError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return fail(f"{error.problems[0]}{more}", _LINT)
    count = f"{len(book.personas)} personas"
    warnings = lint(book._replace(tools=lambda _: ()))  # no tool is asked, which could leave something
    return warn(f"{count}; {len(warnings)} lines are worth a second look", _LINT) if warnings else ok(count)


def audit() -> Finding:
    """Without leaving a trace: what is not there yet must be possible to make where it will be."""
    log = places.audit_log(os.environ)
    directory = os.path.dirname(log)
    try:
        if os.path.lexists(log):
            os.close(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
        else:
            with tempfile.TemporaryFile(dir=_nearest(directory)) as file:
                file.write(b"{}\n")
    except OSError as error:
        cure = f"mkdir -p {directory} && chmod u+rwx {directory} # or choose another with --audit FILE"
        return fail(f"{log} cannot be written: {error.strerror}", cure)
    return ok(log)


def _nearest(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path
