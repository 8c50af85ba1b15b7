"""A gate that is not one, in front of a real engine: it says yes to everything unless a test says otherwise."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trustme

from egress import enginestart
from egress.counts import Counts
from egress.enginestart import Config
from egress.inspection.channel import Channel
from egress.inspection.messages import Ask, Closed, Done, Open, Reach, Reached, Ready, Stop, ToGate, Unreached, Verdict

HOST = "inspected.test"
SLOTS = 4


def allow(ask: Ask, **more: Any) -> Verdict:
    return Verdict(ask.conn, ask.request, **more)


def refuse(ask: Ask, status: int = 403, body: bytes = b"no\n") -> Verdict:
    fields = [(b"Content-Length", str(len(body)).encode()), (b"X-Egress-Reason", b"path_not_listed")]
    return Verdict(ask.conn, ask.request, status, fields, body)


class Gate:
    """Listens for clients on `port`, hands them over, and answers as `judge` and `reach` say."""

    def __init__(self, upstream: int = 0, host: str = HOST) -> None:
        self.loop = asyncio.get_running_loop()
        self.judge: Callable[[Ask], Verdict] = allow
        self.host, self.upstream = host, upstream
        self.unreached: Unreached | None = None
        self.asked: list[Ask] = []
        self.done: list[Done] = []
        self.closed: list[Closed] = []
        self.opened = self.reached = 0
        self.other: list[Any] = []
        self.counts = Counts.make(SLOTS)
        self.certificate = b""
        self.lost = asyncio.Event()
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._directory = tempfile.TemporaryDirectory()
        self.ca = Path(self._directory.name) / "ca.pem"

    async def start(self, roots: tuple[str, ...] = ()) -> Gate:
        started = enginestart.start(Config(names=(self.host,), upstream_roots=roots), self.counts.fd)
        self.pid = started.pid
        self.channel = Channel(started.line, self.loop, ToGate, self._hear, self.lost.set)
        await self._ready
        self.ca.write_bytes(self.certificate)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._run(self._accept())
        return self

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()
        self.channel.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.counts.close()
        os.close(self.counts.fd)
        self._directory.cleanup()

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.certificate.decode())

    @property
    def memory(self) -> int:
        """The engine's resident bytes."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(condition), 20)

    def _run(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            sock, _ = await self.loop.sock_accept(self._listener)
            self._run(self._hand_over(sock))

    async def _hand_over(self, sock: socket.socket) -> None:
        seen = await self.loop.sock_recv(sock, 65536)
        self.opened += 1
        self.channel.send(Open(self.opened, self.host, 443, seen), sock.detach())

    async def _reach(self, reach: Reach) -> None:
        if self.unreached is not None:
            told = self.unreached
            self.channel.send(Unreached(reach.conn, reach.serial, told.status, told.fields, told.body, told.words))
            return
        sock = socket.socket()
        sock.setblocking(False)
        await self.loop.sock_connect(sock, ("127.0.0.1", self.upstream))
        self.reached += 1
        self.channel.send(Reached(reach.conn, reach.serial), sock.detach())

    def stop(self, conn: int) -> None:
        self.channel.send(Stop(conn))

    def _hear(self, message: Any, _fd: int | None) -> None:
        if isinstance(message, Ready):
            self.certificate = message.certificate
            self._ready.set_result(None)
        elif isinstance(message, Ask):
            self.asked.append(message)
            self.channel.send(self.judge(message))
        elif isinstance(message, Reach):
            self._run(self._reach(message))
        else:
            kept = {Done: self.done, Closed: self.closed}.get(type(message), self.other)
            kept.append(message)
        self._run(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class Upstreams:
    """A certificate authority of the outside world, and TLS contexts for servers in it."""

    def __init__(self, directory: Path, host: str = HOST) -> None:
        self._ca = trustme.CA()
        self.roots = str(directory / "outside.pem")
        self._ca.cert_pem.write_to_path(self.roots)
        self._host = host

    def context(self, *alpn: str, host: str | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(host or self._host).configure_cert(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context
