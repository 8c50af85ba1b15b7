"""A running sandbox, for programs that wait: `with Sandbox(...) as box`.

Its methods may be called from several threads at once.
"""

from __future__ import annotations

import io
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO

from launcher import sandboxrequest
from launcher.hoststart import Host
from launcher.sandboxexchange import Exchange, Line, close, result
from launcher.sandboxrequest import Request
from launcher.sandboxresults import Done, ExcludedCommand
from launcher.sandboxsettings import Path, Settings
from launcher.sandboxstreams import PIPE, Stream, streams


class Box:
    """Commands run in it one after another or all at once; what they leave in it is there for the next."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self.settings = settings
        self._host = host
        self.session = host.ready.session  # as `egress audit --session` knows it
        self.directory = host.ready.directory
        self.warnings = tuple(host.ready.warnings)

    @property
    def pid(self) -> int:
        """Of the process on the host that holds it."""
        return self._host.pid

    def env(self) -> dict[str, str]:
        """The variables inside. A secret is not among them: what stands there is its placeholder."""
        return {os.fsdecode(name): os.fsdecode(value) for name, value in self._host.ready.env.items()}

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002  # as subprocess has it
        check: bool = False,
    ) -> Done:
        """To its end. `input` goes in; without it there is nothing to read."""
        if sandboxrequest.is_outside(argv, self.settings):
            done = Outside(self.settings, argv, cwd, env, input is not None).gather(input, timeout)
        else:
            done = _gather(self._exchange(self._request(argv, cwd, env, timeout), input))
        return done.check() if check else done

    def popen(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stream = PIPE,
        stdout: Stream = PIPE,
        stderr: Stream = PIPE,
    ) -> Process:
        """Started. Whoever holds it waits for it, or leaves its `with`, which ends it."""
        if sandboxrequest.is_outside(argv, self.settings):
            raise ExcludedCommand(f"{argv[0]!r} is not for the sandbox", "use run, or subprocess", 126)
        return Process(self._host, self._request(argv, cwd, env, timeout), stdin, stdout, stderr)

    def close(self) -> None:
        """End it, and all that runs in it."""
        self._host.close()

    def __enter__(self) -> Box:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(
        self, argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, timeout: float | None
    ) -> Request:
        return sandboxrequest.request(argv, self.directory, cwd, env, timeout)

    def _exchange(self, request: Request, given: bytes | None) -> Exchange:
        return Exchange(self._host, request, given, self.settings.output_limit)


class Process:
    """A command that runs. `pid` is its number inside."""

    def __init__(self, host: Host, request: Request, stdin: Stream, stdout: Stream, stderr: Stream) -> None:
        made = streams(stdin, stdout, stderr)
        try:
            self._line = Line(host, request, made.theirs)
            try:
                while self._line.pid is None and not self._line.hear():
                    pass
            except BaseException:
                self._line.close()
                raise
        except BaseException:
            close(*made.ours)
            raise
        finally:
            close(*made.made)
        self.argv, self.pid = request.argv, self._line.pid or 0
        self.stdin: IO[bytes] | None = _file(made.ours[0], "wb")
        self.stdout: IO[bytes] | None = _file(made.ours[1], "rb")
        self.stderr: IO[bytes] | None = _file(made.ours[2], "rb")
        self._done: Done | None = None

    def wait(self) -> Done:
        """For its end. What it wrote is in its streams, to be read by whoever has them."""
        if self._done is None:
            while self._line.end is None:
                self._line.hear()
            self._done = result(self.argv, self._line.end, b"", b"")
        return self._done

    def send_signal(self, number: int) -> None:
        """To its process group."""
        self._line.signal(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End it, if it has not, and close what is open of its streams."""
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                with suppress(OSError):  # what is still to be written has nobody to read it
                    file.close()
        self._line.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _gather(exchange: Exchange) -> Done:
    """Both ways at once, until the line says that it is over."""
    try:
        with selectors.DefaultSelector() as ready:
            assert exchange.line is not None  # noqa: S101  # it was asked for
            ready.register(exchange.line.socket, selectors.EVENT_READ)
            for reader in exchange.readers:
                ready.register(reader, selectors.EVENT_READ)
            if exchange.input >= 0:
                ready.register(exchange.input, selectors.EVENT_WRITE)
            while not _moved(exchange, ready):
                pass
        return exchange.done()
    finally:
        exchange.close()


def _moved(exchange: Exchange, ready: selectors.BaseSelector) -> bool:
    is_over = False
    for key, _ in ready.select():
        if key.fd == exchange.input:
            if not exchange.write():
                ready.unregister(key.fd)
                exchange.stop_writing()
        elif key.fd in exchange.readers:
            if not exchange.read(key.fd):
                ready.unregister(key.fd)
                exchange.stop_reading(key.fd)
        elif exchange.line is not None:
            is_over = exchange.line.hear()
    return is_over


def _file(descriptor: int, mode: str) -> IO[bytes] | None:
    if descriptor < 0:
        return None
    raw = io.FileIO(descriptor, mode)
    return io.BufferedWriter(raw) if mode == "wb" else io.BufferedReader(raw)


class Outside:
    """A command on the host, as anybody would start it; its result says so."""

    def __init__(
        self, settings: Settings, argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, has_input: bool
    ) -> None:
        where = os.path.join(os.path.abspath(settings.project), os.fspath(cwd) if cwd is not None else "")
        self._argv = tuple(argv)
        self._process = subprocess.Popen(
            argv,
            executable=sandboxrequest.find_outside(argv[0], settings),
            cwd=where,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def gather(self, given: bytes | None, timeout: float | None) -> Done:
        with self._process as process:
            timed_out = False
            try:
                out, err = process.communicate(given, timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
                self.kill()
                out, err = process.communicate()
            except BaseException:
                self.kill()
                raise
        warning = sandboxrequest.OUTSIDE.format(name=self._argv[0])
        return Done(self._argv, process.returncode, out, err, (), timed_out, sandboxed=False, warnings=(warning,))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
