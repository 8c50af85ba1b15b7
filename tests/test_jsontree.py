"""JSON as it comes from other tools, read with its lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.jsontree import read_json
from egress.policytree import Items, Node, Pairs, Word
from egress.problems import PolicyError

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TREES = st.recursive(
    WORDS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def bare(node: Node) -> object:
    """What `json` itself makes of it."""
    if isinstance(node, Word):
        return json.loads(node.text) if node.plain else node.text
    if isinstance(node, Items):
        return [bare(item) for item in node.items]
    return {key.text: bare(value) for key, value in node.pairs}


@given(TREES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_it_reads_what_json_writes(value: object, indent: str | int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert bare(read_json(text, "f")) == value


def test_every_value_knows_its_line() -> None:
    root = read_json('{\n\t"a": [\n\t\t"x",\n\t\t1\n\t],\n\t"b": true\n}', "s.json")
    assert isinstance(root, Pairs)
    (a, items), (b, word) = root.pairs
    assert isinstance(items, Items)
    assert [a.source.line, *(item.source.line for item in items.items), b.source.line] == [2, 3, 4, 6]
    assert word == Word("true", b.source, plain=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,}', "f:1: not JSON: expected a key in quotes, not '}'"),
        ('{"a": 1\n// more\n}', "f:2: not JSON: expected ',', not '// more'; comments are not JSON"),
        ('{"a": 1, "a": 2}', "f:1: key 'a' stands twice, first on line 1"),
        ('{"a": yes}', "f:1: not JSON: expected a value, not 'yes}'"),
        ('{"a": "\\ud800"}', "f:1: not JSON: expected a string"),
        ('{"a": "\\x"}', "f:1: not JSON: expected a string"),
        ('{"a": 1} {', "f:1: not JSON: expected the end, not '{'"),
        ('{"a": 01}', "f:1: not JSON: expected ','"),
        ('{"a": "tab\there"}', "f:1: not JSON: expected a value"),
        ('{"a"', "f:1: not JSON: expected ':', not ''"),
        ('{"a":' * 40, "f:1: nested deeper than 16 levels"),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_json(text, "f")
    assert str(caught.value).startswith(said)
