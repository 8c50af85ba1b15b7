"""Where things of ours are on a user's machine."""

from __future__ import annotations

import os
from collections.abc import Mapping


def audit_log(environ: Mapping[str, str]) -> str:
    return os.path.join(_base(environ, "XDG_STATE_HOME", ".local/state"), "egress", "audit.jsonl")


def authority(environ: Mapping[str, str]) -> str:
    """The directory of what `egress ca` keeps."""
    return os.path.join(_base(environ, "XDG_STATE_HOME", ".local/state"), "egress", "authority")


def cache(environ: Mapping[str, str]) -> str:
    return os.path.join(_base(environ, "XDG_CACHE_HOME", ".cache"), "egress")


def _base(environ: Mapping[str, str], variable: str, default: str) -> str:
    """A relative path in one of these is no path at all, says their specification."""
    base = environ.get(variable, "")
    return base if os.path.isabs(base) else os.path.join(environ.get("HOME", "/"), default)
