"""Who asks. Identity is the socket that was asked on, or a password known to the gate: never a header.

A `Door` is a listener with what is known of everyone who comes through it: a persona, or that they must
say who they are. `Live` is the policy in force; a connection asks it anew for every decision, so an
edit holds from the next request on.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from egress.policy import Persona, Policy

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # nothing that is read as something else


class Door(NamedTuple):
    """A listener as the gate sees it. `peers`: the users of this machine that may use a Unix socket."""

    persona: str | None  # None: the visitor must name one by its password
    peers: frozenset[int] | None = None


class Live:
    """The policy in force, and how many good ones there have been."""

    def __init__(self, policy: Policy, generation: int = 1) -> None:
        self.policy = policy
        self.generation = generation

    def persona(self, name: str) -> Persona:
        """A persona that an edit removed is one that may nothing."""
        return self.policy.personas.get(name) or Persona(name)

    def replace(self, policy: Policy, generation: int | None = None) -> None:
        self.policy = policy
        self.generation = self.generation + 1 if generation is None else generation


def new_session_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(6))
