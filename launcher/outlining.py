"""A persona's outline, drawn from its policy: for the first start, and after every change."""

from __future__ import annotations

import os
from collections.abc import Mapping

from egress import policysources, toolhosts, vault
from egress.policy import Persona, Policy
from egress.policybook import choose
from egress.policysources import Sources
from egress.problems import Problems, wrong
from egress.rules import Secret
from launcher.mounts import PlanError
from launcher.outline import Outline


def draw(sources: Sources, environ: Mapping[str, str]) -> tuple[Outline, bool]:
    """The outline of `sources.persona`, and whether it holds as long as the policy's files do."""
    policy = policysources.load(sources)
    if sources.persona is None:
        names = ", ".join(policy.personas)
        raise PlanError("no persona was given", f"add --persona NAME, one of: {names}", status=2)
    written = choose(policy, sources.persona)
    secrets = _secrets(written, environ)
    persona = _as_it_holds(policy, written, secrets)
    tools = policysources.tools_of(sources)
    outline = Outline(
        persona.env,
        persona.filesystem,
        persona.walls,
        tuple(map(str, persona.inspected)),
        (*_placeholders(secrets).items(), *_told(tools, sources).items()),
        tuple((_place(secret), there) for secret, there in secrets.items() if not secret.command),
        tuple(policy.warnings((persona.name,))),
    )
    return outline, not tools


def _secrets(persona: Persona, environ: Mapping[str, str]) -> dict[Secret, bool]:
    """Each with whether there is one; a required one that is missing is an error before anything starts."""
    problems, found = Problems(), {}
    for rule in persona.allow:
        secret = rule.requests.secret if rule.requests is not None else None
        if secret is not None and secret not in found:
            found[secret] = vault.is_there(secret, environ)
            if not found[secret] and not secret.optional:
                problems.absorb(wrong(rule.source, f"the secret for {rule.pattern}: {secret.source} is not there"))
    problems.settle()
    return found


def _as_it_holds(policy: Policy, persona: Persona, secrets: Mapping[Secret, bool]) -> Persona:
    absent = [secret for secret, there in secrets.items() if not there]
    return vault.without(policy, absent, (persona.name,)).personas[persona.name]


def _placeholders(secrets: Mapping[Secret, bool]) -> dict[str, str]:
    return {secret.env: secret.placeholder for secret, there in secrets.items() if there and secret.env}


def _place(secret: Secret) -> str:
    return os.path.expanduser(secret.file) if secret.file else f"${secret.env}"


def _told(tools: frozenset[str], sources: Sources) -> dict[str, str]:
    machine = policysources.machine(sources)
    return {name: value for tool in sorted(tools) for name, value in toolhosts.environment(tool, machine).items()}
