"""JSON text → the tree that YAML becomes as well, where each value knows its file and line. Pure.

Settings of other programs are written in JSON. Nearly all of it is YAML too, but not quite: tabs, `\\/` and
surrogate pairs part them, and what a YAML parser says of a missing comma helps nobody. So it has a reader of
its own, with the same promises: words stay as they were written, a key that stands twice is refused, nesting
is bounded. Comments and final commas are not JSON.
"""

from __future__ import annotations

import json
import re

from egress.model import Source
from egress.policytree import MAX_DEPTH, Items, Node, Pairs, Word
from egress.problems import PolicyError, wrong

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_PLAIN = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SHOWN = 40


def read_json(text: str, file: str) -> Node:
    reader = _Reader(text, file)
    root = reader.value(0)
    reader.end()
    return root


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._at = 0
        self._line = 1

    def value(self, depth: int) -> Node:
        source = self._here()
        if depth > MAX_DEPTH:
            raise wrong(source, f"nested deeper than {MAX_DEPTH} levels")
        if self._skip("{"):
            return Pairs(self._pairs(depth), source)
        if self._skip("["):
            return Items(self._items(depth), source)
        return self._word()

    def end(self) -> None:
        self._here()
        if self._at < len(self._text):
            raise self._unexpected("the end")

    def _pairs(self, depth: int) -> list[tuple[Word, Node]]:
        pairs: dict[str, tuple[Word, Node]] = {}
        if self._skip("}"):
            return []
        while True:
            key = self._key()
            if key.text in pairs:
                first = pairs[key.text][0].source.line
                raise wrong(key.source, f"key {key.text[:80]!r} stands twice, first on line {first}")
            self._need(":")
            pairs[key.text] = key, self.value(depth + 1)
            if self._skip("}"):
                return list(pairs.values())
            self._need(",")

    def _items(self, depth: int) -> list[Node]:
        items: list[Node] = []
        if self._skip("]"):
            return items
        while True:
            items.append(self.value(depth + 1))
            if self._skip("]"):
                return items
            self._need(",")

    def _key(self) -> Word:
        source = self._here()
        found = _STRING.match(self._text, self._at)
        if found is None:
            raise self._unexpected("a key in quotes")
        return Word(self._string(found), source)

    def _word(self) -> Word:
        source = self._here()
        if found := _STRING.match(self._text, self._at):
            return Word(self._string(found), source)
        if found := _PLAIN.match(self._text, self._at):
            self._at = found.end()
            return Word(found[0], source, plain=True)
        raise self._unexpected("a value")

    def _string(self, found: re.Match[str]) -> str:
        try:
            text: str = json.loads(found[0])
            text.encode()  # half of a surrogate pair is no text
        except ValueError:
            raise self._unexpected("a string") from None
        self._at = found.end()
        return text

    def _skip(self, sign: str) -> bool:
        self._here()
        if not self._text.startswith(sign, self._at):
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._unexpected(f"{sign!r}")

    def _here(self) -> Source:
        """The place of what comes next, past blanks."""
        found = _BLANK.match(self._text, self._at)
        if found is not None:
            self._line += found[0].count("\n")
            self._at = found.end()
        return Source(self._file, self._line)

    def _unexpected(self, expected: str) -> PolicyError:
        came = self._text[self._at : self._at + _SHOWN].split("\n", 1)[0]
        hint = "; comments are not JSON" if came.startswith(("//", "/*", "#")) else ""
        return wrong(Source(self._file, self._line), f"not JSON: expected {expected}, not {came!r}{hint}")
