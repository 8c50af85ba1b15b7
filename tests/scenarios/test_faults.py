"""Things break: the log, the peers, the supply of descriptors. Limits hold, good clients are served, nothing is left.

The gate runs in the test's own loop, so that whatever it leaves behind is seen; only where descriptors must run
out does it get a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import resource
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatekit import Http, Kit, Sink, Upstream, echo, gate, hear, reset, rule, socks_request, until, upstream
from gateprocess import GateProcess, Rules

from egress import audit as audit_module
from egress.limits import KIB, LIMITS, MIB

LOOPS = "asyncio", "uvloop"
pytestmark = [pytest.mark.scenario, pytest.mark.usefixtures("nothing_left")]

GET = b"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
EVIL = GET.replace(b"allowed", b"evil")


@pytest.fixture(autouse=True)
def _all_descriptors_we_may_have() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def town(tmp_path: Path, handler: Any = echo, **options: Any) -> AsyncIterator[tuple[Kit, Upstream]]:
    async with (
        upstream(handler) as up,
        gate(tmp_path, (rule("allowed.test"), rule("raw.test:22")), hosts=hosts(up), **options) as g,
    ):
        yield g, up


def hosts(up: Upstream) -> dict[str, int]:
    return {"allowed.test": up.port, "raw.test": up.port}


async def status(g: Kit, data: bytes = GET) -> int:
    reader, writer = await g.connect()
    writer.write(data)
    try:
        return (await hear(reader)).status
    finally:
        writer.close()


async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, word: bytes = b"ping") -> bool:
    writer.write(word)
    return await asyncio.wait_for(reader.readexactly(len(word)), 15) == word


# The log cannot be written


def _directory(log: Path) -> None:
    log.mkdir()


def _fifo(log: Path) -> None:
    os.mkfifo(log)


def _symlink(log: Path) -> None:
    log.symlink_to("/dev/null")


def _socket(log: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(log))


def _remove(log: Path) -> None:
    log.rmdir() if log.is_dir() and not log.is_symlink() else log.unlink()


@pytest.mark.parametrize("put", [_directory, _fifo, _symlink, _socket])
async def test_nothing_new_passes_while_the_log_is_something_else_and_all_of_it_is_told_later(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    async with town(tmp_path) as (g, up):
        reader, writer, _ = await g.tunnel("raw.test:22")
        g.audit.rename(tmp_path / "before.jsonl")
        put(g.audit)

        _, refused, answer = await g.tunnel("raw.test:22")
        refused.close()
        assert answer.startswith(b"HTTP/1.1 503 Refused by egress: audit_unavailable\r\n")
        assert await status(g) == 503
        assert await g.ask(b"\x05\x01\x00" + socks_request(b"raw.test", 22)) == b"\x05\x00\x05\x01\x00\x01" + bytes(6)
        assert await status(g, EVIL) == 403
        assert up.connections == 1
        assert await echoes(reader, writer)  # who was let in before stays in
        writer.close()
        await until(lambda: len(g.gateway.traffic) == 0)

        _remove(g.audit)
        reader, writer, answer = await g.tunnel("raw.test:22")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert await echoes(reader, writer)
        writer.close()
        told = [(r["event"], r.get("reason") or r.get("outcome")) for r in g.records()]
        assert told[:6] == [
            ("decision", "audit_unavailable"), ("decision", "audit_unavailable"), ("decision", "audit_unavailable"),
            ("decision", "not_listed"), ("end", "closed"), ("decision", "listed"),
        ]  # fmt: skip
    assert json.loads((tmp_path / "before.jsonl").read_text())["reason"] == "listed"


@contextlib.contextmanager
def _limited(directory: Path) -> Iterator[Callable[[], None]]:
    """A file that may not grow beyond a few records: writes are cut short, then fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def free() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        yield free
    finally:
        free()


