"""Starting bubblewrap: what a process is given before it becomes bwrap, and so the command after it.

    on a terminal        launcher ── keeper ── bwrap ── …      see `keeper`
    not on a terminal    launcher ── bwrap ── …                a session of its own, without a terminal

bwrap hands on nearly all that it was started with, so what Python and we have changed for ourselves is put
back first: the signals that Python ignores, those that we hold. Limits, priority and mask of files are not
touched before the fork. What the user had ignored (nohup, a background job) stays ignored.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from egress.record import TYPE_CHECKING, NamedTuple
from launcher.interrupts import STARTED_WITH

if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

Run: TypeAlias = "Callable[[], NoReturn]"  # execs bwrap
Streams = tuple[int, int, int]

_CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Child(NamedTuple):
    """bwrap, or the keeper in front of it; then `events` and `orders` lead to the keeper."""

    pid: int
    events: int = -1
    orders: int = -1


def start(run: Run, streams: Streams, keep: tuple[int, ...]) -> Child:
    """Start bwrap without a terminal; `keep` are the descriptors that it needs."""
    pid = os.fork()
    if pid == 0:
        become(run, streams, keep, os.setsid)
    return Child(pid)


def exit_code(status: int) -> int:
    """As a shell says it: the code, or 128 and the signal."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def on_terminal() -> bool:
    return any(map(os.isatty, (0, 1, 2)))


def fill_standard_streams() -> None:
    """Closed ones would be the next files that we open, and then the command's.

    What they get instead cannot be used for what they are for: the command has its EBADF all the same.
    """
    for number, way in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, way)  # the lowest free number is this one
    nowhere = open(os.devnull, "w", encoding="utf-8") if None in (sys.stdout, sys.stderr) else None  # noqa: SIM115
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere


def become(
    run: Run, streams: Streams, keep: tuple[int, ...], take_place: Callable[[], None], until_exec: tuple[int, ...] = ()
) -> NoReturn:
    """A child's last steps before exec: its place in a session, its three streams, nothing else open."""
    try:
        take_place()
        for changed in _CHANGED_BY_PYTHON:
            signal.signal(changed, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, STARTED_WITH)
        apart = [fcntl.fcntl(stream, fcntl.F_DUPFD, 3) for stream in streams]  # none may overwrite another
        for number, stream in enumerate(apart):
            os.dup2(stream, number)
        close_all_but({0, 1, 2, *until_exec, *keep})
        for descriptor in keep:
            os.set_inheritable(descriptor, True)
        run()
    finally:
        os._exit(125)


def close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):  # the listing's own, gone with it
                os.close(int(name))


def tell_by_signal(descriptor: int) -> None:
    """SIGIO whenever there is something to read, or the end."""
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
