"""A running sandbox, for asyncio: `async with Sandbox(...) as box`. Its commands are as those of `Box`.

A task that is cancelled while it waits for a command ends the command.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from launcher import sandboxrequest
from launcher.hoststart import Host, launch
from launcher.sandboxexchange import Exchange, Line, close, result
from launcher.sandboxrequest import Request
from launcher.sandboxresults import Done, ExcludedCommand
from launcher.sandboxsettings import Path, Settings
from launcher.sandboxstreams import PIPE, Stream, streams
from launcher.sandboxsync import Box, Outside


class AsyncBox:
    """Commands run in it one after another or all at once; what they leave in it is there for the next."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self._box = Box(settings, host)
        self._host = host
        self.settings, self.session, self.directory = settings, self._box.session, self._box.directory
        self.warnings = self._box.warnings

    @property
    def pid(self) -> int:
        """Of the process on the host that holds it."""
        return self._host.pid

    def env(self) -> dict[str, str]:
        """The variables inside. A secret is not among them: what stands there is its placeholder."""
        return self._box.env()

    async def run(
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
            done = await _gather_outside(Outside(self.settings, argv, cwd, env, input is not None), input, timeout)
        else:
            request = sandboxrequest.request(argv, self.directory, cwd, env, timeout)
            done = await _gather(Exchange(self._host, request, input, self.settings.output_limit))
        return done.check() if check else done

    async def popen(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stream = PIPE,
        stdout: Stream = PIPE,
        stderr: Stream = PIPE,
    ) -> AsyncProcess:
        """Started. Whoever holds it waits for it, or leaves its `async with`, which ends it."""
        if sandboxrequest.is_outside(argv, self.settings):
            raise ExcludedCommand(f"{argv[0]!r} is not for the sandbox", "use run, or subprocess", 126)
        request = sandboxrequest.request(argv, self.directory, cwd, env, timeout)
        return await start(self._host, request, stdin, stdout, stderr)

    async def close(self) -> None:
        """End it, and all that runs in it."""
        await asyncio.shield(asyncio.to_thread(self._host.close))

    async def __aenter__(self) -> AsyncBox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open_box(settings: Settings) -> AsyncBox:
    """Made in a thread, as it takes a moment. Who is cancelled meanwhile leaves nothing behind."""
    making = asyncio.ensure_future(asyncio.to_thread(launch, settings.words()))
    try:
        return AsyncBox(settings, await asyncio.shield(making))
    except asyncio.CancelledError:
        with suppress(Exception):  # then there is nothing to close
            await asyncio.to_thread((await making).close)
        raise


async def _gather(exchange: Exchange) -> Done:
    """Both ways at once, until the line says that it is over."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    assert exchange.line is not None  # noqa: S101  # it was asked for
    line = exchange.line.socket.fileno()
    used = [line, *exchange.readers]
    try:
        loop.add_reader(line, _hear, exchange.line, over)
        for reader in exchange.readers:
            loop.add_reader(reader, _read, exchange, reader, loop)
        if exchange.input >= 0:
            loop.add_writer(exchange.input, _write, exchange, loop)
        await over
        return exchange.done()
    finally:
        for descriptor in used:
            loop.remove_reader(descriptor)
        if exchange.input >= 0:
            loop.remove_writer(exchange.input)
        exchange.close()


async def _gather_outside(outside: Outside, given: bytes | None, timeout: float | None) -> Done:
    try:
        return await asyncio.to_thread(outside.gather, given, timeout)
    except asyncio.CancelledError:
        outside.kill()
        raise


def _hear(line: Line, over: asyncio.Future[None]) -> None:
    try:
        if line.hear() and not over.done():
            over.set_result(None)
    except Exception as error:
        if not over.done():
            over.set_exception(error)


def _read(exchange: Exchange, reader: int, loop: asyncio.AbstractEventLoop) -> None:
    if not exchange.read(reader):
        loop.remove_reader(reader)
        exchange.stop_reading(reader)


def _write(exchange: Exchange, loop: asyncio.AbstractEventLoop) -> None:
    if not exchange.write():
        loop.remove_writer(exchange.input)
        exchange.stop_writing()


class AsyncProcess:
    """A command that runs. `pid` is its number inside."""

    def __init__(self, argv: tuple[str, ...], line: Line, loop: asyncio.AbstractEventLoop) -> None:
        self.argv, self._line, self._loop = argv, line, loop
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self.started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[Done] = loop.create_future()
        self._pipes: list[asyncio.BaseTransport] = []
        line.socket.setblocking(False)
        loop.add_reader(line.socket.fileno(), self._hear)

    @property
    def pid(self) -> int:
        return self._line.pid or 0

    async def wait(self) -> Done:
        """For its end. What it wrote is in its streams, to be read by whoever has them."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """To its process group."""
        self._line.signal(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def close(self) -> None:
        """End it, if it has not, and close what is open of its streams."""
        self._deaf()
        for each in self._pipes:
            each.close()
        self._line.close()
        for future in (self.started, self._ended):
            future.cancel()

    async def connect(self, ours: tuple[int, int, int]) -> None:
        """Our ends of its pipes, as asyncio has them."""
        given, out, err = ours
        if given >= 0:
            flow = asyncio.streams.FlowControlMixin(self._loop)
            transport, _ = await self._loop.connect_write_pipe(lambda: flow, os.fdopen(given, "wb", 0))
            self.stdin = asyncio.StreamWriter(transport, flow, None, self._loop)
            self._pipes.append(transport)
        self.stdout = await self._reader(out)
        self.stderr = await self._reader(err)

    async def _reader(self, descriptor: int) -> asyncio.StreamReader | None:
        if descriptor < 0:
            return None
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        transport, _ = await self._loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
        self._pipes.append(transport)
        return reader

    def _hear(self) -> None:
        try:
            is_over = self._line.hear()
        except Exception as error:
            self._deaf()
            self._fail(error)
            return
        if (is_over or self._line.pid is not None) and not self.started.done():
            self.started.set_result(None)
        if is_over and self._line.end is not None:
            self._deaf()
            self._ended.set_result(result(self.argv, self._line.end, b"", b""))

    def _fail(self, error: Exception) -> None:
        for future in (self.started, self._ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen, if nobody waits for it

    def _deaf(self) -> None:
        if self._line.socket.fileno() >= 0:
            self._loop.remove_reader(self._line.socket.fileno())

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def start(host: Host, request: Request, stdin: Stream, stdout: Stream, stderr: Stream) -> AsyncProcess:
    made = streams(stdin, stdout, stderr)
    try:
        line = Line(host, request, made.theirs)
    except BaseException:
        close(*made.ours)
        raise
    finally:
        close(*made.made)
    process = AsyncProcess(request.argv, line, asyncio.get_running_loop())
    try:
        await process.connect(made.ours)
        await asyncio.shield(process.started)
    except BaseException:
        await process.close()
        raise
    return process
