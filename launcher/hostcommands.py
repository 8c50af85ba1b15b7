"""The commands of one sandbox, in the event loop of its gate: each from its request to its exit status.

    asked       its descriptors go to the usher; the caller's line stays here
    begun       the usher has forked it
    started     its program runs: the report was closed by the exec, and says no error
    ended       the usher has waited for it; status, and what was refused to it, go to the caller

A command is told to end when its time is up or nobody holds the other end of its line: SIGTERM to its process
group, and after some grace SIGKILL to all of its family that is left. One that ends by itself leaves its family
alone, as in a shell.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from launcher import hostwords as words
from launcher.enter import Usher
from launcher.enterchild import Command
from launcher.hostdenials import Denials
from launcher.hostfamily import Family

MOST_COMMANDS = 128  # at a time
_GRACE = 2.0
_MOST_REPORT = 64


class Running:
    """A command, as far as it has come."""

    def __init__(self, line: socket.socket, report: int) -> None:
        self.line, self.report = line, report
        self.pid = 0  # on the host, once it has begun
        self.said = b""  # its report
        self.timed_out = self.is_ending = self.is_told = False
        self.family: Family | None = None
        self.timers: list[asyncio.TimerHandle] = []

    def tell(self, message: words.ToCaller) -> None:
        with suppress(OSError):  # nobody waits for it any more
            self.line.send(words.encode(message))


class Commands:
    def __init__(
        self,
        usher: Usher,
        denials: Denials,
        env: dict[bytes, bytes],
        limit: float | None,
        take_warnings: Callable[[], list[str]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._usher, self._denials, self._env, self._limit = usher, denials, env, limit
        self._take_warnings, self._loop = take_warnings, loop
        self._running: dict[int, Running] = {}
        self._numbers = itertools.count(1)
        self._on = {b"B": self._begun, b"E": self._ended, b"N": self._unborn}

    def start(self, descriptors: list[int]) -> None:
        """What a caller sends: the request, three streams and a line. They are ours from now on."""
        if len(descriptors) != words.DESCRIPTORS:
            _close(descriptors)
            return
        what, *streams, line_fd = descriptors
        line = socket.socket(fileno=line_fd)
        try:
            asked = words.to_host(os.pread(what, words.MOST_ASKED, 0))
            if isinstance(asked, words.Start):
                self._ask(asked, (streams[0], streams[1], streams[2]), line)
        except OSError as error:
            Running(line, -1).tell(words.Refused("N", error.errno or 0))
        finally:
            _close([what, *streams])

    def hear(self) -> bool:
        """What the usher says; whether it is still there."""
        kind, numbers = self._usher.hear()
        if kind:
            self._on[kind](*numbers)
        return bool(kind)

    def close(self) -> None:
        """The sandbox has ended; to a caller that waits the end of its line says so."""
        for running in self._running.values():
            self._forget(running)
        self._running.clear()

    def _ask(self, asked: words.Start, streams: tuple[int, int, int], line: socket.socket) -> None:
        if len(self._running) >= MOST_COMMANDS:
            raise OSError(errno.EAGAIN, "too many commands")
        number, (read, write) = next(self._numbers), os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        command = Command(asked.directory, asked.argv, {**self._env, **asked.env})
        try:
            self._usher.run(number, command, streams, write)
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(write)
        running = self._running[number] = Running(line, read)
        line.setblocking(False)
        self._loop.add_reader(line.fileno(), self._heard, number)
        self._loop.add_reader(read, self._reported, number)
        limits = [limit for limit in (asked.timeout, self._limit) if limit is not None]
        if limits:
            running.timers.append(self._loop.call_later(min(limits), self._time_out, number))

    def _begun(self, number: int, pid: int) -> None:
        running = self._running[number]
        running.pid = pid
        self._denials.follow(pid)
        if running.is_ending:
            self._end(number)

    def _unborn(self, number: int, error: int) -> None:
        running = self._running.pop(number)
        running.tell(words.Refused("N", error))
        self._forget(running)

    def _ended(self, number: int, status: int) -> None:
        self._reported(number)
        running = self._running.pop(number)
        blocked = self._denials.leave(running.pid)
        if running.family is not None:
            running.family.end()
            Family(running.pid, self._denials.inside).end()  # by its session: who came since
        if not running.is_told and not os.WIFSIGNALED(status):
            running.tell(_outcome(b""))
        if not self._denials.inside_is_ending():  # else the end of its line says more
            running.tell(words.Ended(status, running.timed_out, blocked, self._take_warnings()))
        self._forget(running)

    def _reported(self, number: int) -> None:
        """The exec closes the report, and so does a death."""
        running = self._running[number]
        with suppress(BlockingIOError):
            while data := os.read(running.report, _MOST_REPORT):
                running.said += data[:_MOST_REPORT]
            self._loop.remove_reader(running.report)
            if running.said and not running.is_told:
                running.is_told = True
                running.tell(_outcome(running.said))

    def _heard(self, number: int) -> None:
        """From the caller: a signal to be sent, or the end of its line."""
        running = self._running[number]
        try:
            data = running.line.recv(words.MOST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(running.line.fileno())
            self._end(number)
        elif isinstance(asked := words.to_host(data), words.Signal):
            self._usher.signal(number, asked.number)

    def _time_out(self, number: int) -> None:
        self._running[number].timed_out = True
        self._end(number)

    def _end(self, number: int) -> None:
        running = self._running[number]
        running.is_ending = True
        if running.pid and running.family is None:
            running.family = Family(running.pid, self._denials.inside)
            self._usher.signal(number, signal.SIGTERM)
            self._usher.signal(number, signal.SIGCONT)  # who is stopped hears of it, too
            running.timers.append(self._loop.call_later(_GRACE, self._kill, number))

    def _kill(self, number: int) -> None:
        running = self._running[number]
        Family(running.pid, self._denials.inside).end()
        self._usher.signal(number, signal.SIGKILL)

    def _forget(self, running: Running) -> None:
        for timer in running.timers:
            timer.cancel()
        for descriptor in (running.report, running.line.fileno()):
            self._loop.remove_reader(descriptor)
        os.close(running.report)
        running.line.close()


def _outcome(report: bytes) -> words.ToCaller:
    """Its number inside, and what went wrong, if anything did. Who says nothing did not even get so far."""
    pid, _, error = report.partition(b"\n")
    if not pid.isdigit():
        return words.Refused("W", 0)
    return words.Refused(chr(error[0]), int(error[1:])) if error else words.Started(int(pid))


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
