"""What becomes of another tool's file: a document in our language, and what must be said about it.

The document is a tree as the policy reader takes it, made of nodes that keep the file and line they came from.
So there is one reader, errors name the other tool's line, and so does `egress check` as the rule that spoke.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from egress.model import Source
from egress.policytree import Items, Node, Pairs, Word
from egress.problems import PolicyError, Problem


class Severity(StrEnum):
    NOTE = "note"  # told to who asks: `egress policy lint` and `import`
    WARNING = "warning"  # told at every start: what it says is not what holds here
    ERROR = "error"  # nothing starts


class Remark(NamedTuple):
    source: Source
    severity: Severity
    message: str
    persona: str = ""  # whose it is; of the whole file, if nobody's

    def __str__(self) -> str:
        return f"{self.source}: {self.message}"


class Translation(NamedTuple):
    tool: str  # whose file it was
    root: Pairs
    remarks: tuple[Remark, ...] = ()

    def settle(self) -> None:
        """Raises what stands in the way of using it."""
        errors = [Problem(it.source, it.message) for it in self.remarks if it.severity is Severity.ERROR]
        if errors:
            raise PolicyError(errors)


# In the order in which a persona is written.
_LISTS = (
    *("allow", "deny", "env"),
    *("filesystem.write", "filesystem.read", "filesystem.hide", "filesystem.protect"),
    *("tools.allow", "tools.deny"),
    *("sandbox.sockets", "sandbox.deny_calls", "sandbox.allow_calls"),
)
_WORDS = ("sandbox.backend", "sandbox.fallback", "sandbox.image", "sandbox.pids", "sandbox.timeout")
_ORDER = ("description", *_LISTS[:9], *_WORDS, *_LISTS[9:])


class Draft:
    """A persona in the making. Keys are paths in our language, such as `filesystem.hide`."""

    def __init__(self, name: str, source: Source, remarks: list[Remark]) -> None:
        self.name, self.source = name, source
        self.remarks = remarks
        self.lists: dict[str, list[Node]] = {}
        self._words: dict[str, Word] = {}
        self._said: set[str] = set()

    def add(self, key: str, node: Node) -> None:
        """Once: what stands in a list again says nothing more."""
        wanted = self.lists.setdefault(key, [])
        if not any(_same(node, other) for other in wanted):
            wanted.append(node)

    def put(self, key: str, text: str, source: Source) -> None:
        self._words[key] = Word(text, source)

    def say(self, severity: Severity, source: Source, message: str) -> None:
        self.remarks.append(Remark(source, severity, message, self.name))

    def say_once(self, severity: Severity, source: Source, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self.say(severity, source, message)

    def texts(self, key: str) -> list[str]:
        return [node.text for node in self.lists.get(key, ()) if isinstance(node, Word)]

    def inherit(self, other: Draft, *keys: str) -> None:
        for key in keys:
            for node in other.lists.get(key, ()):
                self.add(key, node)
        self._words = {**other._words, **self._words}

    def pair(self) -> tuple[Word, Node]:
        """The persona as it stands under `personas:`."""
        pairs: dict[str, tuple[Word, Node]] = {}
        for path in _ORDER:
            node = self._words.get(path) or self._list(path)
            if node is not None:
                _insert(pairs, path, node)
        return Word(self.name, self.source), Pairs(list(pairs.values()), self.source)

    def _list(self, path: str) -> Node | None:
        nodes = self.lists.get(path)
        return Items(nodes, nodes[0].source) if nodes else None


def document(drafts: list[Draft], source: Source) -> Pairs:
    personas = Pairs([draft.pair() for draft in drafts], source)
    return Pairs([(Word("version", source), Word("1", source)), (Word("personas", source), personas)], source)


def _insert(pairs: dict[str, tuple[Word, Node]], path: str, node: Node) -> None:
    outer, dot, inner = path.partition(".")
    if not dot:
        pairs[outer] = Word(outer, node.source), node
        return
    _, block = pairs.setdefault(outer, (Word(outer, node.source), Pairs([], node.source)))
    if isinstance(block, Pairs):
        block.pairs.append((Word(inner, node.source), node))


def _same(one: Node, other: Node) -> bool:
    return isinstance(one, Word) and isinstance(other, Word) and one.text == other.text
