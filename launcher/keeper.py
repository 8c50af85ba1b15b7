"""The process between the launcher and bwrap, on a terminal: it does for the sandbox what a shell does for a job.

    launcher │ keeper ── bwrap ── pid 1 ── command        right of the line: the session on our own terminal

The kernel stops no process group whose parents are all outside of its session. So for Ctrl-Z somebody in the
session must be bwrap's parent and not of its group: the keeper, the session's leader.

Everything that the terminal sends to a foreground job reaches bwrap too, which is of the same group as its
command. It would die of a Ctrl-C, and take with it a command that meant to handle it. So the keeper traces
bwrap (ptrace) and lets no signal through to it. Those that stop a job are reported, for the launcher to see
whether the command has stopped: it alone decides. Where tracing is not allowed, bwrap stops and dies as it
does everywhere. The first report says that it is traced, or cannot be: the command must not run before.

All signals are blocked here and taken one by one; SIGIO tells of orders, and of the end of their pipe, which
is the launcher's. Then the user's terminal is given back, if the launcher had it, and everything ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import termios
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, NoReturn

from launcher.process import Child, Run, Streams, become, close_all_but, tell_by_signal

_WORD = 4  # bytes of a report
_HELD = 0  # the first one, and no wait status
_LETTER = 5  # bytes of an order
_STOPPING = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGSTOP)
_SEIZE, _CONTINUE, _EXIT_KILL = 0x4206, 7, 0x100000  # of ptrace(2)


class Order(Enum):
    """How the job goes on: with the session's terminal, or without."""

    FOREGROUND = b"f"
    BACKGROUND = b"b"


class Stage(NamedTuple):
    """What the session is made of; `give_back` is for the end of the launcher, and needs `tty`.

    `may_ask`: a program that reads in the background is to be stopped, and so told of, not refused.
    """

    slave: int
    streams: Streams
    foreground: bool
    may_ask: bool
    tty: int
    give_back: Callable[[], None]


class Report(NamedTuple):
    """A wait status of bwrap: it was sent a signal that stops, or it ended."""

    status: int

    @property
    def stop(self) -> int | None:
        return os.WSTOPSIG(self.status) if os.WIFSTOPPED(self.status) else None


def start(run: Run, stage: Stage, keep: tuple[int, ...]) -> Child:
    """Start bwrap in a session on the stage's terminal; `keep` are the descriptors that it needs."""
    events, report = os.pipe()
    obey, orders = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(orders)  # or its end would never come
        _Keeper(stage, report, obey).live(run, keep)
    os.close(report)
    os.close(obey)
    return Child(pid, events, orders)


def order(child: Child, what: Order, group: int) -> None:
    """`group` is the command's own, or 0: it may have left bwrap's."""
    with suppress(BrokenPipeError):  # it is gone, and its report says how
        os.write(child.orders, what.value + group.to_bytes(_LETTER - 1, "big"))


def wait_until_held(child: Child) -> None:
    """From then on bwrap is safe from what the command may send to its own group."""
    os.read(child.events, _WORD)


def read_report(child: Child) -> Report | None:
    """The keeper's next word; None if it died without one."""
    data = os.read(child.events, _WORD)
    return Report(int.from_bytes(data, "big")) if len(data) == _WORD else None


