"""A gate that asks: connections wait, a person answers, and what was said holds as long as it was meant to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gatekit import Http, Kit, gate, until, upstream

from egress import policysources
from egress.counsel import Asking
from egress.model import Host, Target
from egress.policysources import Sources
from egress.policywriter import Keeper
from egress.questions import Choice, Questions
from egress.rules import parse_rule

pytestmark = pytest.mark.scenario


@pytest.fixture(autouse=True)
def _loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of a test are on loopback, and an answer lets public addresses through only."""
    from egress import policy as judge
    from egress.addresses import Kind, classify

    objection = judge._objection
    monkeypatch.setattr(judge, "classify", lambda ip: Kind.PUBLIC if ip == "127.0.0.1" else classify(ip))
    monkeypatch.setattr(judge, "_objection", lambda at, *more: objection(at._replace(own=False), *more))


class Asked(Kit):
    """A gate with a person beside it."""

    desk: Questions

    def get(self, host: str) -> asyncio.Task[bytes]:
        request = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        return asyncio.ensure_future(self.ask(request.encode()))

    async def answer(self, choice: Choice, waiting: int = 1) -> None:
        """Wait until so many connections wait for the one answer, and give it."""
        await until(lambda: [each.count for each in self.desk.pending()] == [waiting])
        assert self.desk.answer(self.desk.pending()[0].id, choice)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@asynccontextmanager
async def asking(tmp_path: Path, timeout: float = 60, **options) -> AsyncIterator[Asked]:
    loop = asyncio.get_running_loop()
    async with upstream(Http()) as server:
        hosts = dict.fromkeys(("new.test", "other.test", "denied.test"), server.port)
        async with gate(tmp_path, deny=(parse_rule("denied.test"),), hosts=hosts) as kit:
            asked = Asked(kit.gateway, kit.reception, kit.port, kit.audit)
            asked.desk = Questions(loop, timeout, **options)
            kit.gateway.counsel = Asking(asked.desk)
            yield asked
            asked.desk.close()


async def test_once_lets_those_through_that_wait_and_the_next_is_asked_about_again(tmp_path: Path) -> None:
    async with asking(tmp_path) as kit:
        first = [kit.get("new.test") for _ in range(4)]
        await kit.answer(Choice.ONCE, waiting=4)
        assert [status(answer) for answer in await asyncio.gather(*first)] == [200] * 4
        second = kit.get("new.test")
        await kit.answer(Choice.NO)
        assert status(await second) == 403
        records = kit.records(event="decision")
    assert [record["reason"] for record in records] == ["answered"] * 4 + ["declined"]
    assert records[0]["rule"] == "--ask new.test"


async def test_for_the_session_lets_later_ones_through_unasked(tmp_path: Path) -> None:
    async with asking(tmp_path) as kit:
        first = kit.get("new.test")
        await kit.answer(Choice.SESSION)
        assert status(await first) == 200
        assert status(await kit.get("new.test")) == 200
        assert kit.desk.pending() == ()


async def test_a_no_holds_and_says_so_to_the_client(tmp_path: Path) -> None:
    async with asking(tmp_path) as kit:
        first = kit.get("new.test")
        await kit.answer(Choice.NO)
        answers = [await first, await kit.get("new.test")]
    assert [status(answer) for answer in answers] == [403, 403]
    assert all(b"X-Egress-Reason: declined\r\n" in answer for answer in answers)


async def test_no_answer_is_a_no(tmp_path: Path) -> None:
    async with asking(tmp_path, timeout=0.05) as kit:
        answer = await kit.get("new.test")
        assert [record["reason"] for record in kit.records(event="decision")] == ["unanswered"]
    assert status(answer) == 403


async def test_denied_names_and_refused_addresses_are_not_asked_about(tmp_path: Path) -> None:
    async with asking(tmp_path) as kit:
        answers = await asyncio.gather(*map(kit.get, ("denied.test", "169.254.169.254", "10.0.0.7", "localhost")))
        assert kit.desk.pending() == ()
    assert [status(answer) for answer in answers] == [403] * 4


async def test_a_client_that_leaves_takes_its_question_with_it_and_is_on_record(tmp_path: Path) -> None:
    async with asking(tmp_path) as kit:
        _, writer = await kit.connect()
        writer.write(b"CONNECT new.test:443 HTTP/1.1\r\nHost: new.test:443\r\n\r\n and a hello")
        await until(kit.desk.pending)
        writer.close()
        await until(lambda: not kit.desk.pending())
        await until(lambda: kit.records(event="decision"))
        assert [record["reason"] for record in kit.records(event="decision")] == ["not_listed"]


async def test_one_question_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with asking(tmp_path) as kit:
        held, other = kit.get("new.test"), kit.get("other.test")
        await until(lambda: len(kit.desk.pending()) == 2)
        number = next(each.id for each in kit.desk.pending() if each.host == "other.test")
        kit.desk.answer(number, Choice.ONCE)
        assert status(await other) == 200
        assert not held.done()
        await kit.answer(Choice.NO)
        await held


async def test_always_is_in_the_users_file_when_the_request_is_over(tmp_path: Path) -> None:
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "p.yaml").write_text("version: 1\npersonas: {p: {}}\n")
    sources = Sources(str(tmp_path / "shipped"), str(tmp_path / "config"))
    said: list[str] = []
    keeper = Keeper(sources, asyncio.get_running_loop(), said.append)
    async with asking(tmp_path, on_always=keeper.keep) as kit:
        first = kit.get("new.test")
        await kit.answer(Choice.ALWAYS)
        assert status(await first) == 200
        assert status(await kit.get("new.test")) == 200
    await keeper.close()
    assert said == [f"new.test:80 is allowed for persona p from now on, by {tmp_path}/config/p.yaml"]
    persona = policysources.load(sources).personas["p"]
    assert persona.decide(Target(Host("new.test"), 80)).allowed
    assert not persona.decide(Target(Host("new.test"), 443)).allowed
