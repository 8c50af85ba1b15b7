"""Signals that are for the command, while there is none yet.

From before the first fork until somebody can hand them on they are held: the kernel keeps them, and no half
made sandbox is dropped. Only where we wait for others a signal ends the waiting, and then the launcher.
What was ignored when we were started stays ignored, as it would in the command.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from egress.record import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_HELD = (*FORWARDED, signal.SIGTSTP)
STARTED_WITH = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ()))  # what was blocked before we came


class Interrupted(Exception):
    """A signal came while the sandbox was being made."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


def hold() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who started us may ignore its children; we and bwrap wait for ours


def heed() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, STARTED_WITH)


def end_with(code: int) -> int:
    """For a person at a terminal: a shell gives up its loop for a job that SIGINT has killed, not for a number.

    Ctrl-C is for all of a job, also for the script or the make that we are a part of. While every key went to
    the sandbox the kernel told none of them, so we do; where the command was on the user's terminal, it has.
    """
    if code == 128 + signal.SIGINT and not is_ignored(signal.SIGINT):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        heed()
        os.kill(0 if _had_the_keys() else os.getpid(), signal.SIGINT)
    return code


_keys_were_the_users = False


def leave_keys_to_the_user() -> None:
    """For a command that is on the user's own terminal."""
    global _keys_were_the_users  # noqa: PLW0603  # one launcher, one terminal
    _keys_were_the_users = True


def _had_the_keys() -> bool:
    if _keys_were_the_users:
        return False
    try:
        return os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # no terminal, or not that of our session
        return False


def is_ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it a signal raises `Interrupted`, also one that was held."""
    before = {number: signal.signal(number, _interrupt) for number in FORWARDED if not is_ignored(number)}
    try:
        heed()
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise Interrupted(number)
