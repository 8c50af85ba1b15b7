"""SOCKS5 as the gate's clients speak it, with real sockets."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest
from gatekit import Names, Sink, echo, gate, rule, socks_request, until, upstream

from egress.limits import LIMITS
from egress.policy import Persona, Policy
from egress.users import Users, hash_password, parse_users

pytestmark = pytest.mark.usefixtures("nothing_left")

HELLO = b"\x05\x01\x00"
CHOSEN = b"\x05\x00"
SUCCEEDED = b"\x05\x00\x00\x01" + bytes(6)
MAPPED = bytes(10) + b"\xff\xff"
RULES = (rule("allowed.test:22"),)


def refused(code: int) -> bytes:
    return bytes((5, code, 0, 1)) + bytes(6)


async def test_a_tunnel_carries_bytes_both_ways_and_is_on_record(tmp_path: Path) -> None:
    async with upstream(echo) as up, gate(tmp_path, RULES, hosts={"allowed.test": up.port}) as g:
        reader, writer, reply = await g.socks(b"ALLOWED.test.", 22)
        assert reply == SUCCEEDED
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        decision, end = g.records()
    assert (decision["via"], decision["host"], decision["port"], decision["reason"]) == (
        "socks5",
        "allowed.test",
        22,
        "listed",
    )
    assert (end["up"], end["down"], end["outcome"]) == (4, 4, "closed")


async def test_everything_at_once_before_any_answer_is_served_too(tmp_path: Path) -> None:
    async with upstream(echo) as up, gate(tmp_path, RULES, hosts={"allowed.test": up.port}) as g:
        raw = await g.ask(HELLO + socks_request(b"allowed.test", 22) + b"early", eof=True)
    assert raw == CHOSEN + SUCCEEDED + b"early"


async def test_one_byte_at_a_time_is_served_too(tmp_path: Path) -> None:
    async with upstream(echo) as up, gate(tmp_path, RULES, hosts={"allowed.test": up.port}) as g:
        reader, writer = await g.connect()
        for byte in HELLO + socks_request(b"allowed.test", 22) + b"x":
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        assert await reader.readexactly(13) == CHOSEN + SUCCEEDED + b"x"
        writer.close()


@pytest.mark.parametrize(
    ("data", "answer", "reason"),
    [
        (HELLO + socks_request(b"evil.test", 22), CHOSEN + refused(2), "not_listed"),
        (HELLO + socks_request(b"allowed.test", 23), CHOSEN + refused(2), "port_not_listed"),
        (HELLO + socks_request(b"allowed.test", 0), CHOSEN + refused(1), "malformed_host"),
        (HELLO + socks_request(b"", 22), CHOSEN + refused(1), "malformed_host"),
        (HELLO + socks_request(b"evil.test\0.allowed.test", 22), CHOSEN + refused(1), "malformed_host"),
        (HELLO + socks_request(b"allowed.test\r\n", 22), CHOSEN + refused(1), "malformed_host"),
        (HELLO + socks_request(b"\xff" * 255, 22), CHOSEN + refused(1), "malformed_host"),
        (HELLO + socks_request(b"127.0.0.1", 22), CHOSEN + refused(2), "address_literal"),
        (HELLO + b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x16", CHOSEN + refused(2), "address_literal"),
        (HELLO + b"\x05\x01\x00\x01\xa9\xfe\xa9\xfe\x00\x50", CHOSEN + refused(2), "metadata_address"),
        (HELLO + b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x16", CHOSEN + refused(2), "address_literal"),
        (HELLO + b"\x05\x01\x00\x04" + MAPPED + b"\xa9\xfe\xa9\xfe\x00\x50", CHOSEN + refused(2), "metadata_address"),
        (HELLO + socks_request(b"allowed.test", 22, command=2), CHOSEN + refused(7), "unsupported"),
        (HELLO + socks_request(b"allowed.test", 22, command=3), CHOSEN + refused(7), "unsupported"),
        (HELLO + socks_request(b"allowed.test", 22, command=0), CHOSEN + refused(7), "unsupported"),
        (HELLO + b"\x05\x01\x00\x02" + b"xxxx", CHOSEN + refused(8), "unsupported"),
        (HELLO + b"\x05\x01\x01\x03", CHOSEN + refused(1), "malformed_request"),
        (HELLO + b"\x04\x01\x00\x03", CHOSEN + refused(1), "malformed_request"),
        (b"\x05\x00", b"\x05\xff", "unsupported"),
        (b"\x05\x01\x01", b"\x05\xff", "unsupported"),
        (b"\x04\x01\x00\x16\x7f\x00\x00\x01\x00", b"\x00\x5b" + bytes(6), "unsupported"),
        (b"\x04\x01\x00\x16\x00\x00\x00\x01u\x00allowed.test\x00", b"\x00\x5b" + bytes(6), "unsupported"),
    ],
)  # fmt: skip
async def test_what_is_refused_gets_its_reply_and_its_record_and_nothing_else(
    tmp_path: Path, data: bytes, answer: bytes, reason: str
) -> None:
    names = Names({}, anything=["127.0.0.1"])
    async with gate(tmp_path, RULES, names=names) as g:
        assert await g.ask(data + b"and more that goes nowhere") == answer
        (record,) = g.records()
    assert (record["verdict"], record["via"], record["reason"]) == ("deny", "socks5", reason)
    assert names.asked == []


async def test_a_reply_reaches_a_client_that_sends_on_regardless(tmp_path: Path) -> None:
    async with gate(tmp_path, RULES) as g:
        reader, writer = await g.connect()
        writer.write(HELLO + socks_request(b"evil.test", 22))
        await until(g.records)
        for _ in range(16):
            writer.write(bytes(65536))
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.read() == CHOSEN + refused(2)
        writer.close()


async def test_what_fails_on_its_way_is_told_as_a_failure(tmp_path: Path) -> None:
    async with upstream(echo) as up:
        port = up.port
    async with gate(tmp_path, RULES, hosts={"allowed.test": port}, names=Names({})) as g:
        assert await g.ask(HELLO + socks_request(b"allowed.test", 22)) == CHOSEN + refused(4)
        assert g.records()[-1]["outcome"] == "unreachable"
        g.gateway.live.replace(g.gateway.live.policy._replace(hosts={}))
        assert await g.ask(HELLO + socks_request(b"allowed.test", 22)) == CHOSEN + refused(4)
        assert g.records()[-1]["outcome"] == "unresolved"


@pytest.mark.parametrize(
    "start",
    [
        b"\x05",
        b"\x05\x02\x00",
        HELLO,
        HELLO + b"\x05\x01\x00",
        HELLO + socks_request(b"allowed.test", 22)[:-1],
        b"\x04",
    ],
)
async def test_who_falls_silent_is_left_in_time(tmp_path: Path, start: bytes) -> None:
    async with gate(tmp_path, RULES, limits=LIMITS._replace(handshake=0.02)) as g:
        raw = await g.ask(start)
        await until(lambda: not g.reception._guests)
    assert raw in (b"", CHOSEN, b"\x00\x5b" + bytes(6))


async def test_who_hangs_up_is_forgotten(tmp_path: Path) -> None:
    async with gate(tmp_path, RULES) as g:
        assert await g.ask(b"\x05\x02\x00", eof=True) == b""
        await g.put(HELLO + b"\x05")
        await until(lambda: not g.reception._guests)
        assert g.records() == []


# Passwords


@functools.cache
def users_file() -> str:
    return f"ann:reader:{hash_password('s3cret')}\n"


def login(user: bytes, password: bytes) -> bytes:
    return b"\x05\x01\x02\x01" + bytes((len(user),)) + user + bytes((len(password),)) + password


@pytest.mark.parametrize(
    ("data", "answer", "reason"),
    [
        (HELLO, b"\x05\xff", "credentials"),
        (login(b"ann", b"wrong"), b"\x05\x02\x01\x01", "credentials"),
        (login(b"bob", b"s3cret"), b"\x05\x02\x01\x01", "credentials"),
        (login(b"", b""), b"\x05\x02\x01\x01", "credentials"),
        (login(b"ann\0", b"s3cret"), b"\x05\x02\x01\x01", "credentials"),
        (login(b"\xff", b"s3cret"), b"\x05\x02\x01\x01", "credentials"),
        (b"\x05\x01\x02\x05\x03ann\x06s3cret", b"\x05\x02\x01\x01", "malformed_request"),
    ],
)
async def test_who_is_not_known_gets_no_further(tmp_path: Path, data: bytes, answer: bytes, reason: str) -> None:
    async with gate(tmp_path, users=Users(parse_users(users_file(), "users")), names=Names({}, ["127.0.0.1"])) as g:
        personas = {"reader": Persona("reader", RULES)}
        g.gateway.live.replace(Policy(personas))
        assert await g.ask(data + socks_request(b"allowed.test", 22)) == answer
        (record,) = g.records()
    assert (record["verdict"], record["reason"], record["persona"]) == ("deny", reason, "")


async def test_a_password_gives_a_persona(tmp_path: Path) -> None:
    async with upstream(Sink()) as up:
        users = Users(parse_users(users_file(), "users"))
        async with gate(tmp_path, hosts={"allowed.test": up.port}, users=users) as g:
            personas = {"reader": Persona("reader", RULES), "p": Persona("p")}
            g.gateway.live.replace(Policy(personas, g.gateway.live.policy.hosts))
            reader, writer = await g.connect()
            writer.write(login(b"ann", b"s3cret") + socks_request(b"allowed.test", 22))
            assert await reader.readexactly(14) == b"\x05\x02\x01\x00" + SUCCEEDED
            writer.close()
            assert g.records()[0]["persona"] == "reader"


async def test_a_client_that_insists_on_a_password_where_none_is_needed_is_served(tmp_path: Path) -> None:
    async with upstream(echo) as up, gate(tmp_path, RULES, hosts={"allowed.test": up.port}) as g:
        raw = await g.ask(login(b"any", b"thing") + socks_request(b"allowed.test", 22) + b"x", eof=True)
    assert raw == b"\x05\x02\x01\x00" + SUCCEEDED + b"x"
