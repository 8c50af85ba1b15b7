"""Policies from text, without a file system."""

from __future__ import annotations

from textwrap import dedent

import pytest

from egress.policy import Persona, Policy
from egress.policyfile import Document, parse_document
from egress.policylayers import bind
from egress.problems import PolicyError
from egress.rules import Rule


def document(text: str, file: str = "f.yaml") -> Document:
    return parse_document(dedent(text), file)


def policy(*layers: str, allow: tuple[str, ...] = ()) -> Policy:
    names = [f"layer{number}.yaml" for number in range(len(layers))]
    return bind([document(text, name)] for text, name in zip(layers, names, strict=True)).policy(allow)


def one_rule(text: str, key: str = "allow") -> Rule:
    """The rule that a list with this one entry has."""
    profile = document(f"version: 1\npersonas:\n  p:\n    {key}:\n      - {text}").personas["p"]
    (rule,) = getattr(profile, key)
    assert isinstance(rule, Rule)
    return rule


def problems(text: str, file: str = "f.yaml") -> list[str]:
    with pytest.raises(PolicyError) as caught:
        document(text, file)
    return [str(problem) for problem in caught.value.problems]


def binding_problems(*layers: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        policy(*layers)
    return [str(problem) for problem in caught.value.problems]


def hosts(persona: Persona) -> list[str]:
    return [str(rule.pattern) for rule in persona.allow]
