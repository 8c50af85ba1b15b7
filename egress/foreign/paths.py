"""Paths that other tools open and close, as a persona's `filesystem`.

There everything can be read and little written; here the home directory is empty, /tmp is private, the rest of
the machine is read-only, and the project is writable. So much of what they list holds anyway. What is carried:

    may not read   hide       a path; a pattern cannot be hidden
    may not write  protect    a path, or a pattern in the project
    may write      write      outside of the project
    may read       read       outside of the project
"""

from __future__ import annotations

from collections.abc import Callable

from egress.foreign.translation import Draft, Severity
from egress.policytree import Word

_HOMES = ("~", "/home", "/root", "/Users")
_SCRATCH = ("/tmp", "/var/tmp", "/private/tmp", "/run", "/var/run")  # noqa: S108
_GLOB = frozenset("*?[")
Objection = Callable[[Draft, Word, str], None]


def plain(text: str) -> str:
    """Without what changes nothing: `./` in front, slashes and `/**` behind; the project is `.`"""
    path = f"/{text.lstrip('/')}" if text.startswith("//") else text
    while path.endswith(("/", "/**")) and path.strip("/"):
        path = path.removesuffix("/**").rstrip("/") or "/"
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return path or "."


def is_pattern(path: str) -> bool:
    return not _GLOB.isdisjoint(path)


def is_inside(path: str) -> bool:
    """Whether it is of the project."""
    return path[:1] not in ("/", "~")


def refuse(draft: Draft, word: Word, reason: str) -> None:
    draft.say(Severity.ERROR, word.source, f"{word.text[:80]!r} {reason}")


def regret(draft: Draft, word: Word, reason: str) -> None:
    draft.say(Severity.WARNING, word.source, f"{word.text[:80]!r} {reason}")


def hide(draft: Draft, word: Word, object_to: Objection = refuse) -> None:
    path = plain(word.text)
    if path in _HOMES:
        regret(draft, word, "is hidden anyway, but for ~/.claude and git's configuration; hide those by name")
    elif path in _SCRATCH:
        draft.say(Severity.NOTE, word.source, f"{path} is the sandbox's own, and empty at first")
    elif path in ("/", "."):
        object_to(draft, word, "cannot be hidden: programs and the project are there; name what is in it")
    elif is_pattern(path):
        object_to(draft, word, "cannot be hidden: it is a pattern; name the files or their directory")
    else:
        draft.add("filesystem.hide", Word(path, word.source))


def protect(draft: Draft, word: Word, object_to: Objection = refuse) -> None:
    path = plain(word.text)
    if path.startswith("**/") and "/" not in path[3:]:
        path = path[3:]  # a name is looked for at every depth
    if path in ("/", ".", "*", "**"):
        object_to(draft, word, "cannot be read-only as a whole: the project is what the sandbox may write")
    elif "**" in path or "[" in path or (is_pattern(path) and not is_inside(path)):
        object_to(draft, word, "is a pattern that cannot be protected: * and ? are known, in the project alone")
    else:
        draft.add("filesystem.protect", Word(path, word.source))


def write(draft: Draft, word: Word) -> None:
    path = plain(word.text)
    if is_pattern(path):
        regret(draft, word, "was left out: a pattern cannot be made writable; name the directory")
    elif path in ("/", *_HOMES):
        refuse(draft, word, "is too wide to be writable; name the directories in it that are needed")
    elif path in _SCRATCH:
        draft.say(Severity.NOTE, word.source, f"{path} is the sandbox's own: what is written there ends with it")
    elif not is_inside(path):
        draft.add("filesystem.write", Word(path, word.source))


def read(draft: Draft, word: Word) -> None:
    path = plain(word.text)
    if is_pattern(path) or path in ("/", *_HOMES):
        regret(draft, word, "was left out: name the files and directories that are to be readable")
    elif not is_inside(path):
        draft.add("filesystem.read", Word(path, word.source))
    elif any(path == top or path.startswith(f"{top}/") for top in draft.texts("filesystem.hide")):
        regret(draft, word, "stays hidden, with the directory that it is in")


def socket(draft: Draft, word: Word) -> None:
    """An engine's socket is a way to be root on the host, so its name in another tool's file is not enough."""
    path = plain(word.text)
    if path.rpartition("/")[2] in ("docker.sock", "podman.sock", "containerd.sock", "crio.sock"):
        regret(draft, word, f"was left out: through it a program has the whole host; --socket {path} if that is meant")
    elif is_pattern(path):
        regret(draft, word, "was left out: a socket is let in by its path")
    else:
        draft.add("sandbox.sockets", Word(path, word.source))
