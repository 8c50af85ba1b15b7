"""Whether a policy can be enforced at all: a rule that cannot be is not ignored, nothing starts."""

from __future__ import annotations

from egress import policysources
from egress.policy import Policy
from egress.policysources import Sources
from egress.problems import wrong


def load(sources: Sources) -> Policy:
    """The policy as its files have it now; `PolicyError` for one that is wrong, or more than we can do."""
    policy = policysources.load(sources)
    check(policy)
    return policy


def check(policy: Policy) -> None:
    for persona in policy.personas.values():
        if rule := persona.needs_inspection:
            raise wrong(
                rule.source,
                f"the rule for {rule.pattern} of persona {persona.name} needs a look into requests, which this version "
                "cannot take: leave out methods, paths, secret and inspect",
            )
