"""A passage, from its decision to its end, and the look once a second at all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gatekit import rule, tcp_pair, until

from egress.audit import Audit
from egress.limits import LIMITS, Limits
from egress.model import Decision, Host, Target, Verdict, Via
from egress.net.relay import Outcome
from egress.net.stream import Closed, Stream
from egress.passage import Passage, Traffic
from egress.refusals import Reason, Refused

LOOPS = "asyncio", "uvloop"
pytestmark = pytest.mark.usefixtures("nothing_left")

ALLOW = Decision(Verdict.ALLOW, Reason.LISTED, rule("allowed.test"))


class Scene:
    """A passage between two real connections; the far ends are the test's."""

    def __init__(self, tmp_path: Path, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
        self.loop = asyncio.get_running_loop()
        (near_client, self.client), (near_upstream, self.upstream) = pairs
        self.log = tmp_path / "audit.jsonl"
        self.audit = Audit(str(self.log), "test")
        self.near = Stream(near_client, self.loop)
        self.far = Stream(near_upstream, self.loop)
        target = Target(Host("allowed.test"), 443)
        self.passage = Passage(self.audit, "p", Via.CONNECT, target, ALLOW, self.near, self.loop.time())

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def traffic(self, limits: Limits = LIMITS) -> Traffic:
        traffic = Traffic(self.loop, limits)
        traffic.enter(self.passage)
        return traffic


@pytest.fixture
async def scene(tmp_path: Path) -> Any:
    with tcp_pair() as first, tcp_pair() as second:
        scene = Scene(tmp_path, [first, second])
        yield scene
        scene.near.close()
        scene.far.close()
        scene.audit.close()


def is_reset(sock: socket.socket) -> bool:
    try:
        sock.recv(1)
    except ConnectionResetError:
        return True
    return False


async def test_it_is_over_exactly_once(scene: Scene) -> None:
    passage = scene.passage
    passage.announce()
    passage.up, passage.down = 3, 4
    passage.finish("closed", scene.loop.time())
    passage.finish("reset", scene.loop.time())
    passage.refuse(Refused(Reason.SNI_MISMATCH), scene.loop.time())
    decision, end = scene.records()
    assert (decision["event"], end["event"], end["outcome"], end["up"], end["down"]) == (
        "decision",
        "end",
        "closed",
        3,
        4,
    )


async def test_a_refusal_on_the_way_is_a_denial_and_a_failure_is_an_end(scene: Scene) -> None:
    scene.passage.refuse(Refused(Reason.RESOLVED_PRIVATE), scene.loop.time())
    (denial,) = scene.records()
    assert (denial["event"], denial["verdict"], denial["reason"]) == ("decision", "deny", "resolved_private")
    other = Passage(scene.audit, "p", Via.HTTP, scene.passage.target, ALLOW, scene.near, scene.loop.time())
    other.refuse(Refused(Reason.UNREACHABLE), scene.loop.time())
    end = scene.records()[1]
    assert (end["event"], end["outcome"], end["id"]) == ("end", "unreachable", other.number)
    assert end["ip"] is None


async def test_its_address_is_that_of_its_peer(scene: Scene) -> None:
    assert scene.passage.connected(scene.far) is scene.far
    assert scene.passage.ip == "127.0.0.1"


async def test_an_upstream_that_is_gone_when_it_is_reached_cannot_be_reached(scene: Scene) -> None:
    Stream(scene.upstream, scene.loop).abort()
    await until(lambda: scene.far.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7)
    with pytest.raises(Refused) as caught:
        scene.passage.connected(scene.far)
    assert caught.value.reason is Reason.UNREACHABLE


async def test_what_was_stopped_on_its_way_never_arrives(scene: Scene) -> None:
    scene.passage.stop(Outcome.REVOKED)
    with pytest.raises(Closed):
        scene.passage.connected(scene.far)
    scene.passage.finish("reset", scene.loop.time())
    assert scene.records()[0]["outcome"] == "revoked"


async def test_stopping_cuts_both_ends(scene: Scene) -> None:
    scene.passage.connected(scene.far)
    scene.passage.stop(Outcome.REVOKED)
    assert is_reset(scene.client)
    assert is_reset(scene.upstream)
    assert scene.passage.is_stopped


@contextlib.contextmanager
def sweeping(traffic: Traffic) -> Iterator[Traffic]:
    try:
        yield traffic
    finally:
        traffic.close()


async def relayed(scene: Scene, traffic: Traffic) -> asyncio.Task[Outcome]:
    scene.passage.connected(scene.far)
    task = asyncio.create_task(traffic.relay(scene.passage))
    await until(lambda: scene.passage.carrier)
    return task


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [(LIMITS._replace(idle=-1), Outcome.IDLE), (LIMITS._replace(lifetime=-1), Outcome.LIFETIME)],
)
async def test_the_look_once_a_second_holds_tunnels_to_their_limits(
    scene: Scene, limits: Limits, outcome: Outcome
) -> None:
    with sweeping(scene.traffic(limits)) as traffic:
        task = await relayed(scene, traffic)
        traffic._sweep()
        assert await task is outcome
        assert is_reset(scene.client)


