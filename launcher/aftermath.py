"""What a run has left in the project that has power on the host, to be told at its end.

A repository made inside has hooks and a configuration of its own. Nothing can forbid one (git itself makes
them, for submodules and clones), but whoever runs git next should know that it is there. The search is
bounded and passes over packages of others: that nothing is told does not mean that there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from launcher.search import Patterns, search


def new_repositories(before: Iterable[str], project: str) -> list[str]:
    """Paths of `.git` entries below the project that were not there before."""
    return sorted(set(search(project, Patterns(())).repositories) - set(before))
