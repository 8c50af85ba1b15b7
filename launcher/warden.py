"""A process on the host that looks after a sandbox's protected files until the end.

    while it runs    makes its mounts private (see `mountns`)
    at the end       removes the placeholders that are left, when launcher and sandbox are gone, however
                     they went

It is forked before the first placeholder is made and is told on a pipe which process the sandbox's first
one is; the end of the pipe is the end of the launcher. What ends jobs does not end it: it has a session of
its own and ignores the signals that are for everybody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from launcher.posts import Posts, sweep

_END_WAIT = 3.0  # for the sandbox's processes, when bwrap or the launcher is gone
_START = 0.1
_GRACE = 0.1  # the same, where it was killed before it could say which they are


class Warden:
    """The process, as the launcher sees it."""

    __slots__ = ("_line", "pid")

    def __init__(self, posts: Posts) -> None:
        read, self._line = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _detach({read, *posts})
                _stay(read, posts)
            finally:
                os._exit(0)
        os.close(read)

    def follow(self, sandbox: int) -> None:
        """Tell it the sandbox's first process."""
        with contextlib.suppress(BrokenPipeError):  # it was killed: then only the launcher is left
            os.write(self._line, b"%d" % sandbox)

    def dismiss(self) -> None:
        """Nothing is left to do, so whatever it is at need not be waited for."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._line)


def watch(pid: int) -> int:
    """A descriptor that is readable when the process has ended; -1 if it has already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def wait(process: int) -> None:
    if process >= 0:
        _is_readable(process, _END_WAIT)


def _is_readable(descriptor: int, within: float | None) -> bool:
    import select  # nobody waits before the command runs

    return bool(select.select([descriptor], [], [], within)[0])


def _detach(kept: set[int]) -> None:
    """Leave the launcher's terminal, descriptors and directory."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(fd)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("egress-warden")


def _stay(line: int, posts: Posts) -> None:
    told = os.read(line, 32)
    if told:
        sandbox = watch(int(told))
        _guard(line, int(told))
        wait(sandbox)
    else:  # the launcher went before the sandbox came, or could be told of
        time.sleep(_GRACE)
    sweep(posts)


def _guard(line: int, pid: int) -> None:
    """Until the line ends. The start belongs to the command: what is to be done here costs time to load."""
    if not _is_readable(line, _START):
        from launcher import mountns

        with contextlib.suppress(OSError):  # it is over already
            mountns.cut_off(pid)
        _is_readable(line, None)
