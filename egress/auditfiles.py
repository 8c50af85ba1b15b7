"""Where the records are: a log, what rotation has made of it, and what compression has made of that.

Files are ordered by the first record in each and not by their names: `.1` and `.2` count backwards in time,
`-20261118` forwards, and one directory may hold both.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator

from egress.auditread import Lines, Records
from egress.auditunpack import Damaged, NoUnpacker, unpacked

_CHUNK = 128 * 1024
_MARK = r"[.-]\d[\d.T:_-]*"  # .1  -20261118  .2026-11-18T06:00  -20261118-1795500000
_MARK_WITHIN = r"(?:\.\d+|-\d{8}[\d.T:_-]*)"  # audit.1.jsonl and audit-20261118.jsonl, but audit-2.jsonl is another
_PACKED = r"(?:\.(?:gz|bz2|xz|zst))?"
_IN_DIRECTORY = re.compile(rf".+\.jsonl(?:{_MARK})?{_PACKED}")


class Unreadable(Exception):
    """A file that cannot be read, or not to its end; it says why, and `hint` what helps."""

    def __init__(self, path: str, why: str, hint: str) -> None:
        super().__init__(f"{path}: {why}")
        self.hint = hint


class Logs:
    """Some files, read oldest first, as often as is wanted. What cannot be read to its end is in `damaged`."""

    def __init__(self, paths: Iterable[str]) -> None:
        found = dict.fromkeys(name for path in paths for name in family(path))
        self.paths = sorted(_distinct(found), key=_first_moment)
        self.damaged: dict[str, Unreadable] = {}

    @property
    def can_be_read_twice(self) -> bool:
        return all(map(_is_regular, self.paths))

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, many at a time."""
        for path in self.paths:
            try:
                yield from _blocks(path)
            except Unreadable as damage:
                self.damaged[path] = damage


def family(path: str) -> list[str]:
    """A log with what was rotated away from it; of a directory, every log in it."""
    if os.path.isdir(path):
        return [os.path.join(path, name) for name in _names(path, _IN_DIRECTORY)]
    directory, name = os.path.split(path)
    stem, ending = os.path.splitext(name)
    behind, within = rf"{re.escape(name)}{_MARK}", rf"{re.escape(stem)}{_MARK_WITHIN}{re.escape(ending)}"
    names = _names(directory or ".", re.compile(rf"(?:{behind}|{within}){_PACKED}"))
    rotated = [os.path.join(directory, each) for each in names]
    return rotated if rotated and not os.path.lexists(path) else [*rotated, path]


def is_missing(path: str) -> bool:
    """There is no log of that name, nor anything rotated away from one."""
    return not os.path.lexists(path) and family(path) == [path]


def unreadable(path: str, error: OSError) -> Unreadable:
    return Unreadable(path, f"cannot be read: {error.strerror or error}", "name another with --audit FILE")


def _names(directory: str, pattern: re.Pattern[str]) -> list[str]:
    try:
        names = {name for name in os.listdir(directory) if pattern.fullmatch(name)}
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(directory, error) from None
    return sorted(name for name in names if _unpacked_name(name) not in names)


def _unpacked_name(name: str) -> str | None:
    """What a compressed file was called before: while it is being made, both are there."""
    before = re.sub(rf"{_PACKED}$", "", name)
    return before if before != name else None


def _distinct(paths: Iterable[str]) -> Iterator[str]:
    """Each file once, by whatever name."""
    seen = set()
    for path in paths:
        try:
            at = os.stat(path)
        except OSError as error:
            raise unreadable(path, error) from None
        if (at.st_dev, at.st_ino) not in seen:
            seen.add((at.st_dev, at.st_ino))
            yield path


def _first_moment(path: str) -> str:
    """When a file begins. A pipe can be read only once, so it comes last, unseen."""
    if not _is_regular(path):
        return "~"
    try:
        records = Records()
        entries = (entry for block in _blocks(path) for entry in records.entries(block))
        return next((entry.ts for entry in entries), "")
    except Unreadable:
        return ""  # it is met again, and told then


def _is_regular(path: str) -> bool:
    return stat.S_ISREG(os.stat(path).st_mode)


def _blocks(path: str) -> Iterator[bytes]:
    lines = Lines()
    for chunk in _chunks(path):
        if block := lines.feed(chunk):
            yield block
    if block := lines.end():
        yield block


def _chunks(path: str) -> Iterator[bytes]:
    """What a file holds, unpacked."""
    try:
        with open(path, "rb") as raw:
            stream = unpacked(raw)
            while chunk := stream.read(_CHUNK):
                yield chunk
    except Damaged as damage:
        hint = "what stands before the damage was read; look for a whole copy"
        raise Unreadable(path, f"is damaged: {damage}", hint) from None
    except NoUnpacker as missing:
        raise Unreadable(path, f"cannot be read without the package {missing}", f"unpack it first: {path}") from None
    except OSError as error:
        raise unreadable(path, error) from None
