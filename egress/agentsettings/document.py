"""A settings file's text and its values. What was not changed is not written anew, so a layout of its own stays.

The record of what is ours is for the next run and not for reading: it has one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from egress.agentsettings.merging import KEY

Tree = dict[str, Any]
_HERE = "\N{OBJECT REPLACEMENT CHARACTER}"
_INDENT = re.compile(r"^\{\s*?\n([ \t]+)\"")


class NotJson(ValueError):
    """With the line and column that cannot be read."""


def parse(text: str, file: str) -> Tree:
    """The object that a file has; one that is empty has an empty one."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise NotJson(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg[0].lower()}{error.msg[1:]}") from None
    except (ValueError, RecursionError) as error:
        raise NotJson(f"{file}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise NotJson(f"{file}:1:1: expected an object in braces, not {type(found).__name__}")
    return found


def render(settings: Tree, before: str = "") -> str:
    """As text, indented as the text before."""
    found = _INDENT.match(before)
    shown = {**settings, KEY: _HERE} if KEY in settings else settings
    text = json.dumps(shown, indent=found[1] if found else 2, ensure_ascii=False) + "\n"
    record = json.dumps(settings.get(KEY), ensure_ascii=False)
    text = text.replace(f'"{KEY}": "{_HERE}"', f'"{KEY}": {record}', 1)
    return text.replace("\n", "\r\n") if "\r\n" in before else text


def changed(settings: Tree, before: Tree) -> bool:
    """Told by the text: to Python 1 is true, and the order of keys nothing."""
    return json.dumps(settings) != json.dumps(before)


def _object(pairs: Sequence[tuple[str, Any]]) -> Tree:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return made


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")
