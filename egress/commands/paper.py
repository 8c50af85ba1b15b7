"""What text is put on: a terminal has a width and colours, anything else has neither.

Whatever comes from a log is hostile until it went through `visible`.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TextIO


class Ink(StrEnum):
    """By their numbers in ECMA-48, select graphic rendition."""

    PLAIN = ""
    BOLD = "1"
    RED = "31"
    GREEN = "32"


class Paper(NamedTuple):
    width: int | None = None  # None: as wide as it takes
    colour: bool = False

    def paint(self, text: str, ink: Ink) -> str:
        return f"\x1b[{ink}m{text}\x1b[0m" if self.colour and ink else text

    def indented(self, text: str, by: int) -> list[str]:
        if self.width is None:
            return [" " * by + text]
        return textwrap.wrap(text, max(self.width, by + 20), initial_indent=" " * by, subsequent_indent=" " * by)


def paper_of(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paper:
    if not stream.isatty():
        return Paper()
    colour = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Paper(shutil.get_terminal_size().columns, colour)


def visible(text: str) -> str:
    """As ASCII on one line, with nothing in it that a terminal acts on."""
    return text if text.isascii() and text.isprintable() else text.encode("unicode_escape").decode("ascii")