async def test_what_moves_is_not_idle(scene: Scene) -> None:
    with sweeping(scene.traffic()) as traffic:
        task = await relayed(scene, traffic)
        limits = LIMITS._replace(idle=5)
        now = scene.loop.time()
        for _ in range(3):
            scene.client.sendall(b"x")
            await until(lambda: scene.passage.counts()[0] > 0)
            now += 4
            scene.passage.check(now, limits)
            assert not task.done()
            await asyncio.to_thread(scene.upstream.recv, 1)
            seen = scene.passage.counts()[0]
            scene.client.sendall(b"y")
            await until(lambda seen=seen: scene.passage.counts()[0] > seen)
        scene.passage.check(now + 3, limits)
        scene.passage.check(now + 10, limits)
        assert await task is Outcome.IDLE


async def test_a_wait_for_an_answer_ends_when_the_client_has_left(scene: Scene) -> None:
    with sweeping(scene.traffic()) as traffic:
        traffic._sweep()
        scene.passage.connected(scene.far)
        traffic._sweep()
        assert not scene.passage.is_stopped
        scene.client.shutdown(socket.SHUT_WR)
        await until(lambda: traffic._sweep() or scene.passage.is_stopped)
        assert is_reset(scene.upstream)


async def test_one_bad_passage_does_not_end_the_looks(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with sweeping(scene.traffic()) as traffic:
        monkeypatch.setattr(Passage, "check", lambda *_: 1 / 0)
        before = traffic._timer
        with pytest.raises(ZeroDivisionError):
            traffic._sweep()
        assert traffic._timer is not before
        assert not traffic._timer.cancelled()
        before.cancel()


async def test_all_or_some_can_be_stopped(scene: Scene) -> None:
    with sweeping(scene.traffic()) as traffic:
        task = await relayed(scene, traffic)
        assert traffic.stop(Outcome.REVOKED, unless=lambda passage: passage.target.port == 443) == 0
        assert len(traffic) == 1
        assert traffic.stop(Outcome.REVOKED, unless=lambda passage: passage.target.port == 80) == 1
        assert await task is Outcome.REVOKED
        traffic.leave(scene.passage)
        traffic.leave(scene.passage)
        assert len(traffic) == 0


async def test_closing_stops_what_is_open_and_gives_its_pipes_back(scene: Scene) -> None:
    traffic = scene.traffic()
    task = await relayed(scene, traffic)
    scene.client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            scene.client.send(bytes(65536))
    await until(lambda: scene.passage.carrier.up.held_up)
    traffic.close()
    assert await task is Outcome.STOPPED
    assert traffic.pipes._free == []
