"""The real values of a policy's secrets: read on the host's side when a policy is taken up, and kept here.

A secret comes from a variable, a file or a command (`gh auth token`). What is missing stops the start, by
name and line; where the rule says `optional`, the secret is as if it had not been written, and a rule that
said nothing else about requests is then a plain one.

No value is ever part of an error, a record or a `repr`.
"""

from __future__ import annotations

import os
import subprocess
from collections import ChainMap
from collections.abc import Container, Iterable, Iterator, Mapping

from egress.credentials import Known
from egress.policy import Persona, Policy
from egress.problems import Problems, wrong
from egress.refusals import Reason, Refused
from egress.rules import Requests, Rule, Secret

_MOST = 16 * 1024
_PATIENCE = 15.0


class Missing(ValueError):
    """A secret has no value; the words say why."""


class Vault:
    """Values by secret. `environ` is the host's."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._values: dict[Secret, str] = {}

    def settle(self, policy: Policy, personas: Container[str]) -> Policy:
        """Read the secrets of some personas; the policy as it holds with those that there are."""
        problems = Problems()
        values: dict[Secret, str | None] = {}
        used = [name for name in policy.personas if name in personas]
        for rule, secret in _secrets(policy, used):
            if secret not in values:
                values[secret] = self._read(rule, secret, problems)
        problems.settle()
        self._values = {secret: value for secret, value in values.items() if value is not None}
        return without(policy, (secret for secret, value in values.items() if value is None), used)

    def contents(self) -> dict[Secret, str]:
        """For another process of the same gate."""
        return dict(self._values)

    def fill(self, contents: dict[Secret, str]) -> None:
        self._values = contents

    def known(self, secrets: Iterable[Secret]) -> tuple[Known, ...]:
        """Their values; Refused for one that was never read, whose rule cannot be enforced."""
        try:
            return tuple(Known(secret, self._values[secret]) for secret in secrets)
        except KeyError:
            raise Refused(Reason.CREDENTIAL_MISMATCH, "the secret of its rule was not read") from None

    def _read(self, rule: Rule, secret: Secret, problems: Problems) -> str | None:
        try:
            return read(secret, self._environ)
        except Missing as missing:
            if not secret.optional:
                problems.absorb(wrong(rule.source, f"the secret for {rule.pattern}: {missing}"))
            return None


def read(secret: Secret, environ: Mapping[str, str]) -> str:
    """A secret's value, or why there is none."""
    if secret.command:
        value = _of_command(secret.command, environ)
    elif secret.file is not None:
        value = _of_file(os.path.expanduser(secret.file))
    else:
        value = environ.get(secret.env or "", "")
    if len(value) >= _MOST:
        raise Missing(f"{secret.source} is longer than any credential")
    value = value.strip()
    if not value:
        raise Missing(f"{secret.source} is not set or empty")
    if not (value.isascii() and value.isprintable()):
        raise Missing(f"{secret.source} gives more than one line of printable characters")
    return value


def is_there(secret: Secret, environ: Mapping[str, str]) -> bool:
    """Whether a secret's source exists, without asking it: a command is taken at its word."""
    if secret.command:
        return True
    if secret.file is not None:
        return os.path.exists(os.path.expanduser(secret.file))
    return bool(environ.get(secret.env or "", "").strip())


def without(policy: Policy, absent: Iterable[Secret], personas: Iterable[str]) -> Policy:
    """The policy as if some secrets had not been written, for some personas; the others are never made."""
    gone = frozenset(absent)
    if not gone:
        return policy
    changed = {name: _persona(policy.personas[name], gone) for name in personas}
    return policy._replace(personas=ChainMap(changed, policy.personas))  # type: ignore[arg-type]  # only ever read


def _persona(persona: Persona, gone: frozenset[Secret]) -> Persona:
    if not any(_brings(rule, gone) for rule in persona.allow):
        return persona
    return persona.replace(_rule(rule, gone) for rule in persona.allow)


def _brings(rule: Rule, gone: frozenset[Secret]) -> bool:
    return rule.requests is not None and rule.requests.secret in gone


def _rule(rule: Rule, gone: frozenset[Secret]) -> Rule:
    if rule.requests is None or rule.requests.secret not in gone:
        return rule
    requests = rule.requests._replace(secret=None)
    return rule._replace(requests=None if requests == Requests() else requests)


def _secrets(policy: Policy, personas: Iterable[str]) -> Iterator[tuple[Rule, Secret]]:
    for name in personas:
        for rule in policy.personas[name].allow:
            if rule.requests is not None and rule.requests.secret is not None:
                yield rule, rule.requests.secret


def _of_file(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(_MOST)
    except OSError as error:
        raise Missing(f"{path}: {error.strerror}") from None


def _of_command(command: tuple[str, ...], environ: Mapping[str, str]) -> str:
    """Its standard output. It runs as the user would run it, but never in the project, where the sandbox writes."""
    try:
        done = subprocess.run(  # the words are the policy's
            command,
            cwd="/",
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        words = (
            f"does not end within {_PATIENCE:.0f} s" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        )
        raise Missing(f"the command {command[0]!r}: {words}") from None
    if done.returncode:
        raise Missing(f"the command {command[0]!r} ends with code {done.returncode}")
    return done.stdout[:_MOST].decode("ascii", "replace")