@contextlib.contextmanager
def _tiny(directory: Path) -> Iterator[Callable[[], None]]:
    """A file system of one page beside the one that something else fills."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", directory], check=True)
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(4096))
    try:
        yield ballast.unlink
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


DISKS = [_limited, _tiny] if os.geteuid() == 0 else [_limited]


@pytest.mark.parametrize("disk", DISKS)
async def test_a_full_disk_stops_what_is_new_and_room_on_it_lets_it_go_on(
    tmp_path: Path, disk: Callable[[Path], contextlib.AbstractContextManager[Callable[[], None]]]
) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    with disk(directory) as free:
        async with upstream(Http()) as up, gate(directory, (rule("allowed.test"),), hosts=hosts(up)) as g:
            async with asyncio.timeout(30):
                while await status(g) == 200:
                    pass
            reached = up.connections
            for _ in range(3):
                assert await status(g) == 503
            assert await status(g, EVIL) == 403
            assert up.connections == reached

            free()
            assert await status(g) == 200
            await until(lambda: len(g.gateway.traffic) == 0)
            lines = g.audit.read_bytes().split(b"\n")
            whole = [json.loads(line) for line in lines if line.endswith(b"}")]
            torn = [line for line in lines if line and not line.endswith(b"}")]
            assert len(torn) <= 1  # the one that was being written when the disk was full
            allowed = [r for r in whole if r["event"] == "decision" and r["verdict"] == "allow"]
            assert len(allowed) == up.connections
            assert [r["reason"] for r in whole if r.get("verdict") == "deny"] == ["audit_unavailable"] * 4 + [
                "not_listed"
            ]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can make a file system read-only")
async def test_a_log_on_a_disk_gone_read_only_stops_what_is_new(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    with _tiny(directory) as free:
        free()
        async with upstream(Http()) as up, gate(directory, (rule("allowed.test"),), hosts=hosts(up)) as g:
            g.gateway.audit.close()  # or the file that is open would keep it busy
            subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
            assert await status(g) == 503
            assert up.connections == 0
            subprocess.run(["mount", "-o", "remount,rw", directory], check=True)
            assert await status(g) == 200


async def test_the_log_is_followed_when_it_is_rotated_under_load(tmp_path: Path) -> None:
    async with town(tmp_path, Http()) as (g, _):
        for turn in range(5):
            assert await asyncio.gather(*(status(g) for _ in range(10))) == [200] * 10
            await until(lambda: len(g.gateway.traffic) == 0)
            g.audit.rename(tmp_path / f"old.{turn}")
        records = [json.loads(line) for old in tmp_path.glob("old.*") for line in old.read_text().splitlines()]
        assert sorted(r["id"] for r in records if r["event"] == "decision") == list(range(1, 51))
        assert sorted(r["id"] for r in records if r["event"] == "end") == list(range(1, 51))


async def test_a_clock_that_jumps_moves_nothing_but_time_stamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path) as (g, _):
        reader, writer, _ = await g.tunnel("raw.test:22")
        for jump in (10**17, -(10**17)):
            monkeypatch.setattr(audit_module.time, "time_ns", lambda jump=jump: time.monotonic_ns() + 2 * 10**18 + jump)
            g.gateway.traffic._sweep()
            assert await echoes(reader, writer)
            assert await status(g, EVIL) == 403
        writer.close()


# Too many of something


async def test_a_thousand_slow_clients_do_not_stop_a_good_one(tmp_path: Path) -> None:
    limits = LIMITS._replace(handshake=1.0)
    async with town(tmp_path, Http(), limits=limits) as (g, _):
        slow = await asyncio.gather(*(g.connect() for _ in range(1000)))
        for number, (_, writer) in enumerate(slow):
            writer.write(
                [b"", b"GET ", b"\x05", b"POST http://allowed.test/ HTTP/1.1\r\nHost: a", b"\x05\x02\x00"][number % 5]
            )
        await until(lambda: len(g.reception._guests) == 1000)
        assert await status(g) == 200
        ends = await asyncio.gather(*(asyncio.wait_for(reader.read(), 15) for reader, _ in slow))
        assert {end[:12] for end in ends} == {b"", b"HTTP/1.1 408"}
        assert await status(g) == 200
        for _, writer in slow:
            writer.close()
        await until(lambda: not g.reception._guests)


async def test_two_thousand_idle_tunnels_all_still_echo(tmp_path: Path) -> None:
    many = min(2000, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500) // 4)  # four sockets each, all of them ours
    async with town(tmp_path) as (g, up):
        tunnels = []
        for _ in range(0, many, 100):
            tunnels += await asyncio.gather(*(g.tunnel("raw.test:22") for _ in range(100)))
        assert all(answer.startswith(b"HTTP/1.1 200 ") for _, _, answer in tunnels)
        assert len(g.gateway.traffic) == len(tunnels)
        await until(lambda: up.connections == len(tunnels))
        g.gateway.traffic._sweep()
        words = [b"tunnel %d" % number for number in range(len(tunnels))]
        said = zip(tunnels, words, strict=True)
        assert all(await asyncio.gather(*(echoes(reader, writer, word) for (reader, writer, _), word in said)))
        for _, writer, _ in tunnels:
            writer.close()
        await until(lambda: len(g.gateway.traffic) == 0)
        await until(lambda: len(g.records(event="end")) >= len(words))  # the last of them go with the end of a turn
        ends = g.records(event="end")
        assert sorted((end["up"], end["down"]) for end in ends) == sorted((len(word), len(word)) for word in words)


def sockets_of(pid: int) -> int:
    """Not counting pipes: a few of them are kept for the next bulk."""
    numbers = os.listdir(f"/proc/{pid}/fd")
    found = [
        os.readlink(f"/proc/{pid}/fd/{number}") for number in numbers if os.path.lexists(f"/proc/{pid}/fd/{number}")
    ]
    return sum(name.startswith("socket:") for name in found)


async def test_out_of_descriptors_some_are_refused_and_none_are_lost(tmp_path: Path) -> None:
    tunnel = b"CONNECT raw.test:22 HTTP/1.1\r\nHost: raw.test\r\n\r\n"
    async with upstream(echo) as up:
        process = GateProcess(tmp_path / "gate", Rules({"raw.test": "ports: [22]"}, {"raw.test": up.port}))
        pid = process.process.pid
        try:
            idle, room = sockets_of(pid), len(os.listdir(f"/proc/{pid}/fd")) + 21
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (room, room))
            clients = [await asyncio.open_connection("127.0.0.1", process.port) for _ in range(40)]
            for _, writer in clients:
                writer.write(tunnel)
            inside = []
            for reader, writer in clients:  # every one is answered at last: whoever is refused makes room
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
                assert head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 Refused by egress: limit"))
                inside.append((reader, writer)) if b" 200 " in head else writer.close()
            assert 1 <= len(inside) <= 10
            for reader, writer in inside:
                assert await echoes(reader, writer, bytes(200 * KIB))  # perhaps with no descriptor left for a pipe
                writer.close()
            await until(lambda: sockets_of(pid) == idle)
            reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
            writer.write(tunnel)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await echoes(reader, writer)
            writer.close()
        finally:
            await asyncio.to_thread(process.stop)


# Peers that misbehave


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port whose queue is full: what knocks is dropped without a word."""
    with socket.socket() as sock, contextlib.ExitStack() as stack:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        for _ in range(2):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(sock.getsockname())
        yield sock.getsockname()[1]


