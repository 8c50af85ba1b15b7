"""One request through the gate, with real sockets on both sides."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from gatekit import Http, echo, gate, rule, upstream

PLAIN = b"GET http://allowed.test/x HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n"


async def test_an_allowed_tunnel_carries_bytes_both_ways_and_is_on_record(tmp_path: Path) -> None:
    async with upstream(echo) as up, gate(tmp_path, (rule("allowed.test:22"),), hosts={"allowed.test": up.port}) as g:
        reader, writer, answer = await g.tunnel("allowed.test:22")
        assert answer.startswith(b"HTTP/1.1 200 ")
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        decision, end = g.records()
    assert (decision["verdict"], decision["via"], decision["host"], decision["port"]) == (
        "allow", "connect", "allowed.test", 22,
    )  # fmt: skip
    assert decision["rule"] == "test.yaml:1 allowed.test"
    assert (end["id"], end["up"], end["down"], end["outcome"], end["ip"]) == (
        decision["id"],
        4,
        4,
        "closed",
        "127.0.0.1",
    )


async def test_a_denied_tunnel_is_told_why_and_nothing_is_dialled(tmp_path: Path) -> None:
    async with upstream(echo) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"evil.test": up.port}) as g:
        answer = await g.ask(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\nsmuggled")
        (record,) = g.records()
        assert up.connections == 0
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"\r\nX-Egress-Reason: not_listed\r\n" in answer
    assert b"evil.test:443 is not on the allowlist of persona p" in answer
    assert b"egress check evil.test:443 --persona p" in answer
    assert (record["verdict"], record["reason"], record["rule"]) == ("deny", "not_listed", None)


async def test_a_plain_request_is_forwarded_with_its_own_host(tmp_path: Path) -> None:
    server = Http(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nAlt-Svc: h3\r\n\r\nok")
    async with upstream(server) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port}) as g:
        request = PLAIN.replace(b"Host: allowed.test", b"Host: other.test\r\nProxy-Authorization: Basic eDp5")
        answer = await g.ask(request)
    assert answer.endswith(b"\r\n\r\nok")
    assert b"alt-svc" not in answer.lower()
    assert server.heads == [b"GET /x HTTP/1.1\r\nHost: allowed.test\r\n\r\n"]


async def test_requests_on_one_connection_are_decided_one_by_one(tmp_path: Path) -> None:
    server = Http()
    async with upstream(server) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port}) as g:
        keep = PLAIN.replace(b"Connection: close\r\n", b"")
        answer = await g.ask(keep + keep.replace(b"allowed.test", b"evil.test") + PLAIN)
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert answer.count(b"HTTP/1.1 403 ") == 1
        assert up.connections == 1
        assert [r["verdict"] for r in g.records(event="decision")] == ["allow", "deny", "allow"]
    assert len(server.heads) == 2


async def test_plain_http_to_a_port_that_expects_tls_is_refused(tmp_path: Path) -> None:
    async with upstream(Http()) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port}) as g:
        answer = await g.ask(PLAIN.replace(b"test/x", b"test:443/x"))
        (record,) = g.records()
    assert b"X-Egress-Reason: not_tls" in answer
    assert record["reason"] == "not_tls"


async def test_an_address_that_is_not_public_needs_the_rules_word(tmp_path: Path) -> None:
    rules = (rule("allowed.test", private=False),)
    async with upstream(Http()) as up, gate(tmp_path, rules, hosts={"allowed.test": up.port}) as g:
        answer = await g.ask(PLAIN)
        assert up.connections == 0
        allow, deny = g.records()
    assert b"X-Egress-Reason: resolved_private" in answer
    assert (allow["verdict"], deny["verdict"], deny["reason"]) == ("allow", "deny", "resolved_private")
    assert allow["id"] == deny["id"]


@pytest.mark.parametrize("name", ["other.test", None])
async def test_a_client_hello_that_names_another_host_gets_an_alert_and_nothing_goes_up(
    tmp_path: Path, name: str | None
) -> None:
    seen = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read())

    async with upstream(listen) as up, gate(tmp_path, (rule("allowed.test"),), hosts={"allowed.test": up.port}) as g:
        reader, writer, _ = await g.tunnel("allowed.test:443")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        hello = context.wrap_bio(incoming, outgoing, server_hostname=name)
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()
        writer.write(outgoing.read())
        assert await reader.read() == bytes.fromhex("15030300020231")
        writer.close()
        deny = g.records()[-1]
    assert deny["reason"] == ("sni_mismatch" if name else "no_sni")
    assert seen == [b""]
