"""YAML text → a tree of words, lists and mappings that know their file and line.

YAML's own reading of values is a trap in a policy: `no` is False, `22:22` is 1342, `1e3` a float, a
second `deny:` silently replaces the first, nine aliases of nine aliases are a billion nodes. So the
tree is built from the parser's events, which are what a composed node graph is made from, and there:

- every scalar stays the text that was written; only its reader knows whether it is a number;
- a key that stands twice, a tag and a second document are refused;
- nesting is bounded while it is read, by a stack of our own, so depth costs no recursion;
- an alias shares its node, and what all aliases would come to if written out is counted and bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml

from egress.model import Source
from egress.problems import PolicyError, Problems, wrong

MAX_DEPTH = 16
MAX_EXPANDED = 1_000_000
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_UNQUOTED = re.compile(r"(?:^|[\s\[,])([*@][^\s,\]]*)")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Word(NamedTuple):
    text: str
    source: Source
    plain: bool = False  # not in quotes


class Items(NamedTuple):
    items: list[Node]
    source: Source


class Pairs(NamedTuple):
    pairs: list[tuple[Word, Node]]
    source: Source


Node = Word | Items | Pairs


def is_null(node: Node) -> bool:
    return isinstance(node, Word) and node.plain and node.text in _NULLS


def describe(node: Node) -> str:
    """What came, for the sentence that says what was expected."""
    if isinstance(node, Word):
        return "nothing" if is_null(node) else repr(node.text[:80])
    return "a list" if isinstance(node, Items) else "a mapping"


def read_tree(text: str, file: str) -> Node:
    """The one document in `text`."""
    builder = _Builder(file)
    try:
        for event in _events(text):
            builder.take(event)
    except (yaml.YAMLError, UnicodeError) as error:
        raise _syntax(error, text, file) from None
    builder.problems.settle()
    if builder.root is None or is_null(builder.root):
        raise wrong(Source(file, 1), "the file is empty; a policy begins with `version: 1`")
    return builder.root


def _events(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


class _Open(NamedTuple):
    """A list or mapping whose end has not come yet; a mapping's keys and values alternate."""

    kind: type[Items | Pairs]
    children: list[Node]
    source: Source
    anchor: str | None
    size: int  # of everything written out so far, before it


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.problems = Problems()
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._size = 0  # nodes so far, with aliases written out
        self._aliased = 0

    def take(self, event: Any) -> None:
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event, Source(self.file, event.start_mark.line + 1))

    def document(self, _event: Any, source: Source) -> None:
        if self.root is not None:
            raise wrong(source, "a second document begins here; a policy file is one document")

    def scalar(self, event: Any, source: Source) -> None:
        self._refuse_tag(event, source)
        self._place(Word(event.value, source, not event.style), event.anchor, self._size)

    def start(self, event: Any, source: Source) -> None:
        self._refuse_tag(event, source)
        if len(self._open) >= MAX_DEPTH:
            raise wrong(source, f"nested deeper than {MAX_DEPTH} levels")
        kind = Pairs if isinstance(event, yaml.MappingStartEvent) else Items
        self._open.append(_Open(kind, [], source, event.anchor, self._size))

    def end(self, _event: Any, _source: Source) -> None:
        kind, children, source, anchor, size = self._open.pop()
        node = Items(children, source) if kind is Items else Pairs(self._pairs(children), source)
        self._place(node, anchor, size)

    def alias(self, event: Any, source: Source) -> None:
        if event.anchor not in self._anchors:
            raise wrong(source, f"alias *{event.anchor} names no finished anchor; a host goes in quotes")
        node, size = self._anchors[event.anchor]
        self._aliased += size
        if self._aliased > MAX_EXPANDED:
            raise wrong(source, f"aliases stand for more than {MAX_EXPANDED} values; use groups")
        self._size += size
        self._add(node)

    def _place(self, node: Node, anchor: str | None, before: int) -> None:
        self._size += 1
        if anchor is not None:
            self._anchors[anchor] = node, self._size - before
        self._add(node)

    def _add(self, node: Node) -> None:
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node

    def _pairs(self, children: list[Node]) -> list[tuple[Word, Node]]:
        pairs: dict[str, tuple[Word, Node]] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, Word):
                self.problems.add(key.source, f"a key is a word, not {describe(key)}")
            elif key.text in pairs:
                first = pairs[key.text][0].source
                self.problems.add(key.source, f"key {key.text[:80]!r} stands twice, first on line {first.line}")
            else:
                pairs[key.text] = key, value
        return list(pairs.values())

    def _refuse_tag(self, event: Any, source: Source) -> None:
        if event.tag is not None:
            self.problems.add(source, f"tag {event.tag[:80]!r}: a policy has no tags; write the plain value")


_HANDLERS: dict[type, Callable[[_Builder, Any, Source], None]] = {
    yaml.DocumentStartEvent: _Builder.document,
    yaml.ScalarEvent: _Builder.scalar,
    yaml.SequenceStartEvent: _Builder.start,
    yaml.MappingStartEvent: _Builder.start,
    yaml.SequenceEndEvent: _Builder.end,
    yaml.MappingEndEvent: _Builder.end,
    yaml.AliasEvent: _Builder.alias,
}


def _syntax(error: Exception, text: str, file: str) -> PolicyError:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = error.problem_mark.line
        return wrong(Source(file, line + 1), f"not YAML: {error.problem}{_quoting(text, line)}")
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position)
        return wrong(Source(file, line + 1), f"not YAML: {error.reason}")
    return wrong(Source(file, 1), f"not YAML: {error}")


def _quoting(text: str, line: int) -> str:
    """The slip that everyone makes: `*.host` and `@group` begin with characters YAML keeps for itself."""
    lines = text.splitlines()
    found = _UNQUOTED.search(lines[line]) if line < len(lines) else None
    return f'; write it in quotes: "{found[1]}"' if found else ""