class _Keeper:
    def __init__(self, stage: Stage, report: int, obey: int) -> None:
        self._stage, self._report, self._obey = stage, report, obey
        self._bwrap = 0
        self._job = 0  # the group that has the terminal, or is to get it back
        self._tracer: _Tracer | None = None

    def live(self, run: Run, keep: tuple[int, ...]) -> NoReturn:
        try:
            os.setsid()
            fcntl.ioctl(self._stage.slave, termios.TIOCSCTTY, 0)
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            tell_by_signal(self._obey)
            self._start(run, keep)
            close_all_but({self._report, self._obey, self._stage.slave, self._stage.tty})
            self._serve()
        finally:
            os._exit(1)

    def _start(self, run: Run, keep: tuple[int, ...]) -> None:
        running, started = os.pipe()
        self._bwrap = self._job = os.fork()
        if self._bwrap == 0:
            become(run, self._stage.streams, keep, self._take_place, until_exec=(started,))
        os.close(started)
        os.read(running, 1)  # it ends with exec: traced any earlier, a bwrap that is setuid would not be so
        self._tracer = _Tracer.of(self._bwrap)
        self._tell(_HELD)

    def _take_place(self) -> None:
        """In the child."""
        os.setpgid(0, 0)
        if self._stage.foreground:
            os.tcsetpgrp(self._stage.slave, os.getpid())
        if self._stage.may_ask:  # who started us may ignore it, as a shell does for its $(…)
            signal.signal(signal.SIGTTIN, signal.SIG_DFL)

    def _serve(self) -> NoReturn:
        while True:
            self._look_after()
            self._follow_orders()
            signal.sigwait({signal.SIGCHLD, signal.SIGIO})

    def _look_after(self) -> None:
        while self._bwrap and (waited := os.waitpid(self._bwrap, os.WNOHANG | os.WUNTRACED))[0]:
            stop = Report(waited[1]).stop
            if stop is None or stop in _STOPPING:
                self._tell(waited[1])
            if stop is None:
                self._step_back()
                return
            self._let_go_on()

    def _step_back(self) -> None:
        """It has ended. What it wrote is still to be shown, and the user's terminal to be given back."""
        self._bwrap = 0
        os.close(self._stage.slave)

    def _tell(self, status: int) -> None:
        with suppress(BrokenPipeError):  # the launcher is gone: the next order says so
            os.write(self._report, (status & 0xFFFF).to_bytes(_WORD, "big"))

    def _let_go_on(self) -> None:
        if self._tracer is not None:
            self._tracer.go_on()
        else:
            os.kill(self._bwrap, signal.SIGCONT)

    def _follow_orders(self) -> None:
        with suppress(BlockingIOError):
            while given := os.read(self._obey, _LETTER):
                self._arrange(Order(given[:1]), int.from_bytes(given[1:], "big"))
            self._end()

    def _arrange(self, given: Order, group: int) -> None:
        """Who has the terminal; then let them go on, and tell none of them twice: vim garbles its screen at that."""
        if not self._bwrap:
            return
        with suppress(OSError):  # it was hung up, or that group is no more
            self._pass_on(given)
        for one in {self._job, group or self._bwrap}:
            with suppress(ProcessLookupError):
                os.killpg(one, signal.SIGCONT)

    def _pass_on(self, given: Order) -> None:
        slave, mine = self._stage.slave, os.getpgrp()
        has_it = os.tcgetpgrp(slave)
        if given is Order.BACKGROUND and has_it != mine:
            self._job = has_it
            os.tcsetpgrp(slave, mine)
        elif given is Order.FOREGROUND and has_it == mine:
            os.tcsetpgrp(slave, self._job)

    def _end(self) -> NoReturn:
        """The launcher is gone."""
        self._stage.give_back()
        if self._bwrap:
            os.kill(self._bwrap, signal.SIGKILL)
        os._exit(1)


class _Tracer:
    """bwrap, held by ptrace: it goes on without the signal that it was to get."""

    def __init__(self, pid: int, ptrace: Callable[..., int]) -> None:
        self._pid, self._ptrace = pid, ptrace

    @classmethod
    def of(cls, pid: int) -> _Tracer | None:
        import ctypes  # some milliseconds, while bwrap works

        ptrace = ctypes.CDLL(None).ptrace
        ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        ptrace.restype = ctypes.c_long
        return cls(pid, ptrace) if ptrace(_SEIZE, pid, None, _EXIT_KILL) == 0 else None

    def go_on(self) -> None:
        self._ptrace(_CONTINUE, self._pid, None, None)
