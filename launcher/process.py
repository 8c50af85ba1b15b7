"""Starting bubblewrap, and knowing when and how it ended.

    on a terminal        launcher ── keeper ── bwrap ── …      the keeper is the session's leader, as a shell would be
    not on a terminal    launcher ── bwrap ── …                a session of its own, without a terminal

The keeper exists for Ctrl-Z. The kernel stops no process group whose parents are all outside of its
session, so something in the session must be bwrap's parent and not of its group. It does what a shell does
(put the child in the foreground, wait, report) and nothing else, on the host's side of the wall.

Nobody outlives the launcher: bwrap dies with its parent (`--die-with-parent`), and the keeper dies by
SIGIO, whose default is death, when the pipe that only the launcher holds is closed by whatever killed it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

_STOPPED, _ENDED = b"S", b"E"
_REPORT_SIZE = 5


class Report(NamedTuple):
    """What became of bwrap: stopped by a signal, or ended with a wait status."""

    stopped: bool
    status: int

    @property
    def code(self) -> int:
        return exit_code(self.status)


class Child(NamedTuple):
    """bwrap, or the keeper in front of it. `events` and `orders` lead to the keeper."""

    pid: int
    events: int = -1
    orders: int = -1
    lifeline: int = -1


def start(run: Callable[[], NoReturn], streams: tuple[int, int, int], keep: tuple[int, ...]) -> Child:
    """Start bwrap without a terminal; `run` execs it, `keep` are the descriptors that it needs."""
    pid = os.fork()
    if pid == 0:
        _become(run, streams, keep, os.setsid)
    return Child(pid)


def start_on_terminal(
    run: Callable[[], NoReturn], slave: int, streams: tuple[int, int, int], keep: tuple[int, ...]
) -> Child:
    """Start bwrap as the foreground job of the session on `slave`."""
    events, report = os.pipe()
    obey, orders = os.pipe()
    line, lifeline = os.pipe()
    pid = os.fork()
    if pid == 0:
        for mine in (events, orders, lifeline):
            os.close(mine)
        _keeper(run, slave, streams, keep, _Pipes(report, obey, line))
    for theirs in (report, obey, line):
        os.close(theirs)
    return Child(pid, events, orders, lifeline)


def resume(child: Child) -> None:
    os.write(child.orders, b"c")


def read_report(child: Child) -> Report | None:
    """The keeper's next word; None if it died without one."""
    data = os.read(child.events, _REPORT_SIZE)
    if len(data) < _REPORT_SIZE:
        return None
    return Report(data[:1] == _STOPPED, int.from_bytes(data[1:], "big", signed=True))


def exit_code(status: int) -> int:
    """As a shell says it: the code, or 128 and the signal."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


class _Pipes(NamedTuple):
    report: int
    obey: int
    line: int


def _keeper(
    run: Callable[[], NoReturn], slave: int, streams: tuple[int, int, int], keep: tuple[int, ...], pipes: _Pipes
) -> NoReturn:
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        _die_with(pipes.line)
        pid = os.fork()
        if pid == 0:
            _become(run, streams, keep, lambda: _take_foreground(slave))
        _let_go_of_everything_but(pipes)
        _watch(pid, pipes)
    finally:
        os._exit(1)


def _watch(pid: int, pipes: _Pipes) -> NoReturn:
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        stopped = os.WIFSTOPPED(status)
        os.write(pipes.report, (_STOPPED if stopped else _ENDED) + status.to_bytes(4, "big", signed=True))
        if not stopped:
            os._exit(0)
        if not os.read(pipes.obey, 1):
            os._exit(1)
        os.killpg(pid, signal.SIGCONT)


def _take_foreground(slave: int) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # asking for the foreground from the background would stop us
    os.tcsetpgrp(slave, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)


def _die_with(line: int) -> None:
    """SIGIO, and so death, as soon as the other end of the pipe is closed."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(line, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(line, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        if not os.read(line, 1):  # closed before we listened
            os._exit(1)


def _become(
    run: Callable[[], NoReturn], streams: tuple[int, int, int], keep: tuple[int, ...], take_place: Callable[[], None]
) -> NoReturn:
    """The child's last words before exec: its place in the session, its three streams, nothing else open."""
    try:
        take_place()
        for changed in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT):
            signal.signal(changed, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number, inheritable=True)
        _close_all_but({0, 1, 2, *keep})
        for descriptor in keep:
            os.set_inheritable(descriptor, True)
        run()
    finally:
        os._exit(125)


def _let_go_of_everything_but(pipes: _Pipes) -> None:
    _close_all_but(set(pipes))


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):  # the listing's own, gone with it
                os.close(int(name))
