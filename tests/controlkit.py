"""A gate with its control side, and a client that says exactly what it is told to say.

async with controlled(tmp_path, allow=(rule("allowed.test"),)) as c:
    answer = await c.get("/metrics", Cookie=await c.cookie())
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gatekit import PATIENCE, Answer, Kit, gate, hear

from egress.control.app import Control
from egress.questions import Questions


class Event(NamedTuple):
    kind: str
    number: int | None
    data: Any


class Controlled:
    def __init__(self, kit: Kit, control: Control, questions: Questions, unix: Path) -> None:
        self.kit, self.control, self.questions, self.unix = kit, control, questions, unix

    @property
    def host(self) -> str:
        return urlsplit(self.control.link).netloc

    @property
    def token(self) -> str:
        return self.control.link.partition("=")[2]

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    async def cookie(self) -> str:
        answer = await self.get(f"/?token={self.token}")
        assert answer.status == 303
        return answer.fields["set-cookie"].partition(";")[0]

    async def get(self, path: str, **fields: str) -> Answer:
        return await self.say(f"GET {path}", b"", **fields)

    async def say(self, what: str, body: bytes = b"", unix: bool = False, port: int = 0, **fields: str) -> Answer:
        """An HTTP request with these header fields (`Sec_Fetch_Site` for Sec-Fetch-Site), and its answer."""
        opened = (
            asyncio.open_unix_connection(self.unix) if unix else asyncio.open_connection("127.0.0.1", port or self.port)
        )
        reader, writer = await opened
        given = {"Host": self.host, "Connection": "close", "Content-Length": str(len(body)), **fields}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
        try:
            writer.write("\r\n".join([f"{what} HTTP/1.1", *lines, "", ""]).encode() + body)
            return await hear(reader, what.partition(" ")[0])
        finally:
            writer.close()

    @asynccontextmanager
    async def watching(self, path: str = "/api/events", **fields: str) -> AsyncIterator[AsyncIterator[Event]]:
        """The stream of events, over the Unix socket."""
        reader, writer = await asyncio.open_unix_connection(self.unix)
        lines = [f"GET {path} HTTP/1.0", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            assert b" 200 " in head
            yield _events(reader)
        finally:
            writer.close()


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[Event]:
    while block := await _block(reader):
        fields = dict(line.split(": ", 1) for line in block.strip().splitlines())
        number = int(fields["id"]) if "id" in fields else None
        yield Event(fields["event"], number, json.loads(fields["data"]))


async def _block(reader: asyncio.StreamReader) -> str:
    try:
        return (await asyncio.wait_for(reader.readuntil(b"\n\n"), PATIENCE)).decode()
    except asyncio.IncompleteReadError:
        return ""


async def first(events: AsyncIterator[Event], kind: str) -> Event:
    async for event in events:
        if event.kind == kind:
            return event
    raise AssertionError(f"it ended without {kind}")


@asynccontextmanager
async def controlled(
    tmp_path: Path, doors: tuple[str, ...] = ("p",), metrics: tuple[str, int] | None = None, **options: Any
) -> AsyncIterator[Controlled]:
    async with gate(tmp_path, **options) as kit:
        questions = Questions(asyncio.get_running_loop())
        control = Control(kit.gateway, questions, doors)
        unix = tmp_path / "control.sock"
        try:
            await control.start(unix=str(unix), metrics=metrics)
            yield Controlled(kit, control, questions, unix)
        finally:
            questions.close()
            await control.close()
