"""The bytes of one command, without a loop: what goes in, what came out, how it ended.

Whoever has the loop, `selectors` or asyncio, calls `write` and `read` when a pipe is ready, and `hear` when the
line is. When the command has ended, what is still in the pipes is taken out, and they are closed: a process
that it left behind may hold them open for as long as it likes, and nobody waits for it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from launcher import hostwords as words
from launcher.hoststart import Host, ended
from launcher.sandboxrequest import Request
from launcher.sandboxresults import Blocked, CommandNotStarted, Done, Program, SandboxError

_PIECE = 1 << 16
_LARGE = 1 << 20  # the most that a pipe holds without an administrator's leave
_WHAT = {
    "D": ("the directory {directory!r} cannot be used inside: {why}", "it must be there, and visible in the sandbox"),
    "X": ("{program!r} cannot be run inside: {why}", "it must be on the sandbox's PATH, or a path inside"),
    "N": ("there is no process for {program!r}: {why}", "end others first, or raise the sandbox's limits"),
    "W": ("a wall around {program!r} could not be built: {why}", "egress doctor"),
}


class Line:
    """What is said of one command, by whoever is told that there is something to hear."""

    def __init__(self, host: Host, request: Request, streams: tuple[int, int, int]) -> None:
        self._request = request
        self.socket = host.start(request.start, streams)
        self.pid: int | None = None
        self.end: words.Ended | None = None

    def hear(self) -> bool:
        """One packet; whether that was the last."""
        try:
            data = self.socket.recv(words.MOST_ANSWER)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            raise ended()
        match words.to_caller(data):
            case words.Started(pid):
                self.pid = pid
            case words.Refused(kind, error):
                raise self._not_started(kind, error)
            case words.Ended() as end:
                self.end = end
        return self.end is not None

    def signal(self, number: int) -> None:
        with suppress(OSError):  # it has ended
            self.socket.send(words.encode(words.Signal(number)))

    def close(self) -> None:
        """A command that has not ended is ended."""
        self.socket.close()

    def _not_started(self, kind: str, error: int) -> SandboxError:
        message, hint = _WHAT[kind]
        directory = os.fsdecode(self._request.start.directory)
        text = message.format(program=self._request.argv[0], directory=directory, why=_why(error))
        return CommandNotStarted(text, hint, 127 if error in (errno.ENOENT, errno.ENOTDIR) else 126)


class Exchange:
    """A command whose output is gathered."""

    def __init__(self, host: Host, request: Request, given: bytes | None, limit: int) -> None:
        self._argv, self._limit = request.argv, limit
        self._given = memoryview(given or b"")
        self.out, self.err = bytearray(), bytearray()
        self.truncated = False
        pipes = [pipe() for _ in range(3)]
        theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
        self.input, self.readers = pipes[0][1], {pipes[1][0]: self.out, pipes[2][0]: self.err}
        self.line: Line | None = None
        try:
            self.line = Line(host, request, theirs)
            self.line.socket.setblocking(False)
        except BaseException:
            self.close()
            raise
        finally:
            close(*theirs)
        for ours in (self.input, *self.readers):
            os.set_blocking(ours, False)
        if not self._given:
            self.stop_writing()

    def write(self) -> bool:
        """Some of the input; whether there is more."""
        try:
            self._given = self._given[os.write(self.input, self._given[:_PIECE]) :]
        except BlockingIOError:
            return True
        except OSError:  # it reads no more
            self._given = memoryview(b"")
        return bool(self._given)

    def stop_writing(self) -> None:
        close(self.input)
        self.input = -1

    def read(self, reader: int) -> bool:
        """Some of the output; whether there is more to come."""
        try:
            data = os.read(reader, _LARGE)
        except BlockingIOError:
            return True
        kept = self.readers[reader]
        self.truncated = self.truncated or len(kept) + len(data) > self._limit
        kept += data[: max(0, self._limit - len(kept))]
        return bool(data)

    def stop_reading(self, reader: int) -> None:
        close(reader)
        del self.readers[reader]

    def done(self) -> Done:
        """When the line has said all: what is left in the pipes, which is one look, and the result."""
        for reader in self.readers:
            self.read(reader)
        assert self.line is not None  # noqa: S101  # it has said so
        assert self.line.end is not None  # noqa: S101
        return result(self._argv, self.line.end, bytes(self.out), bytes(self.err), self.truncated)

    def close(self) -> None:
        close(self.input, *self.readers)
        self.input, self.readers = -1, {}
        if self.line is not None:
            self.line.close()


def result(argv: tuple[str, ...], end: words.Ended, out: bytes, err: bytes, truncated: bool = False) -> Done:
    blocked = tuple(Blocked(each.host, each.port, each.reason, _program(each.process)) for each in end.blocked)
    code = os.waitstatus_to_exitcode(end.status)
    return Done(argv, code, out, err, blocked, end.timed_out, truncated, warnings=tuple(end.warnings))


def _why(error: int) -> str:
    return os.strerror(error) if error else "it ended without a word"


def _program(found: words.Program | None) -> Program | None:
    return None if found is None else Program(found.pid, found.exe, found.command)


def pipe() -> tuple[int, int]:
    """A read and a write end, which no other program of the caller's inherits."""
    return os.pipe2(os.O_CLOEXEC)


def close(*descriptors: int) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
