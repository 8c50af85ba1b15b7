"""The path of a request: one spelling of it, or none; and the globs of a policy.

A rule judges a path that somebody else will read again: a server, or the proxy before it. Wherever two of
them could read it differently, as `/a/%2e%2e/b` or `/a;x/b` or `/a%2Fb`, an attacker picks the reading that the
rule does not see, so such a path has no canonical form and is refused. What is left has one: escapes of
characters that need none are undone and the others are in upper case (RFC 3986 section 6.2.2); the query is
cut off.

In a glob `*` stands for any part of a segment (alone, for any segment that is not empty) and a segment `**`
for any number of segments, also none. Runs between stars are looked for from the left, each where it is first
found, and none is ever moved again: the time is linear in the length of the path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_ESCAPE = re.compile(r"%(?:([0-9A-Fa-f]{2})|)")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_BEYOND_ASCII = re.compile(r"(?:%[89A-F][0-9A-F])+")
_READ_TWICE = frozenset("/\\.;%?#")

# What has two readings, once the escapes that mean nothing are undone; and what to call it.
_TROUBLES = {
    r"\A(?!/)": "does not begin with /",
    r"[^\x21-\x7e]|%[01][0-9A-F]|%7F": "has a blank, a control character or one that is not ASCII",
    r"\\|%5C": "has a backslash, which some read as /",
    r"%2F": "has an escaped / (%2F)",
    r";|%3B": "has a ; which some cut off",
    r"#|%23": "has a # which some cut off",
    r"%3F": "has an escaped ? (%3F)",
    r"%25(?=[0-9A-Fa-f]{2})": "is escaped twice (%25)",
    r"//": "has an empty segment (//)",
    r"/(?:%20)*\.(?:\.|%20)*(?=/|\Z)": "has a segment . or ..",
}
_TROUBLE = re.compile("|".join(f"({pattern})" for pattern in _TROUBLES))
_WORDS = tuple(_TROUBLES.values())

Piece = tuple[str, ...]  # a segment of a glob: the texts between its stars
Run = tuple[Piece, ...]  # the segments between two `**`


class Ambiguous(ValueError):
    """A path with more than one reading; the text says why."""


def canonical(raw: str) -> str:
    """The one spelling of a path, without its query; `Ambiguous` where it could be read in two ways."""
    path = raw.partition("?")[0]
    if "%" in path:
        path = _ESCAPE.sub(_settle, path)
    if found := _TROUBLE.search(path):
        raise Ambiguous(_WORDS[(found.lastindex or 1) - 1])
    if "%" in path:
        _check_beyond_ascii(path)
    return path


def matches(pattern: str, path: str) -> bool:
    """Whether a canonical path is one of those that a glob stands for."""
    first, *others = _runs(pattern)
    segments = path[1:].split("/")
    if not others:
        return len(first) == len(segments) and _stands_at(first, segments, 0)
    *middle, last = others
    end = len(segments) - len(last)
    if len(first) > end or not _stands_at(first, segments, 0) or not _stands_at(last, segments, end):
        return False
    at = len(first)
    for run in middle:
        at = _find(run, segments, at, end)
    return at <= end


def _settle(escape: re.Match[str]) -> str:
    digits = escape[1]
    if digits is None:
        raise Ambiguous("has a % without two hexadecimal digits")
    code = int(digits, 16)
    return chr(code) if code in _UNRESERVED else f"%{digits.upper()}"


def _check_beyond_ascii(path: str) -> None:
    """Not UTF-8 may be an overlong `/` (%C0%AF), and some servers fold look-alikes, such as %EF%BC%8F, to it."""
    for run in _BEYOND_ASCII.findall(path):
        try:
            text = bytes.fromhex(run.replace("%", "")).decode()
        except UnicodeDecodeError:
            raise Ambiguous("has escapes that are not UTF-8") from None
        from unicodedata import normalize

        if not _READ_TWICE.isdisjoint(normalize("NFKC", text)):
            raise Ambiguous("has a character that some read as / or .")


@cache
def _runs(pattern: str) -> tuple[Run, ...]:
    """The globs come from policy files, so there are only so many of them."""
    runs: list[list[Piece]] = [[]]
    for segment in pattern[1:].split("/"):
        if segment == "**":
            runs.append([])
        else:
            runs[-1].append(tuple(segment.split("*")))
    return tuple(map(tuple, runs))


def _find(run: Run, segments: Sequence[str], at: int, end: int) -> int:
    """Where the first place of a run between `at` and `end` is over; beyond `end` if it has none."""
    places = range(at, end - len(run) + 1)
    return next((place + len(run) for place in places if _stands_at(run, segments, place)), end + 1)


def _stands_at(run: Run, segments: Sequence[str], place: int) -> bool:
    return all(_fits(piece, segments[place + number]) for number, piece in enumerate(run))


def _fits(piece: Piece, segment: str) -> bool:
    first, last = piece[0], piece[-1]
    if len(piece) == 1:
        return segment == first
    at, end = len(first), len(segment) - len(last)
    if not segment or at > end or not segment.startswith(first) or not segment.endswith(last):
        return False
    for text in piece[1:-1]:
        found = segment.find(text, at, end)
        if found < 0:
            return False
        at = found + len(text)
    return True
