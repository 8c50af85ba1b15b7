"""What the agent is told in CLAUDE.md: a part between two marks, each a line of its own. The rest is the person's.

It is for the model to know what it need not try; nothing is enforced by it. It depends on the persona alone, so it
is the same on every machine, whether a gate runs there or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from egress.agentsettings.reach import Reach, reach_of
from egress.policy import Persona

_BEGIN = re.compile(r"^<!-- egress: begin\b[^\n]*-->\r?\n", re.MULTILINE)
_END = re.compile(r"^<!-- egress: end -->[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


class BadMarks(ValueError):
    """Where our part begins and ends cannot be told."""


class _Pieces(NamedTuple):
    before: str
    ours: str
    after: str


def part_of(persona: Persona) -> str:
    return "\n".join(
        [
            f"<!-- egress: begin (persona {persona.name}; written by `egress settings`, which replaces it) -->",
            "## Network access\n",
            *_network(reach_of(persona)),
            "## Allowed tools\n",
            *_paragraph("Without asking:", map(_code, persona.tools.allow)),
            "## Denied tools\n",
            *_paragraph("Never:", map(_code, persona.tools.deny)),
            "<!-- egress: end -->\n",
        ]
    )


def put(text: str, part: str) -> str:
    """The text with our part in its place, or at the end."""
    pieces = _split(text)
    if pieces is not None:
        return pieces.before + part + pieces.after
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + part


def take_out(text: str) -> str:
    """The text without our part, and without the empty line that came with it."""
    pieces = _split(text)
    if pieces is None:
        return text
    before = pieces.before
    return (before[:-1] if before.endswith("\n\n") else before) + pieces.after


def _split(text: str) -> _Pieces | None:
    begins, ends = list(_BEGIN.finditer(text)), list(_END.finditer(text))
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        lines = ", ".join(str(text.count("\n", 0, mark.start()) + 1) for mark in (*begins, *ends))
        raise BadMarks(
            f"expected one `<!-- egress: begin` and then one `<!-- egress: end -->` (there are: line {lines})"
        )
    start, end = begins[0].start(), ends[0].end()
    return _Pieces(text[:start], text[start:end], text[end:])


def _network(reach: Reach) -> Iterator[str]:
    yield from _paragraph("Commands reach these hosts, and no others:", map(_code, reach.whole))
    if reach.parts:
        parts = (f"{_code(part.pattern)}: {part.terms}" for part in reach.parts)
        yield from _paragraph("These in part, and as far as the gate (`egress proxy`) is there to tell:", parts)
    if reach.denied:
        yield from _paragraph("Never:", map(_code, reach.denied))


def _paragraph(heading: str, items: Iterable[str]) -> list[str]:
    lines = [f"- {item}" for item in items] or ["- none"]
    return [heading, "", *lines, ""]


def _code(words: object) -> str:
    """A span that ends where it should, whatever is in it."""
    text = str(words)
    return f"`` {text} ``" if "`" in text else f"`{text}`"
