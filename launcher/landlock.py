"""Landlock as values: the rights that its rules speak of, and what each version of it knows. Pure.

A ruleset names the rights that it handles. What it handles is forbidden, but for what a rule gives to a path and
to everything below it; nothing can be taken back further down. What a version does not know it cannot handle,
and so not forbid: `missing` says what that leaves open.

    1  files    2  files move between directories    3  truncate    4  TCP ports    5  ioctl of devices
    6  signals and abstract sockets stay within
"""

from __future__ import annotations

from enum import IntFlag

from egress.record import NamedTuple
from launcher.backends.model import Lack


class Right(IntFlag):
    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Right.EXECUTE | Right.READ_FILE | Right.READ_DIR
WRITE = (
    READ
    | (Right.WRITE_FILE | Right.TRUNCATE | Right.REMOVE_DIR | Right.REMOVE_FILE | Right.REFER)
    | (Right.MAKE_DIR | Right.MAKE_REG | Right.MAKE_SOCK | Right.MAKE_FIFO | Right.MAKE_SYM)
)
READING, WRITING = Right.READ_FILE, Right.WRITE_FILE | Right.TRUNCATE
DEVICE = READING | WRITING
TERMINAL = DEVICE | Right.IOCTL_DEV
OF_FILES = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV

BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
ABSTRACT_SOCKETS, SIGNALS = 1 << 0, 1 << 1
_ALL_OF_FIRST = (Right.MAKE_SYM << 1) - 1
_ADDED = ((2, Right.REFER), (3, Right.TRUNCATE), (5, Right.IOCTL_DEV))
_LEAVES_OPEN = ((3, Lack.TRUNCATE), (5, Lack.DEVICES), (6, Lack.SIGNALS))


class Handled(NamedTuple):
    """What a ruleset forbids unless a rule allows it; as `struct landlock_ruleset_attr` has it."""

    files: int
    network: int = 0
    scoped: int = 0

    def packed(self, version: int) -> bytes:
        """The kernel takes the structure as it was in its own version, or the rest must be zero."""
        words = (self.files, self.network, self.scoped)[: 1 + (version >= 4) + (version >= 6)]
        return b"".join(word.to_bytes(8, "little") for word in words)


class Rule(NamedTuple):
    path: str
    rights: int


def handled(version: int) -> Handled:
    """All that this version can forbid."""
    files = int(_ALL_OF_FIRST)
    for since, right in _ADDED:
        files |= right if version >= since else 0
    return Handled(
        files,
        BIND_TCP | CONNECT_TCP if version >= 4 else 0,
        ABSTRACT_SOCKETS | SIGNALS if version >= 6 else 0,
    )


def missing(version: int) -> tuple[Lack, ...]:
    return tuple(lack for since, lack in _LEAVES_OPEN if version < since)
