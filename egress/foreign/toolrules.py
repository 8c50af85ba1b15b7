"""Permission rules of Claude Code, such as `Bash(git log*)`, which Wave writes as well.

They are carried as `tools`, word by word: the agent's own permission system goes by them. Some of them Claude
Code also hands to its sandbox, and these become walls here too:

    WebFetch(domain:x)  allow, deny    the host
    Read(path)          deny           hide, where it is a path
    Edit(path)          allow, deny    write, protect

Paths in them are gitignore's: `//x` is absolute, `/x` and `./x` are of the project, and a bare name stands for
every file of that name.
"""

from __future__ import annotations

import re

from egress.foreign import hosts, paths
from egress.foreign.settings import Setting, words
from egress.foreign.translation import Draft
from egress.policytree import Word

_RULE = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_DOMAIN = "domain:"


def allow(draft: Draft, setting: Setting) -> None:
    for word in words(draft, setting):
        draft.add("tools.allow", word)
        tool, what = _split(word)
        if tool == "WebFetch" and what.text.startswith(_DOMAIN):
            hosts.allow_one(draft, _domain(what))
        elif tool == "Edit" and not paths.is_pattern(paths.plain(_path(what).text)):
            paths.write(draft, _path(what))


def deny(draft: Draft, setting: Setting) -> None:
    for word in words(draft, setting):
        draft.add("tools.deny", word)
        tool, what = _split(word)
        if tool == "WebFetch" and what.text.startswith(_DOMAIN):
            hosts.deny_one(draft, _domain(what))
        elif tool == "Read" and what.text:
            _hide(draft, word, what)
        elif tool == "Edit" and what.text:
            paths.protect(draft, _path(what), _instead_of(word))


def _hide(draft: Draft, word: Word, what: Word) -> None:
    path = _path(what)
    paths.hide(draft, path, _instead_of(word))
    if "/" not in what.text and paths.plain(path.text) in draft.texts("filesystem.hide"):
        paths.regret(draft, word, "is hidden at the top of the project; files of this name further down can be read")


def _instead_of(rule: Word) -> paths.Objection:
    """The agent's own tools still go by the rule; programs that it starts do not."""

    def objection(draft: Draft, path: Word, reason: str) -> None:
        paths.regret(draft, rule, f"holds for the agent's own tools alone: {path.text[:80]!r} {reason}")

    return objection


def _split(word: Word) -> tuple[str, Word]:
    found = _RULE.fullmatch(word.text)
    return (found[1], Word(found[2], word.source)) if found else (word.text, Word("", word.source))


def _domain(what: Word) -> Word:
    return Word(what.text.removeprefix(_DOMAIN), what.source)


def _path(what: Word) -> Word:
    text = what.text
    if text.startswith("/") and not text.startswith("//"):
        text = text[1:]
    return Word(text, what.source)
