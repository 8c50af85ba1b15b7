"""What can be asked of a gate: its events, rules, reasons, draft and numbers."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from controlkit import Controlled, Event, controlled, first
from gatekit import PATIENCE, Http, descriptors, gate, rule, until, upstream

from egress.control.app import Control
from egress.model import Host, Target

LOOPS = "asyncio", "uvloop"


async def visit(c: Controlled, host: str) -> None:
    await c.kit.ask(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())


def hosts(event: Event) -> list[str]:
    return [each["host"] for each in event.data]


async def test_decisions_come_as_they_happen(tmp_path: Path) -> None:
    async with controlled(tmp_path) as c, c.watching() as events:
        state = await first(events, "state")
        assert (state.data["session"], state.data["doors"], state.data["blocked"]) == ("test", ["p"], 0)
        await visit(c, "evil.test")
        event = await first(events, "records")
        assert (hosts(event), event.number) == (["evil.test"], 1)
        assert (await first(events, "state")).data["blocked"] == 1


async def test_a_watcher_that_lost_its_connection_goes_on_where_it_was(tmp_path: Path) -> None:
    async with controlled(tmp_path) as c:
        for name in ("one.test", "two.test", "three.test"):
            await visit(c, name)
        async with c.watching() as events:
            assert hosts(await first(events, "records")) == ["one.test", "two.test", "three.test"]
        async with c.watching(Last_Event_ID="2") as events:
            assert hosts(await first(events, "records")) == ["three.test"]
        async with c.watching("/api/events?after=1", Last_Event_ID="2") as events:
            assert hosts(await first(events, "records")) == ["three.test"]
        async with c.watching("/api/events?tail=2") as events:
            assert hosts(await first(events, "records")) == ["two.test", "three.test"]


@pytest.mark.parametrize("nonsense", ["-1", "x", "1" * 40, "１"])
async def test_a_number_that_is_none_is_not_taken_for_one(tmp_path: Path, nonsense: str) -> None:
    async with controlled(tmp_path) as c:
        await visit(c, "one.test")
        async with c.watching(Last_Event_ID=nonsense) as events:
            assert hosts(await first(events, "records")) == ["one.test"]


async def test_a_question_is_told_answered_and_gone(tmp_path: Path) -> None:
    async with controlled(tmp_path) as c, c.watching() as events:
        assert (await first(events, "questions")).data == {"asking": True, "pending": []}
        asked = asyncio.create_task(c.questions.ask("p", Target(Host("asked.test"), 443), "not_listed"))
        (question,) = (await first(events, "questions")).data["pending"]
        assert (question["host"], question["port"], question["persona"]) == ("asked.test", 443, "p")
        body = json.dumps({"id": question["id"], "choice": "session"}).encode()
        assert (await c.say("POST /api/answer", body, unix=True)).body == b'{"taken":true}'
        assert await asyncio.wait_for(asked, PATIENCE) == "session"
        assert (await first(events, "questions")).data["pending"] == []
        assert (await c.say("POST /api/answer", body, unix=True)).body == b'{"taken":false}'


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"id": "1", "choice": "once"}', b'{"id": 1, "choice": "maybe"}', b"\xff"]
)
async def test_what_is_no_answer_is_refused(tmp_path: Path, body: bytes) -> None:
    async with controlled(tmp_path) as c:
        assert (await c.say("POST /api/answer", body, unix=True)).status == 400


async def test_rules_are_listed_with_where_they_stand(tmp_path: Path) -> None:
    async with controlled(tmp_path, allow=(rule("allowed.test:8443"),), deny=(rule("denied.test"),)) as c:
        told = json.loads((await c.say("GET /api/rules?persona=p", unix=True)).body)
        assert told["allow"] == [{"host": "allowed.test", "ports": [8443], "terms": "private", "source": "test.yaml:1"}]
        assert [(each["host"], each["ports"]) for each in told["deny"]] == [("denied.test", [])]
        assert (await c.say("GET /api/rules?persona=nobody", unix=True)).status == 404


@pytest.mark.parametrize(
    ("target", "verdict", "reason"),
    [
        ("allowed.test", "allow", "listed"),
        ("allowed.test:22", "deny", "port_not_listed"),
        ("denied.test", "deny", "denied"),
        ("evil.test", "deny", "not_listed"),
        ("169.254.169.254:80", "deny", "metadata_address"),
        ("%3Cscript%3E", "deny", "malformed_host"),
    ],
)
async def test_why_gives_the_verdict_and_its_reason(tmp_path: Path, target: str, verdict: str, reason: str) -> None:
    async with controlled(tmp_path, allow=(rule("allowed.test"),), deny=(rule("denied.test"),)) as c:
        told = json.loads((await c.say(f"GET /api/why?persona=p&target={target}", unix=True)).body)
        assert (told["verdict"], told["reason"]) == (verdict, reason)
        assert told["sentence"]


async def test_why_says_what_would_allow_it(tmp_path: Path) -> None:
    async with controlled(tmp_path) as c:
        told = json.loads((await c.say("GET /api/why?persona=p&target=evil.test", unix=True)).body)
        assert told["remedy"] == ["--allow evil.test"]


async def test_what_was_let_through_is_drafted(tmp_path: Path) -> None:
    async with (
        upstream(Http()) as server,
        controlled(tmp_path, allow=(rule("allowed.test"),), hosts={"allowed.test": server.port}) as c,
    ):
        await visit(c, "allowed.test")
        await visit(c, "evil.test")
        text = (await c.say("GET /api/draft?persona=p", unix=True)).body.decode()
        assert "- {host: allowed.test" in text
        assert "- evil.test" not in text


async def test_numbers_are_on_a_listener_of_their_own_which_has_nothing_else(tmp_path: Path) -> None:
    async with controlled(tmp_path, metrics=("127.0.0.1", 0)) as c:
        await visit(c, "evil.test")
        port = c.control.listeners[1].getsockname()[1]
        answer = await c.say("GET /metrics", port=port)
        assert answer.fields["content-type"].startswith("text/plain; version=0.0.4")
        series = 'egress_decisions_total{persona="p",verdict="deny",reason="not_listed"} 1\n'
        assert series in answer.body.decode()
        assert "evil.test" not in answer.body.decode()
        for path in ("/", "/api/events", "/api/rules?persona=p"):
            assert (await c.say(f"GET {path}", port=port)).status == 404
        assert ("127.0.0.1", port) in c.kit.gateway.listeners.exact


async def test_nothing_is_left_when_it_closes(tmp_path: Path) -> None:
    async with gate(tmp_path) as kit:
        tasks, files = asyncio.all_tasks(), descriptors()
        control = Control(kit.gateway)
        await control.start(unix=str(tmp_path / "c.sock"), metrics=("127.0.0.1", 0))
        c = Controlled(kit, control, None, tmp_path / "c.sock")  # type: ignore[arg-type]
        async with c.watching() as events:
            await first(events, "state")
            await control.close()
            assert [event async for event in events if event.kind == "records"] == []
        assert not os.path.exists(tmp_path / "c.sock")
        await until(lambda: asyncio.all_tasks() <= tasks and len(descriptors()) <= len(files))
        await kit.ask(b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
        assert control.feed.newest == 0


async def test_only_so_many_may_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.control.desk.MOST_STREAMS", 1)
    async with controlled(tmp_path) as c, c.watching() as events:
        await first(events, "state")
        assert (await c.say("GET /api/events", unix=True)).status == 503
