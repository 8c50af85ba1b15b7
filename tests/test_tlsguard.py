"""TLS through a tunnel: the handshake goes to the target, the first time and when it is asked again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import hellos
import pytest
import trustme
from gatekit import Kit, gate, rule

from egress.limits import LIMITS

ALERT = bytes.fromhex("15030300020231")


class Server:
    """A real TLS echo server that remembers every name it was asked for."""

    def __init__(self) -> None:
        self.names: list[str | None] = []
        self.authority = trustme.CA()

    async def start(self, curve: str | None) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("allowed.test").configure_cert(context)
        context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        if curve:
            context.set_ecdh_curve(curve)
        self._server = await asyncio.start_server(self._echo, "127.0.0.1", 0, ssl=context)
        return int(self._server.sockets[0].getsockname()[1])

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    def stop(self) -> None:
        self._server.close()


@pytest.fixture(params=[None, "secp384r1"], ids=["first hello", "hello retry"])
async def tls(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Server, Kit]]:
    server = Server()
    port = await server.start(request.param)
    async with gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": port}) as kit:
        yield server, kit
    server.stop()


async def test_a_handshake_with_the_target_succeeds(tls: tuple[Server, Kit]) -> None:
    server, kit = tls
    reader, writer, _ = await kit.tunnel("allowed.test:443")
    context = ssl.create_default_context()
    server.authority.configure_trust(context)
    await writer.start_tls(context, server_hostname="allowed.test")
    writer.write(b"hello")
    assert await reader.read() == b"hello"
    writer.close()
    assert set(server.names) == {"allowed.test"}
    while not kit.records(event="end"):
        await asyncio.sleep(0.01)
    (end,) = kit.records(event="end")
    assert end["up"] > 200
    assert end["down"] > 500


async def test_a_second_hello_cannot_name_another_host(tmp_path: Path) -> None:
    server = Server()
    port = await server.start("secp384r1")
    async with gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": port}) as kit:
        reader, writer, _ = await kit.tunnel("allowed.test:443")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = hellos.client_context().wrap_bio(incoming, outgoing, server_hostname="allowed.test")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        writer.write(outgoing.read())
        incoming.write(await reader.read(65536))
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        writer.write(outgoing.read().replace(b"allowed.test", b"evilest.test"))
        assert await reader.read() == ALERT
        writer.close()
        deny = kit.records(event="decision")[-1]
        assert kit.records(event="end")[0]["outcome"] == "refused"
    server.stop()
    assert (deny["verdict"], deny["reason"]) == ("deny", "sni_mismatch")
    assert server.names == ["allowed.test"]


async def test_a_client_that_says_nothing_is_let_go(tmp_path: Path) -> None:
    server = Server()
    port = await server.start(None)
    limits = LIMITS._replace(handshake=0.3)
    async with gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": port}, limits=limits) as kit:
        reader, writer, _ = await kit.tunnel("allowed.test:443")
        assert await reader.read() == b""
        writer.close()
        assert kit.records()[-1]["reason"] == "timeout"
    server.stop()
