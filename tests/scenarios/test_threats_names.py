"""Names and addresses that must not get through, asked for in every way there is.

One table, four ways to ask: an absolute URI, a Host header, CONNECT and SOCKS5. Whatever the way, the verdict is
the same, the protocol's own error comes back, nothing is looked up or dialled, and the log has one line more.
Every name resolves to an upstream that is listening, so a name that slips through is seen there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatekit import Answer, Http, Kit, Names, Sink, Upstream, gate, hear, rule, socks_request, until, upstream

from egress import gateway
from egress.model import Candidate, Vetted
from egress.policy import Persona
from egress.refusals import TABLE, Reason, Refused

pytestmark = [pytest.mark.scenario, pytest.mark.usefixtures("nothing_left")]

NOT_LISTED = [
    *b"""
    notallowed.test allowed.test.evil.test allowedxtest allowed.tes allowed.testt llowed.test x.allowed.test
    test wild.test evilwild.test a.wild.test.evil.test wild.test. localhost x.localhost xn--bcher-kva.test
    127.0.0.1e0
    """.split(),
    b"a" * 63 + b".test",
    b".".join([b"a" * 49] * 5),
]
SAME_AS_LISTED = b"allowed.test ALLOWED.test allowed.test. AlLoWeD.TeSt. a.wild.test a.b.c.wild.test.".split()

# Malformed, and sent as they are: in SOCKS any byte goes, in HTTP what its grammar lets through.
MALFORMED = [
    *b"""
    allowed.test.. .. . .allowed.test allowed..test [allowed.test] [[allowed.test]] [allowed.test allowed.test]
    -allowed.test allowed-.test allowed.-test allo_wed.test _.test *.wild.test * user@allowed.test
    evil.test@allowed.test allowed.test@evil.test allowed.test\\ \\allowed.test allowed.test;x
    allowed.test,evil.test allowed.test%00 evil.test%00.allowed.test allowed%2etest %61llowed.test
    allowed.test%0d%0a ! allowed.test' $(allowed.test) `allowed.test` <allowed.test> {allowed.test}
    allowed|test allowed^test allowed~test allowed=test allowed+test allowed&test \"allowed.test\" 127.1
    127.0.1 0177.0.0.1 0x7f.1 0x7f000001 0x7f.0.0.1 2130706433 0 00 1 0x 127.0.0.01 127.0.0.1.1 256.0.0.1 1.2.3
    allowed.123 allowed.0x7f 127.0.0.0x1 xn-- xn--a xn--allowed.test allowed.xn--a-b-c- xn--abc-
    xn--80ak6aa92e-.test
    """.split(),
    b"a" * 64 + b".test",
    b".".join([b"a" * 63] * 4),
]
UNPRINTABLE = [
    b"evil.test\x00.allowed.test", b"allowed.test\x00", b"\x00allowed.test", b"allowed.test\x00.evil.test",
    b"allowed.test\r\n", b"allowed.test\r\nX: y", b"allowed.test\n", b"allowed.test\r", b"\tallowed.test",
    b"allowed.test ", b" allowed.test", b"allowed .test", b"allowed.test\t", b"allowed.test\x7f", b"\x80",
    b"allowed.test\xff", b"allowed\xad.test", b"allowed.test\x0b", b"\x1b[31mallowed.test",
    b'allowed.test","verdict":"allow', b"allowed.test\x85",
]  # fmt: skip
# As a Host header these are well formed: blanks before a value are none of it, and a line may follow.
WELL_FORMED_LINES = [b"\tallowed.test", b" allowed.test", b"allowed.test\r\nX: y"]
BEYOND_ASCII = [
    "ａllowed.test", "allowed。test", "allowed．test", "allowed｡test", "allow\u200bed.test", "allow\u00aded.test",
    "℀.test", "allowed.te\u017ft", "\u212aallowed.test", "ⓐllowed.test", "аllowed.test", "bücher.test",
    "allowed.test\u2028", "１２７.0.0.1", "①②⑦.0.0.1", "allowed\u2024test", "\ufeffallowed.test",
    "allowed.test\ufe0f", "ALLOWED\u0130.test",
]  # fmt: skip

# What a literal is refused as.
LITERALS = {
    Reason.ADDRESS_LITERAL: b"""
        8.8.8.8 127.0.0.1 10.0.0.1 100.64.0.1 169.254.1.1 192.0.2.1 ::1 0:0:0:0:0:0:0:1 fe80::1 2606:4700::1111
        ::ffff:127.0.0.1
    """.split(),
    Reason.METADATA_ADDRESS: b"""
        0.0.0.0 0.1.2.3 255.255.255.255 224.0.0.1 169.254.169.254 169.254.170.2 100.100.100.200 192.0.0.192
        168.63.129.16 :: fd00:ec2::254 FD00:EC2:0::254 ff02::1 ::ffff:169.254.169.254 ::ffff:a9fe:a9fe
        ::169.254.169.254 ::ffff:0:169.254.169.254 64:ff9b::169.254.169.254 64:ff9b:1::169.254.169.254
        64:ff9b:1:a9fe:a9:fe00:: 2002:a9fe:a9fe::1 2001:0:a9fe:a9fe::1 2001:0:1:1::5601:5601
        fe80::200:5efe:169.254.169.254 2001:db8::5efe:a9fe:a9fe
    """.split(),
}
ZONES = b"fe80::1%eth0 fe80::1%25eth0 ::1%0 fe80::1% ::1%lo".split()
BAD_PORTS = [
    b"",
    *b"0 65536 65537 99999 100000 +443 -1 4_43 443x x 0x1bb 0443 :443 443:443 4.43 1e3 443@evil.test".split(),
    *b"443%20 443; 443,80 443# 443\\".split(),
]


class Way:
    """A way to ask for a host and port; what the gate said, as the name of a reason or its SOCKS code."""

    name = ""

    async def ask(self, g: Kit, host: bytes, port: bytes) -> Any:
        raise NotImplementedError

    def expected(self, reason: Reason) -> Any:
        return TABLE[reason].http, reason.value


async def http(g: Kit, data: bytes) -> tuple[int, str | None]:
    reader, writer = await g.connect()
    writer.write(data)
    try:
        told: Answer = await hear(reader)
    finally:
        writer.close()
    return told.status, told.reason


class Absolute(Way):
    name = "http"

    async def ask(self, g: Kit, host: bytes, port: bytes) -> Any:
        return await http(g, b"GET http://%b:%b/x HTTP/1.1\r\nHost: allowed.test\r\n\r\n" % (host, port))


class HostHeader(Way):
    """It has no say in where a request goes, but must be well formed."""

    name = "http"

    async def ask(self, g: Kit, host: bytes, port: bytes) -> Any:
        return await http(
            g, b"GET http://allowed.test:%d/x HTTP/1.1\r\nHost: %b:%b\r\n\r\n" % (upstream_port(g), host, port)
        )


class Connect(Way):
    name = "connect"

    async def ask(self, g: Kit, host: bytes, port: bytes) -> Any:
        return await http(g, b"CONNECT %b:%b HTTP/1.1\r\nHost: allowed.test\r\n\r\nsmuggled" % (host, port))


class Socks(Way):
    name = "socks5"

    async def ask(self, g: Kit, host: bytes, port: bytes) -> Any:
        return (await g.ask(b"\x05\x01\x00" + socks_request(host, int(port)) + b"smuggled"))[2:]

    def expected(self, reason: Reason) -> Any:
        return bytes((5, TABLE[reason].socks, 0, 1)) + bytes(6)


def upstream_port(g: Kit) -> int:
    (port,) = g.gateway.live.persona("p").allow[0].ports
    return port


WAYS = [Absolute(), Connect(), Socks()]
EVERY_WAY = [*WAYS, HostHeader()]


def named(way: Way) -> str:
    return type(way).__name__


@asynccontextmanager
async def town(tmp_path: Path) -> AsyncIterator[tuple[Kit, Upstream, Names]]:
    """A gate that allows one host and all below another, and a resolver that leads every name to one upstream."""
    async with upstream(Http()) as up:
        names = Names({}, anything=["127.0.0.1"])
        rules = (rule(f"allowed.test:{up.port}"), rule(f"*.wild.test:{up.port}"))
        async with gate(tmp_path, rules, names=names) as g:
            yield g, up, names


async def refused_by(way: Way, g: Kit, host: bytes, port: bytes, reason: Reason) -> None:
    """Asked this way it is refused for this reason, with one record, which is one line of JSON."""
    before = len(g.records())
    told = await way.ask(g, host, port)
    assert told == way.expected(reason), host
    record = last_line(g.audit, before)
    assert (record["verdict"], record["reason"], record["via"]) == ("deny", reason.value, way.name), host


def last_line(log: Path, before: int) -> dict[str, Any]:
    """The one line that was added; its text cannot break out of it."""
    raw = log.read_bytes()
    assert raw.isascii()
    lines = raw.split(b"\n")
    assert lines.pop() == b""
    assert len(lines) == before + 1
    assert all(byte >= 0x20 for byte in lines[-1])
    found = json.loads(lines[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_one_host_in_all_its_spellings_is_let_through(tmp_path: Path, way: Way) -> None:
    async with town(tmp_path) as (g, up, names):
        for host in SAME_AS_LISTED:
            if isinstance(way, Absolute):
                assert await way.ask(g, host, b"%d" % up.port) == (200, None)
            else:
                _, writer, told = await (
                    g.tunnel(f"{host.decode()}:{up.port}") if isinstance(way, Connect) else g.socks(host, up.port)
                )
                assert told.startswith((b"HTTP/1.1 200 ", b"\x05\x00"))
                writer.close()
        asked = [host.decode().lower().removesuffix(".") for host in SAME_AS_LISTED]
        assert names.asked == asked
        assert [record["host"] for record in g.records(verdict="allow")] == asked


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_names_that_look_like_a_listed_one_are_not_listed(tmp_path: Path, way: Way) -> None:
    async with town(tmp_path) as (g, up, names):
        for host in NOT_LISTED:
            await refused_by(way, g, host, b"%d" % up.port, Reason.NOT_LISTED)
        assert (names.asked, up.connections) == ([], 0)


@pytest.mark.parametrize("way", EVERY_WAY, ids=named)
async def test_malformed_names_are_refused_and_never_repaired(tmp_path: Path, way: Way) -> None:
    async with town(tmp_path) as (g, up, names):
        for host in MALFORMED:
            await refused_by(way, g, host, b"%d" % up.port, Reason.MALFORMED_HOST)
        assert (names.asked, up.connections) == ([], 0)


@pytest.mark.parametrize("raw", [*UNPRINTABLE, *(text.encode() for text in BEYOND_ASCII)])
async def test_bytes_that_no_name_has_are_malformed_in_socks(tmp_path: Path, raw: bytes) -> None:
    async with town(tmp_path) as (g, up, names):
        await refused_by(Socks(), g, raw, b"%d" % up.port, Reason.MALFORMED_HOST)
        assert (names.asked, up.connections) == ([], 0)


@pytest.mark.parametrize("way", [Absolute(), Connect(), HostHeader()], ids=named)
async def test_bytes_that_no_name_has_are_malformed_in_http(tmp_path: Path, way: Way) -> None:
    """Whether the name is at fault or the whole request, it is a 400, and one line in the log."""
    async with town(tmp_path) as (g, up, names):
        for raw in (*UNPRINTABLE, *(text.encode() for text in BEYOND_ASCII)):
            if isinstance(way, HostHeader) and raw in WELL_FORMED_LINES:
                continue
            before = len(g.records())
            status, reason = await way.ask(g, raw, b"%d" % up.port)
            assert status == 400, raw
            assert reason in ("malformed_host", "malformed_request", "not_a_proxy_request")
            assert last_line(g.audit, before)["verdict"] == "deny"
        assert (names.asked, up.connections) == ([], 0)


@pytest.mark.parametrize("way", [Absolute(), Connect(), HostHeader()], ids=named)
async def test_malformed_ports_are_refused(tmp_path: Path, way: Way) -> None:
    async with town(tmp_path) as (g, up, names):
        for port in BAD_PORTS:
            fragment = isinstance(way, Absolute) and b"#" in port
            reason = Reason.NOT_A_PROXY_REQUEST if fragment else Reason.MALFORMED_HOST
            await refused_by(way, g, b"allowed.test", port, reason)
        assert (names.asked, up.connections) == ([], 0)


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_a_port_that_no_rule_grants_is_not_listed(tmp_path: Path, way: Way) -> None:
    async with town(tmp_path) as (g, up, names):
        for port in (1, 22, 25, up.port ^ 1, 65535):
            await refused_by(way, g, b"allowed.test", b"%d" % port, Reason.PORT_NOT_LISTED)
            await refused_by(way, g, b"a.wild.test", b"%d" % port, Reason.PORT_NOT_LISTED)
        assert (names.asked, up.connections) == ([], 0)


async def test_port_zero_is_no_port_in_socks(tmp_path: Path) -> None:
    async with town(tmp_path) as (g, _, names):
        await refused_by(Socks(), g, b"allowed.test", b"0", Reason.MALFORMED_HOST)
        assert names.asked == []


async def test_a_host_header_does_not_say_where_a_request_goes(tmp_path: Path) -> None:
    """The URI decides; upstream sees its host, whatever else the client wrote."""
    server = Http()
    async with upstream(server) as up:
        names = Names({}, anything=["127.0.0.1"])
        async with gate(tmp_path, (rule(f"allowed.test:{up.port}"),), names=names) as g:
            for host in (b"evil.test", b"allowed.test:1", b"169.254.169.254", b"[::1]:22", b"EVIL.test."):
                data = b"GET http://allowed.test:%d/ HTTP/1.1\r\nHost: %b\r\n\r\n" % (up.port, host)
                assert (await http(g, data))[0] == 200
            assert set(names.asked) == {"allowed.test"}
    assert {head.split(b"\r\n")[1] for head in server.heads} == {b"Host: allowed.test:%d" % up.port}


# Addresses


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_an_address_without_a_rule_of_its_own_is_refused_in_any_spelling(tmp_path: Path, way: Way) -> None:
    async with town(tmp_path) as (g, up, names):
        for reason, addresses in LITERALS.items():
            for address in addresses:
                host = b"[%b]" % address if b":" in address and not isinstance(way, Socks) else address
                await refused_by(way, g, host, b"%d" % up.port, reason)
        assert (names.asked, up.connections) == ([], 0)


@pytest.mark.parametrize("way", EVERY_WAY, ids=named)
async def test_zones_are_malformed(tmp_path: Path, way: Way) -> None:
    async with town(tmp_path) as (g, up, names):
        for address in ZONES:
            host = address if isinstance(way, Socks) else b"[%b]" % address
            await refused_by(way, g, host, b"%d" % up.port, Reason.MALFORMED_HOST)
        assert (names.asked, up.connections) == ([], 0)


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_a_metadata_address_needs_no_rule_and_gets_none(tmp_path: Path, way: Way) -> None:
    rules = (rule("169.254.169.254:80", private=True), rule("[fd00:ec2::254]:80", private=True))
    async with gate(tmp_path, rules) as g:
        await refused_by(way, g, b"169.254.169.254", b"80", Reason.METADATA_ADDRESS)
        v6 = b"fd00:ec2::254" if isinstance(way, Socks) else b"[fd00:ec2::254]"
        await refused_by(way, g, v6, b"80", Reason.METADATA_ADDRESS)


async def test_an_address_with_a_rule_of_its_own_is_reached_by_its_own_spelling(tmp_path: Path) -> None:
    async with upstream(Sink()) as up, gate(tmp_path, (rule(f"127.0.0.1:{up.port}"),)) as g:
        port = b"%d" % up.port
        await refused_by(Connect(), g, b"[::ffff:127.0.0.1]", port, Reason.ADDRESS_LITERAL)
        await refused_by(Connect(), g, b"127.0.0.1.", port, Reason.MALFORMED_HOST)
        for ask in (g.tunnel(f"127.0.0.1:{up.port}"), g.socks(b"127.0.0.1", up.port)):
            _, writer, told = await ask
            assert told.startswith((b"HTTP/1.1 200 ", b"\x05\x00"))
            writer.close()


# What a listed name leads to

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.7.7", "192.0.2.1", "198.18.0.1",
    "203.0.113.9", "240.0.0.1", "::1", "fe80::1", "fc00::1", "2001:db8::1", "::ffff:10.0.0.1", "::10.0.0.1",
    "64:ff9b::10.0.0.1", "2002:a00:1::", "2001:0:a00:1::f7f7:f7f7", "fec0::1", "100::1",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254",
    "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "2606:4700::1111", "1.1.1.1"]


class Dialled:
    """Stands where connections are opened: remembers the addresses, and refuses or leads to a local upstream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, up: Upstream | None = None) -> None:
        self._real, self._up = gateway.dial, up
        self.tried: list[list[str]] = []
        monkeypatch.setattr(gateway, "dial", self)

    async def __call__(self, vetted: Vetted, *args: Any) -> Any:
        self.tried.append([candidate.ip for candidate in vetted.addresses])
        if self._up is None:
            raise Refused(Reason.UNREACHABLE, "as the test wants it")
        return await self._real(Vetted((Candidate("127.0.0.1", self._up.port),)), *args)


