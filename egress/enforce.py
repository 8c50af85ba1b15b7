"""A policy as it can be enforced here and now: what its files say, with the secrets that it names at hand."""

from __future__ import annotations

from collections.abc import Container

from egress import policysources
from egress.policy import Policy
from egress.policysources import Sources
from egress.vault import Vault


def load(sources: Sources, vault: Vault, personas: Container[str] | None = None) -> Policy:
    """`PolicyError` for one that is wrong, or that needs a secret which is not there, for the `personas` in use."""
    used = (sources.persona or "",) if personas is None else personas
    return vault.settle(policysources.load(sources), used)
