"""What git might be told by a configuration file: every value of a key, whatever its section.

This reads more than git would (conditional sections, a key in the wrong section), never less: what is
found here is protected, so that a line misread costs a file the sandbox cannot write, and a line missed
costs the host.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from launcher.mounts import is_within

_OFF = frozenset({"false", "no", "off", "0"})


def values(config: str, key: str) -> list[str]:
    """The values of a key in lower case; a key alone has the value ''."""
    lines = (_after_sections(line) for line in config.replace("\\\n", "").split("\n"))
    pairs = (line.partition("=") for line in lines)
    return [_plain(value) for name, _, value in pairs if _plain(name).lower() == key]


def is_on(config: str, key: str) -> bool:
    """Git takes `true`, `yes`, `on`, any number but 0, and the key alone."""
    return any(value.lower() not in _OFF for value in values(config, key))


def named(config: str, top: str, directory: str, home: str) -> Iterator[str]:
    """Hooks, seen from a working tree, and included files, seen from where the configuration is."""
    for path in values(config, "hookspath"):
        yield os.path.normpath(os.path.join(top, _expanded(path, home))) + "/"
    for path in values(config, "path"):
        yield os.path.normpath(os.path.join(directory, _expanded(path, home)))


def inside(path: str, top: str) -> bool:
    return is_within(path, top) and path.rstrip("/") != top


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~/") else path


def _after_sections(line: str) -> str:
    """What follows `[section "name"]` on its line: git reads on."""
    line = line.lstrip("\ufeff \t")
    while line.startswith("["):
        line = _after_section(line).lstrip()
    return line


def _after_section(line: str) -> str:
    is_quoted, characters = False, enumerate(line)
    for place, character in characters:
        if character == "\\":
            next(characters, None)
        elif character == '"':
            is_quoted = not is_quoted
        elif character == "]" and not is_quoted:
            return line[place + 1 :]
    return ""


def _plain(text: str) -> str:
    """Without quotes, escapes and what is commented."""
    result, is_quoted, characters = "", False, iter(text.strip())
    for character in characters:
        if character == "\\":
            result += next(characters, "")
        elif character == '"':
            is_quoted = not is_quoted
        elif character in "#;" and not is_quoted:
            break
        else:
            result += character
    return result.strip()