async def asked_by(g: Kit, port: int = 80) -> dict[str, Any]:
    """Ask for the listed host once; the last word of the log."""
    await http(g, b"GET http://allowed.test:%d/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n" % port)
    return g.records()[-1]


async def test_a_listed_name_does_not_lead_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled = Dialled(monkeypatch)
    names = Names({"allowed.test": [[ip] for ip in PRIVATE]})
    async with gate(tmp_path, (rule("allowed.test", private=False),), names=names) as g:
        for _ in PRIVATE:
            assert (await asked_by(g))["reason"] == "resolved_private"
        assert len(names.asked) == len(PRIVATE)
    assert dialled.tried == []


@pytest.mark.parametrize("private", [False, True])
async def test_no_rule_leads_a_name_to_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: bool) -> None:
    dialled = Dialled(monkeypatch)
    names = Names({"allowed.test": [[ip] for ip in NEVER]})
    async with gate(tmp_path, (rule("allowed.test", private=private),), names=names) as g:
        for _ in NEVER:
            assert (await asked_by(g))["reason"] == "metadata_address"
    assert dialled.tried == []


async def test_of_public_and_private_answers_only_the_public_are_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where those fail: there is no falling back to the others."""
    dialled = Dialled(monkeypatch)
    mixed = [[*PRIVATE[:4], *PUBLIC, *NEVER[:4]], ["127.0.0.1", "8.8.8.8"], ["8.8.8.8", "::1", "169.254.169.254"]]
    names = Names({"allowed.test": mixed})
    async with gate(tmp_path, (rule("allowed.test", private=False),), names=names) as g:
        for _ in mixed:
            assert (await asked_by(g))["outcome"] == "unreachable"
    assert dialled.tried == [PUBLIC, ["8.8.8.8"], ["8.8.8.8"]]


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_a_name_is_looked_up_once_and_what_was_vetted_is_what_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """Rebinding: a name server that says something else each time has one say per connection."""
    names = Names({"allowed.test": [["8.8.8.8"], ["169.254.169.254"], ["127.0.0.1"], ["1.1.1.1"]]})
    async with upstream(Http()) as up, gate(tmp_path, (rule("allowed.test:8080", private=False),), names=names) as g:
        dialled = Dialled(monkeypatch, up)
        verdicts = []
        for turn in range(4):
            await _knock(way, g)
            assert len(names.asked) == turn + 1
            verdicts.append([r["reason"] for r in g.records(event="decision", id=g.records()[-1]["id"])][-1])
    assert dialled.tried == [["8.8.8.8"], ["1.1.1.1"]]
    assert verdicts == ["listed", "metadata_address", "resolved_private", "listed"]


async def _knock(way: Way, g: Kit) -> None:
    """Ask for it and leave, whether or not it was let through."""
    if isinstance(way, Absolute):
        await way.ask(g, b"allowed.test", b"8080")
        return
    data = (
        b"CONNECT allowed.test:8080 HTTP/1.1\r\nHost: a.test\r\n\r\n"
        if isinstance(way, Connect)
        else b"\x05\x01\x00" + socks_request(b"allowed.test", 8080)
    )
    reader, writer = await g.connect()
    writer.write(data)
    await reader.readexactly(12)
    writer.close()
    await asyncio.wait_for(reader.read(), 15)


@pytest.mark.parametrize("way", WAYS, ids=named)
async def test_no_name_and_no_address_leads_back_to_the_gate(tmp_path: Path, way: Way) -> None:
    hosts = [b"back.test", b"mapped.test", b"127.0.0.1", b"[::ffff:127.0.0.1]", b"[::ffff:7f00:1]"]
    names = Names({"back.test": [["127.0.0.1"]], "mapped.test": [["::ffff:127.0.0.1"]]})
    async with gate(tmp_path, names=names) as g:
        live = g.gateway.live
        rules = [rule(f"{host.decode()}:{g.port}") for host in hosts]
        live.replace(live.policy._replace(personas={"p": Persona("p", rules)}))
        for host in hosts:
            told = await way.ask(g, host.strip(b"[]") if isinstance(way, Socks) else host, b"%d" % g.port)
            assert told == way.expected(Reason.OWN_LISTENER)
            assert g.records()[-1]["reason"] == "own_listener"
        await until(lambda: not g.reception._guests)


async def test_an_empty_allowlist_allows_nothing(tmp_path: Path) -> None:
    async with upstream(Http()) as up:
        names = Names({}, anything=["127.0.0.1"])
        async with gate(tmp_path, (), names=names) as g:
            for way in WAYS:
                await refused_by(way, g, b"allowed.test", b"%d" % up.port, Reason.NOT_LISTED)
        assert (names.asked, up.connections) == ([], 0)


async def test_a_denial_wins_over_any_allowance(tmp_path: Path) -> None:
    async with upstream(Http()) as up:
        names = Names({}, anything=["127.0.0.1"])
        allow = (rule(f"*.wild.test:{up.port}"), rule(f"bad.wild.test:{up.port}"))
        async with gate(tmp_path, allow, (rule("bad.wild.test"),), names=names) as g:
            for way in WAYS:
                for host in (b"bad.wild.test", b"BAD.wild.TEST.", b"bad.wild.test."):
                    await refused_by(way, g, host, b"%d" % up.port, Reason.DENIED)
        assert (names.asked, up.connections) == ([], 0)
