"""The process between the launcher and a command that runs on the host itself: nothing outlives the two.

    launcher ── minder ── command ── …        all of them in the user's own session, on the user's own terminal

Without namespaces the kernel ends nobody for us. So the minder is the one that orphans below it are given to, and
when the command is over, or the launcher is, it ends all that is left and removes what was made for the run.
The launcher takes orphans, too: if the minder is killed the command dies with it, and the launcher ends the
rest. What kills both at once leaves processes behind; there is no third.

It is in the process group of the launcher and of the command, so Ctrl-C and Ctrl-Z reach it as well: all signals are
blocked, and taken one by one. What it has to tell goes down a pipe as four bytes: first the command's number,
then wait statuses: it has stopped, or it has ended. The end of the other pipe is the launcher's end.

The command is held before exec, with its walls prepared but not yet up, until it is released: what can go wrong
is told before, and limits are put on it meanwhile. Its own pipe says `ready`, or what went wrong; exec closes it.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from typing import NamedTuple, NoReturn

from launcher.backends import descendants
from launcher.process import become, close_all_but, tell_by_signal

READY = b"ready\n"
_WORD = 4
_SIGNALS = {signal.SIGCHLD, signal.SIGIO}


class Errand(NamedTuple):
    """What is to be run. `prepare` comes before the release and gives what comes after it; both in the command."""

    command: tuple[str, ...]
    directory: str
    env: Mapping[str, str]
    prepare: Callable[[], Callable[[], None]]
    tidy: Callable[[], None]  # when all is over
    attend: Callable[[], None] | None = None  # meanwhile, in a thread of the minder
    keep: tuple[int, ...] = ()  # descriptors for that
    keep_inside: tuple[int, ...] = ()  # and for `prepare`, until exec


class Minded(NamedTuple):
    """The minder as the launcher knows it."""

    pid: int
    command: int
    events: int
    orders: int  # closed, it ends everything
    go: int  # written to, it lets the command run
    word: int  # what the command said before exec


def start(errand: Errand) -> Minded:
    events, report = os.pipe()
    obey, orders = os.pipe()
    held, go = os.pipe()
    word, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        for other in (events, orders, go, word):
            os.close(other)
        _Minder(errand, report, obey).live(held, tell)
    for other in (report, obey, held, tell):
        os.close(other)
    return Minded(pid, int.from_bytes(os.read(events, _WORD), "big"), events, orders, go, word)


def read_status(minded: Minded) -> int | None:
    """The next wait status of the command; None if the minder died without one."""
    data = os.read(minded.events, _WORD)
    return int.from_bytes(data, "big") if len(data) == _WORD else None


class _Minder:
    def __init__(self, errand: Errand, report: int, obey: int) -> None:
        self._errand, self._report, self._obey = errand, report, obey
        self._command = 0

    def live(self, held: int, tell: int) -> NoReturn:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            descendants.adopt_orphans()
            tell_by_signal(self._obey)
            minder = os.getpid()
            self._command = os.fork()
            if self._command == 0:
                _become(self._errand, minder, held, tell)
            close_all_but({0, 1, 2, self._report, self._obey, *self._errand.keep})
            self._tell(self._command)
            if self._errand.attend is not None:
                Thread(target=self._errand.attend, daemon=True).start()
            self._serve()
        finally:
            os._exit(1)

    def _serve(self) -> NoReturn:
        while True:
            self._look_after()
            if self._is_dismissed():
                self._end()
            signal.sigwait(_SIGNALS)

    def _look_after(self) -> None:
        """The command's stops and its end are told; adopted orphans are only buried."""
        with suppress(ChildProcessError):
            while (waited := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
                pid, status = waited
                if pid == self._command:
                    self._tell(status)
                    if not os.WIFSTOPPED(status):
                        self._end()

    def _is_dismissed(self) -> bool:
        with suppress(BlockingIOError):
            return not os.read(self._obey, 1)
        return False

    def _end(self) -> NoReturn:
        descendants.end_all()
        self._errand.tidy()
        os._exit(0)

    def _tell(self, word: int) -> None:
        with suppress(BrokenPipeError):  # the launcher is gone, and its end is what comes next
            os.write(self._report, word.to_bytes(_WORD, "big"))


def _become(errand: Errand, minder: int, held: int, tell: int) -> NoReturn:
    def run() -> NoReturn:
        try:
            os.chdir(errand.directory)
            raise_walls = errand.prepare()
            os.write(tell, READY)
            if os.read(held, 1):
                raise_walls()
                os.execvpe(errand.command[0], list(errand.command), dict(errand.env))  # noqa: S606
        except Exception as error:
            os.write(tell, _reason(error).encode(errors="replace"))
        os._exit(125)

    become(run, (0, 1, 2), (), lambda: descendants.die_with(minder), until_exec=(held, tell, *errand.keep_inside))


def _reason(error: Exception) -> str:
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    name = error.filename if isinstance(error, OSError) and error.filename else ""
    return f"{name}: {words}" if name else words


def hold_until_ready(minded: Minded) -> str:
    """Nothing, or what went wrong before the command could be held."""
    said = os.read(minded.word, 4096)
    return "" if said == READY else said.decode(errors="replace") or "it died without a word"


def rest_of_word(minded: Minded) -> str:
    """For the end: why there was no exec; nothing if there was."""
    fcntl.fcntl(minded.word, fcntl.F_SETFL, os.O_NONBLOCK)
    with suppress(BlockingIOError):
        return os.read(minded.word, 4096).decode(errors="replace")
    return ""