async def test_an_upstream_that_answers_nothing_is_given_up_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    rules = (rule("allowed.test"), rule("hole.test:22"), rule("hole.test"))
    with black_hole() as hole:
        limits = LIMITS._replace(connect=0.3)
        async with upstream(Http()) as up:
            names = {"allowed.test": up.port, "hole.test": hole}
            async with gate(tmp_path, rules, hosts=names, limits=limits) as g:
                lost = [asyncio.create_task(status(g, GET.replace(b"allowed", b"hole"))) for _ in range(50)]
                tunnel = asyncio.create_task(g.tunnel("hole.test:22"))
                await until(lambda: len(g.gateway.traffic) == 51)
                assert await status(g) == 200
                assert not any(task.done() for task in lost)
                assert await asyncio.gather(*lost) == [502] * 50
                _, writer, answer = await tunnel
                assert answer.startswith(b"HTTP/1.1 502 Refused by egress: unreachable\r\n")
                writer.close()
                assert len(g.records(event="end", outcome="unreachable")) == 51


async def test_a_client_that_gives_up_while_it_is_connected_is_let_go(tmp_path: Path) -> None:
    with black_hole() as hole:
        limits = LIMITS._replace(connect=0.3)
        async with gate(tmp_path, (rule("hole.test:22"),), hosts={"hole.test": hole}, limits=limits) as g:
            await g.put(b"CONNECT hole.test:22 HTTP/1.1\r\nHost: hole.test\r\n\r\n")
            await until(lambda: g.records(event="end"))
            await until(lambda: not g.reception._guests)


class Murder:
    """An upstream that resets each connection after so many bytes."""

    def __init__(self, after: int) -> None:
        self.after = after

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.after:
            await reader.readexactly(self.after)
        reset(writer)


@pytest.mark.parametrize("after", [0, 1, 100_000])
async def test_an_upstream_that_resets_is_a_reset_for_the_client(tmp_path: Path, after: int) -> None:
    async with town(tmp_path, Murder(after)) as (g, _):
        for _ in range(5):
            reader, writer = await g.connect()
            writer.write(b"CONNECT raw.test:22 HTTP/1.1\r\nHost: raw.test\r\n\r\n" + bytes(100_000))
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
                await reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):  # the stream has told once
                assert await asyncio.wait_for(reader.read(), 15) == b""
            assert reader.exception() is not None or reader.at_eof()
            writer.close()
        await until(lambda: len(g.records(event="end")) == 5)
        outcomes = {end["outcome"] for end in g.records(event="end")}
        assert outcomes <= {"reset", "unreachable"}


