"""Several processes that serve the same sockets, and the parent that looks after them.

An event loop uses one core. So a gate can be several processes: the parent opens the listening sockets, forks the
workers before there is a loop or a thread to copy, and from then on only waits, for signals and for deaths.

The workers accept from the very same sockets, rather than from one each (SO_REUSEPORT). Whoever has time takes
the next connection, nobody's queue waits for a worker that is busy or dead, and no other program can join in on the
port. Measured with two workers, this carried 7 to 15 % more connections a second than a socket each.

    parent       SIGTERM, SIGINT    to all workers, which end what they carry; KILL for one that does not go
                 SIGHUP             to all workers
                 a worker died      said, and another is forked in its place; later each time, if it dies at once
                                    again, and in the end they are all stopped
                 a worker left      in good order, so somebody told it to: all others are told, too
                 it dies itself     the kernel tells every worker to stop (PR_SET_PDEATHSIG)
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

_ON_PARENT_DEATH = 1  # prctl
_HEARD = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
_TO_STOP = (signal.SIGTERM, signal.SIGINT)
_PATIENCE = 10.0  # with a worker that was told to stop
_AT_ONCE = 5.0  # seconds: a worker that lives longer died of something else
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
_MOST_DEATHS = 6  # at once, one after the other

Work = Callable[[int, bool, Callable[[], None]], int]
Report = Callable[[str], None]


class Started(NamedTuple):
    number: int
    since: float


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def hold_signals() -> None:
    """From here on signals wait: for the parent to look at them, and for a worker to be ready for them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)


def release_signals() -> None:
    """In a worker whose handlers are in place."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)


class Workers:
    """`work(number, again, ready)` is what each of them does; it calls `ready` when it serves, and gives its status.

    `on_death` is told the number of each that died, before another takes its place.
    """

    def __init__(self, count: int, work: Work, report: Report, on_death: Callable[[int], None]) -> None:
        self._count, self._work, self._report, self._on_death = count, work, report, on_death
        self._living: dict[int, Started] = {}
        self._due: dict[int, float] = {}  # when the next of a number is to be forked
        self._deaths = dict.fromkeys(range(count), 0)  # in a row, each at once
        self._stopped: float | None = None  # when they were told to
        self._status = 0

    def start(self) -> bool:
        """Fork them all; whether every one of them came to serve. Signals are held by now."""
        reading, writing = os.pipe()
        for number in range(self._count):
            self._fork(number, ready=writing)
        os.close(writing)
        with open(reading, "rb") as pipe:
            up = len(pipe.read(self._count)) == self._count  # it ends early with a worker that never wrote
        if not up:
            self._stop()
        return up

    def watch(self) -> int:
        """Until none is left; the exit status."""
        while self._living or self._due:
            heard = signal.sigtimedwait(_HEARD, self._pause())
            if heard is not None:
                self._hear(signal.Signals(heard.si_signo))
            self._do_what_is_due()
        return self._status

    def _hear(self, number: signal.Signals) -> None:
        if number in _TO_STOP:
            self._stop()
        elif number == signal.SIGHUP:
            self._tell(signal.SIGHUP)
        else:
            self._reap()

    def _pause(self) -> float:
        moments = [*self._due.values(), *([self._stopped + _PATIENCE] if self._stopped else [])]
        return max(0.0, min(moments, default=time.monotonic() + 3600) - time.monotonic())

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        for number in [number for number, due in self._due.items() if due <= now]:
            del self._due[number]
            self._fork(number, again=True)
        if self._stopped is not None and now >= self._stopped + _PATIENCE:
            self._tell(signal.SIGKILL)

    def _stop(self) -> None:
        self._due.clear()
        if self._stopped is None:
            self._stopped = time.monotonic()
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for pid in self._living:
            os.kill(pid, number)

    def _reap(self) -> None:
        for pid in list(self._living):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._bury(self._living.pop(pid), os.waitstatus_to_exitcode(status))

    def _bury(self, dead: Started, status: int) -> None:
        self._on_death(dead.number)
        if self._stopped is not None:
            self._status = self._status or (status if status >= 0 else 1)
        elif status == 0:
            self._stop()
        else:
            self._replace(dead, status)

    def _replace(self, dead: Started, status: int) -> None:
        now = time.monotonic()
        deaths = self._deaths[dead.number] = self._deaths[dead.number] + 1 if now - dead.since < _AT_ONCE else 1
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        if deaths >= _MOST_DEATHS:
            self._report(f"error: worker {dead.number} {how}, the {deaths}th time at once: the gate ends")
            self._report("hint: see what it says with --workers 1")
            self._status = 1
            self._stop()
            return
        self._report(f"error: worker {dead.number} {how}; another is being started")
        self._due[dead.number] = now + (deaths > 1) * min(_FIRST_DELAY * 2.0 ** (deaths - 2), _LONGEST_DELAY)

    def _fork(self, number: int, *, again: bool = False, ready: int | None = None) -> None:
        sys.stdout.flush()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._be_a_worker(number, again, ready, parent)
        self._living[pid] = Started(number, time.monotonic())

    def _be_a_worker(self, number: int, again: bool, ready: int | None, parent: int) -> None:
        status = 1
        try:
            ctypes.CDLL(None).prctl(_ON_PARENT_DEATH, signal.SIGTERM, 0, 0, 0)
            if os.getppid() == parent:  # or it was gone before that was said
                status = self._work(number, again, lambda: _say_ready(ready))
        except BaseException:  # a worker never returns into what its parent was doing
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)


def _say_ready(pipe: int | None) -> None:
    if pipe is not None:
        os.write(pipe, b".")
        os.close(pipe)
