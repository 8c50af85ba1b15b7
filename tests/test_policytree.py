from __future__ import annotations

import re

import pytest
from policykit import document, problems

from egress.model import Source
from egress.policytree import Items, Pairs, Word, read_tree


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "22:22",
        "1e3",
        "0x10",
        "010",
        "1_000",
        ".inf",
        "2026-01-01",
        "=",
        "<<",
        "12:30:45",
        "~a",
    ],
)
def test_every_scalar_is_the_text_that_was_written(text: str) -> None:
    assert read_tree(f"- {text}", "f") == Items([Word(text, Source("f", 1), plain=True)], Source("f", 1))


def test_a_tree_knows_the_line_of_everything() -> None:
    tree = read_tree("a: x\nb:\n  - y\n  - c: 'z'\n", "f.yaml")
    assert isinstance(tree, Pairs)
    (_, x), (_, listed) = tree.pairs
    assert x == Word("x", Source("f.yaml", 1), plain=True)
    assert isinstance(listed, Items)
    y, mapping = listed.items
    assert y.source.line == 3
    assert isinstance(mapping, Pairs)
    assert mapping.pairs[0][1] == Word("z", Source("f.yaml", 4))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "f.yaml:1: the file is empty; a policy begins with `version: 1`"),
        ("# only a comment\n", "f.yaml:1: the file is empty"),
        ("---\n", "f.yaml:1: the file is empty"),
        ("null", "f.yaml:1: the file is empty"),
        ("~", "f.yaml:1: the file is empty"),
        ("[]", "f.yaml:1: a policy is a mapping, not a list"),
        ("version", "f.yaml:1: a policy is a mapping, not 'version'"),
        ("{}", "f.yaml:1: no version; a policy begins with `version: 1`"),
        ("personas: {}", "f.yaml:1: no version"),
        ("version: 2", "f.yaml:1: version '2' is not known; expected `version: 1`"),
        ("version: 1.0", "f.yaml:1: version '1.0' is not known"),
        ("version: 01", "f.yaml:1: version '01' is not known"),
        ("version:", "f.yaml:1: expected `version: 1`, not nothing"),
        ("version: [1]", "f.yaml:1: expected `version: 1`, not a list"),
        ("version: 1\nversion: 1", "f.yaml:2: key 'version' stands twice, first on line 1"),
        ("version: 1\n---\nversion: 1", "f.yaml:2: a second document begins here"),
        ("version: !!int 1", "f.yaml:1: tag 'tag:yaml.org,2002:int': a policy has no tags"),
        ("version: 1\ngroups: !x {}", "f.yaml:2: tag '!x': a policy has no tags"),
        ("version: 1\ngroups:\n  a: !!python/object/apply:os.system [x]", "f.yaml:3: tag 'tag:yaml.org,2002:python/"),
        ("version: 1\n? [a, b]\n: c", "f.yaml:2: a key is a word, not a list"),
        ("version: 1\n? {a: b}\n: c", "f.yaml:2: a key is a word, not a mapping"),
        ("version: 1\ngroups:\n  a: [*.github.com]", 'f.yaml:3: not YAML: .*; write it in quotes: "\\*.github.com"'),
        ("version: 1\ngroups:\n  a:\n    - @b", 'f.yaml:4: not YAML: .*; write it in quotes: "@b"'),
        ("version: 1\ngroups:\n  a: [*b]", r"f.yaml:3: alias \*b names no finished anchor; a host goes in quotes"),
        ("version: 1\ngroups:\n  a: &a [*a]", r"f.yaml:3: alias \*a names no finished anchor"),
        ("version: 1\n\tgroups: {}", "f.yaml:2: not YAML: "),
        ("version: 1\ngroups: {", "f.yaml:[23]: not YAML: "),
        ("version: 1\ngroups: 'a", "f.yaml:[23]: not YAML: "),
        ("version: 1\nx: \x07", "f.yaml:2: not YAML: "),
        ("version: 1\nx: a\0b", "f.yaml:2: not YAML: "),
        ("version: 1\nx: \ud800", "f.yaml:[12]: not YAML: "),
        ("%YAML 3.0\n---\nversion: 1", "f.yaml:1: not YAML: "),
        ("version: 1\nx: " + "[" * 17, "f.yaml:2: nested deeper than 16 levels"),
        ("[" * 1_000_000, "f.yaml:1: nested deeper than 16 levels"),
        ("{" * 1_000_000, "f.yaml:1: nested deeper than 16 levels"),
        ("- " * 100_000, "f.yaml:1: nested deeper than 16 levels"),
        ("? " * 100_000, "f.yaml:1: nested deeper than 16 levels"),
    ],
    ids=lambda text: ascii(text[:40]),
)  # fmt: skip
def test_what_is_not_a_policy_is_told_with_its_line(text: str, told: str) -> None:
    (problem,) = problems(text)
    assert re.match(told.replace("[]", r"\[\]"), problem)


def test_an_alias_stands_for_what_it_names() -> None:
    text = """\
        version: 1
        groups: {a: &list [a.test, b.test], b: *list}
        """
    groups = document(text).groups
    assert groups["a"].entries == groups["b"].entries
    assert len(groups["b"].entries) == 2


def test_aliases_of_aliases_cannot_multiply_without_bound() -> None:
    lines = ["version: 1", "a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    (problem,) = problems("\n".join(lines))
    assert "aliases stand for more than 1000000 values; use groups" in problem


def test_merge_keys_are_not_part_of_the_language() -> None:
    (problem,) = problems(
        "version: 1\nx: &x {a: b}\npersonas:\n  p: {<<: *x}\n".replace("x: &x {a: b}\n", "groups: &x {}\n")
    )
    assert problem.startswith("f.yaml:4: unknown key '<<' in persona 'p'")
