"""The keys of a persona that speak of its room: `filesystem`, `tools`, `sandbox`, `env`. Pure.

    filesystem: {write: [~/.cache/go-build], read: [/opt/data], hide: [secrets], protect: [Makefile]}
    tools:      {allow: [Read, "Bash(git log*)"], deny: ["Write(*)"]}
    sandbox:    {backend: podman, image: "ubuntu:24.04", memory: 4G, pids: 256}

What is written is checked for its form only: whether a path, an image or a system call is there is found out
where the sandbox is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from egress.policyfields import Readers, read_fields, read_list, read_some, read_text, read_variable
from egress.policytree import Node, is_null
from egress.problems import near, wrong
from egress.surroundings import BACKENDS, FALLBACKS, Filesystem, Tools, Walls

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,255}")
_CALL = re.compile(r"[a-z_][a-z0-9_]{0,63}")
_SIZE = re.compile(r"[1-9][0-9]{0,14}[KMGT]?")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"(?=.*[1-9])[0-9]{1,8}(\.[0-9]{1,6})?")
_TOOL_LENGTH = 500


def read_environment(node: Node) -> tuple[str, ...]:
    names = [] if is_null(node) else read_list(node, "[GH_TOKEN]")
    return tuple(dict.fromkeys(map(read_variable, names)))


def read_filesystem(node: Node) -> Filesystem:
    return Filesystem() if is_null(node) else Filesystem(**read_fields(node, _FILESYSTEM, "`filesystem`"))


def read_tools(node: Node) -> Tools:
    return Tools() if is_null(node) else Tools(**read_fields(node, _TOOLS, "`tools`"))


def read_walls(node: Node) -> Walls:
    return Walls() if is_null(node) else Walls(**read_fields(node, _SANDBOX, "`sandbox`"))


def _each(node: Node, read: Callable[[Node], str], example: str) -> tuple[str, ...]:
    """A list without repetitions; nothing is an empty one."""
    items = [] if is_null(node) else read_list(node, example)
    return tuple(dict.fromkeys(map(read, items)))


def _path(node: Node) -> str:
    """Absolute, below ~, or below the project; what it means is the launcher's affair."""
    path = read_text(node, "a path")
    if not path or "\0" in path or ".." in path.split("/") or (path.startswith("~") and path[1:2] not in ("", "/")):
        raise wrong(node.source, f"{path[:80]!r} is not a path: absolute, below ~/ or below the project, without ..")
    return path


def _tool(node: Node) -> str:
    text = read_text(node, "a tool such as Read or Bash(git log*)")
    if not text.strip() or not text.isprintable() or len(text) > _TOOL_LENGTH:
        raise wrong(node.source, f"{text[:80]!r} is not a tool such as Read or Bash(git log*)")
    return text


def _choice(node: Node, known: tuple[str, ...]) -> str:
    text = read_text(node, f"one of {', '.join(known)}")
    if text not in known:
        raise wrong(node.source, f"{text[:80]!r} is not known{near(text, known)} (known: {', '.join(known)})")
    return text


def _formed(node: Node, form: re.Pattern[str], example: str) -> str:
    text = read_text(node, example)
    if not form.fullmatch(text):
        raise wrong(node.source, f"expected {example}, not {text[:80]!r}")
    return text


def _allowed_calls(node: Node) -> tuple[str, ...]:
    """Never empty: a program that may call nothing cannot even end."""
    return tuple(dict.fromkeys(map(_call, read_some(node, "[read, write, exit_group]"))))


_call = partial(_formed, form=_CALL, example="a system call such as ptrace")
_paths = partial(_each, read=_path, example="[~/.cache/go-build, /opt/data]")
_FILESYSTEM: Readers = dict.fromkeys(Filesystem._fields, _paths)
_TOOLS: Readers = dict.fromkeys(Tools._fields, partial(_each, read=_tool, example='[Read, "Bash(git log*)"]'))
_SANDBOX: Readers = {
    "backend": partial(_choice, known=BACKENDS),
    "fallback": partial(_choice, known=FALLBACKS),
    "image": partial(_formed, form=_IMAGE, example="an image such as ubuntu:24.04"),
    "sockets": _paths,
    "deny_calls": partial(_each, read=_call, example="[ptrace]"),
    "allow_calls": _allowed_calls,
    "memory": partial(_formed, form=_SIZE, example="a size such as 512M or 4G"),
    "cpus": partial(_formed, form=_NUMBER, example="a number such as 2 or 0.5"),
    "pids": partial(_formed, form=_COUNT, example="a number such as 256"),
    "timeout": partial(_formed, form=_NUMBER, example="a number of seconds such as 300"),
}
