"""Policy files of other tools: whose they are, and what they say in our language. Pure.

    recognise         a tree → the format it is in, or none
    runtime, claude   sandbox-runtime's settings and Claude Code's, which has them inside
    manifest          Wave's, with personas of its own
    worker, workflow  configurations of programs that start sandboxes
    callfilter        a seccomp profile of container engines
    render            the translation as a file of ours, with what could not be carried as comments

Each format is a table from setting to outcome. Nothing that a file says is dropped without a word: it is carried,
or it holds anyway, or there is a remark.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from egress.foreign.recognise import Format, recognise
from egress.policytree import Node, Pairs

if TYPE_CHECKING:
    from egress.foreign.translation import Translation

_MODULES = {
    Format.CALL_FILTER: "callfilter",
    Format.WORKER: "worker",
    Format.WORKFLOW: "workflow",
    Format.WAVE: "manifest",
    Format.CLAUDE: "claude",
    Format.RUNTIME: "runtime",
}
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def translate(root: Node, file: str, name: str | None = None) -> Translation | None:
    """The translation of a file that another tool's signs are in. A persona that has no name there gets `name`."""
    kind = recognise(root)
    if kind is None or not isinstance(root, Pairs):
        return None
    made: Translation = import_module(f"egress.foreign.{_MODULES[kind]}").translate(root, name or name_of(file))
    return made


def name_of(file: str) -> str:
    """What a persona is called whose file gives it no name: as the file, without what stands behind its last dot."""
    base = file.rpartition("/")[2].lstrip(".")
    stem = base.rpartition(".")[0] or base
    return _NO_NAME.sub("-", stem).strip("-_")[:64] or "imported"
