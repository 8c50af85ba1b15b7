"""A table of settings, run over another tool's tree.

Each format is one table: the path of a setting → what becomes of it. A path that is not in the table, inside a
block that is, is told as a warning: it may be the one that closed something. Only `*` takes whatever else there
is, for the blocks in which the other tool keeps what is not about walls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from egress.foreign.translation import Draft, Severity
from egress.model import Source
from egress.policytree import Items, Node, Pairs, Word, describe, is_null


class Setting(NamedTuple):
    path: str
    source: Source
    value: Node

    @property
    def text(self) -> str:
        return self.value.text if isinstance(self.value, Word) else ""


Taker = Callable[[Draft, Setting], None]
Table = Mapping[str, Taker]


def take(draft: Draft, node: Node, table: Table, path: str = "") -> None:
    """All settings of a mapping, each by its row."""
    if not isinstance(node, Pairs):
        draft.say(Severity.ERROR, node.source, f"{path or 'the file'} is an object, not {describe(node)}")
        return
    for key, value in node.pairs:
        _take(draft, Setting(f"{path}.{key.text}" if path else key.text, key.source, value), table, path)


def _take(draft: Draft, setting: Setting, table: Table, block: str) -> None:
    rest = f"{block}.*" if block else "*"
    if setting.path in table:
        table[setting.path](draft, setting)
    elif any(path.startswith(f"{setting.path}.") for path in table):
        if not is_null(setting.value):
            take(draft, setting.value, table, setting.path)
    elif rest in table:
        table[rest](draft, setting)
    else:
        draft.say(
            Severity.WARNING, setting.source, f"{setting.path[:80]!r} is not known here, so nothing was taken from it"
        )


def words(draft: Draft, setting: Setting) -> list[Word]:
    """The words of a list; null is an empty one."""
    if is_null(setting.value):
        return []
    items = setting.value.items if isinstance(setting.value, Items) else None
    if items is None or not all(isinstance(item, Word) for item in items):
        draft.say(Severity.ERROR, setting.source, f"{setting.path} is a list of words, not {describe(setting.value)}")
        return []
    return [item for item in items if isinstance(item, Word)]


def under(node: Node | None, *names: str) -> Node | None:
    """What stands there, key by key."""
    for name in names:
        pairs = node.pairs if isinstance(node, Pairs) else []
        node = next((value for key, value in pairs if key.text == name), None)
    return node


def nothing(_draft: Draft, _setting: Setting) -> None:
    """It holds here anyway, or asks for nothing that walls are about."""


def listed(key: str) -> Taker:
    """Each word, as it stands."""

    def taker(draft: Draft, setting: Setting) -> None:
        for word in words(draft, setting):
            draft.add(key, word)

    return taker


def each(take_one: Callable[[Draft, Word], None]) -> Taker:
    def taker(draft: Draft, setting: Setting) -> None:
        for word in words(draft, setting):
            take_one(draft, word)

    return taker


def switch(true: tuple[Severity, str] | None = None, false: tuple[Severity, str] | None = None) -> Taker:
    """A boolean, and what is to be said of either value."""

    def taker(draft: Draft, setting: Setting) -> None:
        said = {"true": true, "false": false}
        if setting.text not in said:
            came = describe(setting.value)
            draft.say(Severity.ERROR, setting.source, f"{setting.path} is true or false, not {came}")
        elif told := said[setting.text]:
            draft.say(told[0], setting.source, f"{setting.path} is {setting.text}: {told[1]}")

    return taker


def told(severity: Severity, sentence: str) -> Taker:
    """Not carried, and said so, unless it is empty."""

    def taker(draft: Draft, setting: Setting) -> None:
        if not _is_empty(setting.value):
            draft.say(severity, setting.source, f"{setting.path}: {sentence}")

    return taker


def others(tool: str) -> Taker:
    """What is the other tool's own affair, said once."""

    def taker(draft: Draft, setting: Setting) -> None:
        message = f"what {tool} keeps for itself here, such as {setting.path[:40]!r}, is no part of a policy"
        if not any(remark.message.startswith(f"what {tool} keeps") for remark in draft.remarks):
            draft.say(Severity.NOTE, setting.source, message)

    return taker


def _is_empty(node: Node) -> bool:
    if isinstance(node, Word):
        return is_null(node) or (node.plain and node.text == "false")
    return not (node.items if isinstance(node, Items) else node.pairs)
