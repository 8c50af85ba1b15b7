"""Mappings, lists and words of a policy file → values, each by its reader.

Each key of the language has one reader that takes its node and returns the value or raises with the
node's line. `read_fields` runs a table of them over a mapping, so a mapping reports everything that is
wrong with it, and the tables are the language.

No list of what a rule restricts itself to may be empty: `methods: []` would read as no restriction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from egress.policytree import Items, Node, Pairs, Word, describe, is_null
from egress.problems import PolicyError, Problems, near, wrong

Readers = Mapping[str, Callable[[Node], Any]]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_fields(node: Node, readers: Readers, noun: str) -> dict[str, Any]:
    """The values of a mapping's known keys; all that is wrong with it is raised together."""
    if not isinstance(node, Pairs):
        raise wrong(node.source, f"{noun} is a mapping, not {describe(node)}")
    problems = Problems()
    values = {}
    for key, value in node.pairs:
        try:
            values[key.text] = _reader(key, readers, noun)(value)
        except PolicyError as error:
            problems.absorb(error)
    problems.settle()
    return values


def _reader(key: Word, readers: Readers, noun: str) -> Callable[[Node], Any]:
    if key.text not in readers:
        known = ", ".join(readers)
        suggestion = near(key.text, readers.keys())
        raise wrong(key.source, f"unknown key {key.text[:80]!r} in {noun}{suggestion} (known: {known})")
    return readers[key.text]


def read_text(node: Node, expected: str) -> str:
    if not isinstance(node, Word) or is_null(node):
        raise wrong(node.source, f"expected {expected}, not {describe(node)}")
    return node.text


def read_list(node: Node, expected: str) -> list[Node]:
    if not isinstance(node, Items):
        raise wrong(node.source, f"expected a list such as {expected}, not {describe(node)}")
    return node.items


def read_some(node: Node, expected: str) -> list[Node]:
    """A list with something in it, or the one thing by itself."""
    if isinstance(node, Word) and not is_null(node):
        return [node]
    items = read_list(node, expected)
    if not items:
        raise wrong(node.source, f"an empty list; write {expected}, or leave the key out")
    return items


def read_boolean(node: Node) -> bool:
    text = read_text(node, "true or false")
    if text not in ("true", "false"):
        raise wrong(node.source, f"expected true or false, not {text[:80]!r}")
    return text == "true"


def read_variable(node: Node) -> str:
    name = read_text(node, "the name of an environment variable")
    if not _VARIABLE.fullmatch(name):
        raise wrong(node.source, f"{name[:80]!r} is not the name of an environment variable, such as GH_TOKEN")
    return name
