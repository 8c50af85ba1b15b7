"""One more rule in the text of a policy file, and everything else as its author left it. Pure.

The parser's marks say where each node stands, so the rule is put in by place, not by writing the file anew:
comments, quotes and blank lines stay. A list in lines gets a line, a list in brackets a word before its
bracket; what is missing on the way down (`personas:`, the persona, `allow:`) is put in the same way.

YAML has more ways to write a thing than are looked at here. So the new text is read as the gate will read it,
and must say what the old one said and the one rule more, or there is no new text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from yaml import MappingNode, Node, SequenceNode

from egress.model import Source, Target
from egress.policyfile import Document, Profile, Ref, parse_document
from egress.problems import PolicyError
from egress.rules import NOWHERE, parse_rule

EMPTY = "version: 1\n"
_LINE_END = re.compile(r"(?=\r?\n)|\Z")
_COMMENT = re.compile(r"\r?\n( *)#[^\r\n]*")
_PLAIN = re.compile(r"[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+:[0-9]+")  # all else is quoted: addresses, `null`
_STEP = 2

Branch = MappingNode | SequenceNode
Value = str | list[str] | Mapping[str, "Value"]


class CannotEdit(ValueError):
    """The file is written in a way that this cannot add to."""


class Edit(NamedTuple):
    start: int
    end: int
    text: str


def add_rule(text: str, file: str, persona: str, target: Target, note: str) -> str:
    """The text with a rule for `target` in the persona; with that persona, extending its own name, if it has none."""
    before = parse_document(text, file)
    edits = _Editor(text, _quoted(str(target)), note).edits(_root(text, file), persona)
    after = _applied(text, edits)
    try:
        if _bare(parse_document(after, file)) == _bare(_expected(before, persona, target)):
            return after
    except PolicyError:
        pass
    raise CannotEdit(f"{file} is written in a way that no rule can be put into by itself")


def _root(text: str, file: str) -> MappingNode:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, MappingNode):
        raise CannotEdit(f"{file} is not a mapping")
    return root


class _Editor:
    def __init__(self, text: str, entry: str, note: str) -> None:
        self._text, self._entry, self._note = text, entry, note
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def edits(self, root: MappingNode, persona: str) -> list[Edit]:
        """Go down as far as there is something, and put the rest in there."""
        name, listed = _name(persona), [self._entry]
        own: Value = {"extends": name, "allow": listed}
        levels: list[tuple[str, str, Value]] = [
            ("personas", "personas", {name: own}), (persona, name, own), ("allow", "allow", listed),
        ]  # fmt: skip
        branch: Branch = root
        for key, written, value in levels:
            found = _pair(branch, key)
            if found is None:
                return self._into_mapping(branch, {written: value})
            if not isinstance(found[1], MappingNode | SequenceNode):  # null, or it would not have been read
                return self._into_nothing(branch, *found, {"allow": listed} if value is own else value)
            branch = found[1]
        return self._into_list(branch)

    def _into_list(self, node: Branch) -> list[Edit]:
        if node.flow_style:
            return self._in_brackets(node, node.value, self._entry)
        column = node.start_mark.column
        return [self._below(self._last(node), self._block([self._entry], column), column)]

    def _into_mapping(self, node: Branch, value: Mapping[str, Value]) -> list[Edit]:
        if node.flow_style:
            return self._in_brackets(node, [each for _, each in node.value], _flow(value)[1:-1])
        column = node.value[0][0].start_mark.column
        return [self._below(self._last(node), self._block(value, column), column)]

    def _into_nothing(self, parent: Branch, key: Node, node: Node, value: Value) -> list[Edit]:
        start, end = node.start_mark.index, node.end_mark.index
        if start == end and not parent.flow_style:
            column = key.start_mark.column + _STEP
            return [self._below(start, self._block(value, column), column)]
        blank = " " if start == end else ""
        return [Edit(start, end, blank + _flow(value)), self._remark(end)]

    def _in_brackets(self, node: Node, children: Sequence[Node], word: str) -> list[Edit]:
        at = children[-1].end_mark.index if children else node.start_mark.index + 1
        return [Edit(at, at, f", {word}" if children else word), self._remark(at)]

    def _remark(self, index: int) -> Edit:
        """The note where a line ends that has no room for it beside its rule."""
        at = self._line_end(index)
        return Edit(at, at, f"  # {self._entry}: {self._note}")

    def _below(self, index: int, lines: Sequence[str], column: int) -> Edit:
        """Lines after that of `index`, and after the comments there that belong to it."""
        at = self._line_end(index)
        while (comment := _COMMENT.match(self._text, at)) and len(comment[1]) >= max(1, column):
            at = comment.end()
        return Edit(at, at, "".join(self._newline + line for line in lines))

    def _line_end(self, index: int) -> int:
        found = _LINE_END.search(self._text, index)
        return found.start() if found else len(self._text)

    def _last(self, node: Node) -> int:
        """Where the last word of a node ends; the node's own mark is where the next one begins."""
        while isinstance(node, MappingNode | SequenceNode) and node.value and not node.flow_style:
            node = node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1]
        end: int = node.end_mark.index
        return len(self._text[:end].rstrip()) if getattr(node, "style", None) in ("|", ">") else end

    def _block(self, value: Value, column: int) -> list[str]:
        indent = " " * column
        if isinstance(value, Mapping):
            return [line for key, each in value.items() for line in self._block_pair(key, each, column)]
        return [f"{indent}- {word}  # {self._note}" for word in value]

    def _block_pair(self, key: str, value: Value, column: int) -> list[str]:
        if isinstance(value, str):
            return [f"{' ' * column}{key}: {value}"]
        return [f"{' ' * column}{key}:", *self._block(value, column + _STEP)]


def _flow(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(value) + "]"


def _pair(node: Branch, key: str) -> tuple[Node, Node] | None:
    return next((pair for pair in node.value if pair[0].value == key), None)


def _applied(text: str, edits: Sequence[Edit]) -> str:
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text if text.endswith("\n") else text + "\n"


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else f'"{word}"'


def _name(persona: str) -> str:
    return f'"{persona}"' if persona.lower() == "null" else persona


def _expected(before: Document, persona: str, target: Target) -> Document:
    rule = parse_rule(str(target))
    known = before.personas.get(persona)
    profile = known or Profile(persona, NOWHERE, extends=Ref(persona, NOWHERE))
    return before._replace(personas={**before.personas, persona: profile._replace(allow=(*profile.allow, rule))})


def _bare(value: Any) -> Any:
    """A value without the places where its parts stand, which an edit moves."""
    if isinstance(value, Source):
        return None
    if isinstance(value, Mapping):
        return {key: _bare(each) for key, each in value.items()}
    return tuple(map(_bare, value)) if isinstance(value, tuple) else value
