"""A translation as a policy file: YAML, and each remark as a comment where the setting would have stood.

Every word that could mean something to YAML is quoted. What is written here reads back as the very same personas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from egress.foreign.settings import under
from egress.foreign.translation import Remark, Translation
from egress.policytree import Items, Node, Pairs, Word

_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+-]*(?::[0-9]+)?|~/[A-Za-z0-9_./+-]+")
_NULLS = frozenset({"null", "Null", "NULL"})
_STEP = "  "

Line = tuple[int, str]  # where it came from, and what it says


def render(translations: Sequence[Translation]) -> str:
    """One file of them all; that no persona stands twice is for whoever asks."""
    lines = ["version: 1", ""]
    for made in translations:
        lines += [f"# of {made.tool}, from {_visible(made.root.source.file)}", *_comments(_remarks(made, ""), "")]
    return "\n".join([*lines, "", "personas:", *(line for made in translations for line in _personas(made)), ""])


def _personas(made: Translation) -> Iterator[str]:
    for key, node in _named(made):
        yield f"{_STEP}{_quoted(key.text)}:{'' if _children(node) else ' {}'}"
        waiting = _remarks(made, key.text)
        for place, line in _block(node, _STEP * 2):
            while waiting and waiting[0].source.line <= place:
                yield from _comments([waiting.pop(0)], line[: len(line) - len(line.lstrip())])
            yield line
        yield from _comments(waiting, _STEP * 2)


def _named(made: Translation) -> list[tuple[Word, Node]]:
    personas = under(made.root, "personas")
    return personas.pairs if isinstance(personas, Pairs) else []


def _remarks(made: Translation, persona: str) -> list[Remark]:
    return sorted(remark for remark in made.remarks if remark.persona == persona)


def _comments(remarks: Sequence[Remark], indent: str) -> list[str]:
    return [f"{indent}# {_visible(str(it.source))} {it.severity}: {_visible(it.message)}" for it in remarks]


def _children(node: Node) -> bool:
    return bool(node.pairs if isinstance(node, Pairs) else node.items if isinstance(node, Items) else True)


def _block(node: Node, indent: str) -> Iterator[Line]:
    for key, value in node.pairs if isinstance(node, Pairs) else ():
        if isinstance(value, Word):
            yield value.source.line, f"{indent}{_quoted(key.text)}: {_quoted(value.text)}"
            continue
        yield value.source.line, f"{indent}{_quoted(key.text)}:"
        for item in value.items if isinstance(value, Items) else ():
            yield item.source.line, f"{indent}{_STEP}- {_flow(item)}"
        if isinstance(value, Pairs):
            yield from _block(value, indent + _STEP)


def _flow(node: Node) -> str:
    if isinstance(node, Word):
        return _quoted(node.text)
    if isinstance(node, Items):
        return f"[{', '.join(map(_flow, node.items))}]"
    return "{" + ", ".join(f"{_quoted(key.text)}: {_flow(value)}" for key, value in node.pairs) + "}"


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text not in _NULLS:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}"


def _visible(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