async def test_a_client_that_is_killed_takes_its_tunnel_with_it(tmp_path: Path) -> None:
    sink = Sink()
    async with town(tmp_path, sink) as (g, up):
        for size in (0, 1, 300_000):
            _, writer, _ = await g.tunnel("raw.test:22")
            writer.write(bytes(size))
            await until(lambda size=size: len(sink.got) == size)
            reset(writer)
            await until(lambda: up.open == 0)
            sink.got.clear()
        assert sink.ended == ["reset"] * 3
        assert [(end["outcome"], end["up"]) for end in g.records(event="end")] == [
            ("reset", 0), ("reset", 1), ("reset", 300_000),
        ]  # fmt: skip


async def test_a_thousand_clients_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    """In every phase there is: silent, half a request, refused, tunnelled, answered, reset at once."""
    chance = random.Random(5)
    tunnel = b"CONNECT raw.test:22 HTTP/1.1\r\nHost: raw.test\r\n\r\n"
    post = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 50000\r\n\r\n"
    phases = [
        b"",
        b"G",
        GET[:-2],
        EVIL,
        tunnel,
        tunnel + bytes(90_000),
        GET,
        GET + EVIL + GET,
        post,
        post + bytes(20_000),
    ]
    phases += [b"\x05", b"\x05\x01\x00" + socks_request(b"raw.test", 22) + b"x", b"\x04", b"\x16\x03", b"\x00"]

    async def come_and_go(g: Kit) -> None:
        _, writer = await g.connect()
        writer.write(chance.choice(phases))
        for _ in range(chance.choice([0, 1, 3, 10])):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            reset(writer)
        else:
            writer.close()

    async with town(tmp_path) as (g, up):
        for _ in range(10):
            await asyncio.gather(*(come_and_go(g) for _ in range(100)))
        await until(lambda: not g.reception._guests)
        await until(lambda: up.open == 0)
        assert len(g.gateway.traffic) == 0
        reader, writer, _ = await g.tunnel("raw.test:22")
        assert await echoes(reader, writer)
        writer.close()
        allowed = {r["id"] for r in g.records(event="decision", verdict="allow")}
        await until(
            lambda: {r["id"] for r in g.records() if r["event"] == "end" or r.get("verdict") == "deny"} >= allowed
        )


# All at once


async def test_many_tunnels_at_once_carry_every_byte_both_ways_and_count_them(tmp_path: Path) -> None:
    """Random data, hashed at both ends; ends come at odd times; small tunnels copy and large ones splice."""
    chance = random.Random(4)
    sizes = [0, 1, 1000, 64 * KIB, 64 * KIB + 1, 500_000, 2 * MIB + 3]
    plans = [(chance.choice(sizes), chance.choice(sizes)) for _ in range(60)]
    payloads = {size: chance.randbytes(size) for size in sizes}
    digests = {size: hashlib.sha256(data).digest() for size, data in payloads.items()}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Is told how much is coming and how much is wanted; answers the digest of what came, behind the rest."""
        up, down = (int(word) for word in (await reader.readline()).split())
        digest = hashlib.sha256(await _exactly(reader, up)).digest()
        await _in_pieces(writer, payloads[down] + digest)
        assert await reader.read() == b""
        writer.write_eof()

    async def travel(g: Kit, up: int, down: int, way: int) -> None:
        reader, writer, _ = await (g.tunnel("raw.test:22") if way % 2 else g.socks(b"raw.test", 22))
        sending = asyncio.create_task(_in_pieces(writer, b"%d %d\n" % (up, down) + payloads[up]))
        got = await _exactly(reader, down + 32)
        await sending
        writer.write_eof()
        assert await reader.read() == b""
        assert hashlib.sha256(got[:-32]).digest() == digests[down]
        assert got[-32:] == digests[up]
        writer.close()

    async with town(tmp_path, serve) as (g, _):
        async with asyncio.timeout(40):
            await asyncio.gather(*(travel(g, up, down, way) for way, (up, down) in enumerate(plans)))
        await until(lambda: len(g.gateway.traffic) == 0)
        ends = g.records(event="end")
        assert {end["outcome"] for end in ends} == {"closed"}
        counts = sorted((end["up"], end["down"]) for end in ends)
        assert counts == sorted((up + len(b"%d %d\n" % (up, down)), down + 32) for up, down in plans)
        assert g.gateway.traffic.pipes._free  # some were spliced


async def _in_pieces(writer: asyncio.StreamWriter, data: bytes) -> None:
    chance = random.Random(len(data))
    at = 0
    while at < len(data):
        size = chance.choice([1, 1000, 64 * KIB, 300_000])
        writer.write(data[at : at + size])
        await writer.drain()
        at += size


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(size), 30)
