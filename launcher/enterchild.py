"""One command in an existing sandbox: from the fork that is its process to the exec that is its program.

The process is in the sandbox already, with our memory, our descriptors and every capability there. Whoever is
inside can see its number, may send it signals and set its limits, but cannot look into it (`be_closed`). In
this order it becomes as bwrap would have made it:

    a session of its own         no terminal of ours
    three streams                and one descriptor to report on, which the exec closes; all others closed
                                 before any path is looked up: links in /proc lead to open descriptors
    limits                       those of the sandbox's first process
    no capabilities              and none to be had again
    its directory                with the rights of a program inside, so that it is where one could go
    the filter                   last, since it may forbid what comes before
    exec                         of a path inside; a word without a slash is looked for along the sandbox's PATH

What goes wrong is reported as a letter and an errno: `D` its directory, `X` its program, `W` a wall that could
not be built. A process that cannot report just ends; there is no way on past a wall that is missing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from typing import NamedTuple, NoReturn

from launcher import entercalls

REPORT = 3
FAILED = 125
_CLEAR = 16  # numbers below are not touched while streams are put in place
_HIGHEST = 1 << 16  # far more than the process that forks us ever has


class Walls(NamedTuple):
    """What holds for every command of a sandbox."""

    filters: entercalls.Filters
    limits: tuple[tuple[int, tuple[int, int]], ...]  # (resource, (soft, hard))


class Command(NamedTuple):
    directory: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]


def pack(command: Command) -> bytes:
    """No word has a NUL in it, so NULs are between them."""
    variables = [name + b"=" + value for name, value in command.env.items()]
    return b"\0".join([command.directory, b"%d" % len(command.argv), *command.argv, *variables])


def unpack(data: bytes) -> Command:
    directory, count, *words = data.split(b"\0")
    argv, variables = words[: int(count)], words[int(count) :]
    pairs = (word.partition(b"=") for word in variables)
    return Command(directory, argv, {name: value for name, _, value in pairs})


def paths(program: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    """Where a program may be, in order. An empty entry of PATH is no place: here it would be the project."""
    if b"/" in program:
        return [program]
    return [folder + b"/" + program for folder in env.get(b"PATH", b"").split(b":") if folder.startswith(b"/")]


def become(command: Command, places: list[bytes], walls: Walls, streams: list[int], report: int) -> NoReturn:
    """`places` are the command's paths, worked out before."""
    try:
        os.setsid()
        _take(streams, report)
        _enter(command, places, walls)
    finally:
        os._exit(FAILED)  # past every handler, `finally` and `atexit` of the process that forked us


def _enter(command: Command, places: list[bytes], walls: Walls) -> None:
    try:
        os.write(REPORT, b"%d\n" % os.getpid())
        _wall_in(walls)
        _go_to(command.directory)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        entercalls.install(walls.filters)
        _run(command, places)
    except OSError as error:
        _tell(b"W", error)


def _take(streams: list[int], report: int) -> None:
    """0 to 2 and the report, each from a copy that no other can overwrite; nothing else."""
    apart = [fcntl.fcntl(each, fcntl.F_DUPFD, _CLEAR) for each in (*streams, report)]
    for number, each in enumerate(apart):
        os.dup2(each, number, inheritable=number != REPORT)
    os.closerange(REPORT + 1, _HIGHEST)


def _wall_in(walls: Walls) -> None:
    for what, most in walls.limits:
        resource.setrlimit(what, most)
    entercalls.drop_capabilities()
    entercalls.gain_nothing()


def _go_to(directory: bytes) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        _tell(b"D", error)
        os._exit(FAILED)


def _run(command: Command, places: list[bytes]) -> NoReturn:
    """The first that can be run; else the first that is there and cannot."""
    worst: OSError | None = None
    for path in places:
        try:
            os.execve(path, command.argv, command.env)  # noqa: S606  # every wall stands
        except OSError as error:
            if worst is None and os.access(path, os.F_OK):
                worst = error
    _tell(b"X", worst or OSError(errno.ENOENT, ""))
    os._exit(FAILED)


def _tell(kind: bytes, error: OSError) -> None:
    os.write(REPORT, kind + b"%d" % (error.errno or 0))
