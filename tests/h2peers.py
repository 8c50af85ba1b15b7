"""HTTP/2 in the hand: a client that says exactly what a test wants, and a server that answers as it reads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

import h2.config
import h2.connection
import h2.events


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, greedy: bool) -> None:
        config = h2.config.H2Configuration(client_side=True, validate_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        self._reader, self._writer, self._greedy = reader, writer, greedy
        self.events: list[Any] = []

    @classmethod
    async def connect(cls, port: int, host: str, trust: ssl.SSLContext, *, greedy: bool = True) -> Client:
        """One that is not greedy opens no window again once it is full."""
        trust.set_alpn_protocols(["h2"])
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=host)
        client = cls(*streams, greedy=greedy)
        client.h2.initiate_connection()
        client.flush()
        return client

    def flush(self) -> None:
        self._writer.write(self.h2.data_to_send())

    def request(
        self, host: str, path: str, method: str = "GET", more: Sequence[tuple[str, str]] = (), *, end: bool = True
    ) -> int:
        number: int = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", host), (":path", path), *more]
        self.h2.send_headers(number, head, end_stream=end)
        self.flush()
        return number

    def flood(self, count: int, host: str) -> None:
        """That many requests, each taken back at once."""
        for _ in range(count):
            number = self.h2.get_next_available_stream_id()
            head = [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", "/")]
            self.h2.send_headers(number, head, end_stream=True)
            self.h2.reset_stream(number, 8)
        self.flush()

    def write(self, data: bytes) -> None:
        """Whatever it is."""
        self._writer.write(data)

    def goodbye(self) -> int | None:
        """The code that the other side ended the connection with."""
        codes = [event.error_code for event in self.events if isinstance(event, h2.events.ConnectionTerminated)]
        return codes[-1] if codes else None

    def send(self, number: int, data: bytes, *, end: bool = False) -> None:
        self.h2.send_data(number, data, end_stream=end)
        self.flush()

    async def read(self) -> bool:
        data = await asyncio.wait_for(self._reader.read(65536), 20)
        for event in self.h2.receive_data(data) if data else ():
            if isinstance(event, h2.events.DataReceived) and self._greedy:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.events.append(event)
        self.flush()
        return bool(data)

    def of(self, number: int, kind: Any) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind) and event.stream_id == number]

    def body(self, number: int) -> bytes:
        return b"".join(event.data for event in self.of(number, h2.events.DataReceived))

    async def head(self, number: int) -> dict[str, str]:
        while not (found := self.of(number, h2.events.ResponseReceived)):
            assert await self.read()
        return {_text(name): _text(value) for name, value in found[0].headers}

    async def whole(self, number: int) -> bytes:
        while not self.of(number, h2.events.StreamEnded):
            assert await self.read()
        return self.body(number)

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


class Server(asyncio.Protocol):
    """Answers 200 at once, sends back what it gets as it comes, and ends with a trailer."""

    def __init__(self) -> None:
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._h2.initiate_connection()
        self._transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            self._take(event)
        self._transport.write(self._h2.data_to_send())

    def _take(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._h2.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/grpc")])
        elif isinstance(event, h2.events.DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if event.data:
                self._h2.send_data(event.stream_id, event.data)
        elif isinstance(event, h2.events.StreamEnded):
            self._h2.send_headers(event.stream_id, [("grpc-status", "0"), ("grpc-message", "s3cret")], end_stream=True)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
