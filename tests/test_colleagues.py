"""What workers tell each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gatekit import Kit, gate, until

from egress.auditrecords import DecisionRecord, EndRecord, FloodRecord, GapRecord, PolicyRecord, Record
from egress.colleagues import Answer, Ask, Here, Line, Message, PutUp, pair
from egress.following import Following
from egress.leading import Leading, read_record
from egress.metrics import Metrics, Now, Times
from egress.model import Decision, Host, Target, Verdict, Via
from egress.questions import Choice, NotAsked, Questions
from egress.refusals import Reason

DENY = Decision(Verdict.DENY, Reason.NOT_LISTED)
ALLOW = Decision(Verdict.ALLOW, Reason.LISTED)
NEW = Target(Host("new.test"), 443)


class Both:
    """A worker that leads and one that follows it, each with a gate."""

    def __init__(self, lead: Kit, other: Kit, leading: Leading, following: Following, questions: Questions) -> None:
        self.lead, self.other, self.leading, self.following, self.questions = lead, other, leading, following, questions


@asynccontextmanager
async def both(tmp_path: Path, policies: list[str] | None = None) -> AsyncIterator[Both]:
    loop = asyncio.get_running_loop()
    for name in ("lead", "other"):
        (tmp_path / name).mkdir()
    with contextlib.ExitStack() as stack:
        ours, theirs = map(stack.enter_context, pair())
        async with gate(tmp_path / "lead") as lead, gate(tmp_path / "other") as other:
            questions = Questions(loop)
            leading = Leading([Line(ours, loop)], lead.gateway, questions)
            following = Following(
                Line(theirs, loop), loop, lambda: policies.append("new") if policies is not None else None
            )
            yield Both(lead, other, leading, following, questions)
            following.close()
            questions.close()
            await leading.close()


def asking(both: Both, target: Target = NEW) -> asyncio.Task[Choice | None]:
    return asyncio.ensure_future(both.following.questions.ask("p", target, Reason.NOT_LISTED))


async def test_records_of_one_are_shown_to_whoever_watches_the_other(tmp_path: Path) -> None:
    shown: list[Record] = []
    async with both(tmp_path) as b:
        b.lead.gateway.audit.subscribe(shown.append)
        b.following.tell(b.other.gateway)
        written: list[Record] = []
        b.other.gateway.audit.subscribe(written.append)
        b.other.gateway.audit.decision(2, "p", Via.CONNECT, "evil.test", 443, DENY)
        b.other.gateway.audit.end(4, "p", "127.0.0.1", 1, 2, 3, "closed")
        await until(lambda: len(shown) == 2)
        assert shown == written


async def test_thousands_of_records_arrive_all_and_in_order(tmp_path: Path) -> None:
    shown: list[int] = []
    async with both(tmp_path) as b:
        b.lead.gateway.audit.subscribe(lambda record: shown.append(record.id))
        b.following.tell(b.other.gateway)
        for number in range(5000):
            b.other.gateway.audit.decision(number, "p", Via.CONNECT, "evil.test", 443, DENY)
        await until(lambda: len(shown) == 5000)
        assert shown == list(range(5000))


async def test_what_is_counted_of_one_is_added_to_the_other(tmp_path: Path) -> None:
    async with both(tmp_path) as b:
        b.lead.gateway.timings = metrics = Metrics(lambda: {"p"})
        b.following.tell(b.other.gateway)
        b.other.gateway.audit.decision(2, "p", Via.CONNECT, "evil.test", 443, DENY)
        b.other.gateway.audit.decision(4, "p", Via.CONNECT, "good.test", 443, ALLOW)
        assert b.other.gateway.timings is not None
        b.other.gateway.timings.observe("dial", 0.3)
        tally = b.lead.gateway.audit.tally
        await until(lambda: (tally.allowed, sum(tally.blocked.values())) == (1, 1))
        assert "egress_dial_seconds_count 1" in metrics.text(Now("1", 0, 0, 1, audit_failing=False))


async def test_a_log_that_fails_for_one_is_trouble_for_all(tmp_path: Path) -> None:
    async with both(tmp_path) as b:
        b.other.gateway.audit.failing = "no space left"
        b.following.tell(b.other.gateway)
        await until(lambda: b.lead.gateway.audit.trouble == "no space left")
        assert b.lead.gateway.audit.failing is None
        b.other.gateway.audit.failing = None
        await until(lambda: b.lead.gateway.audit.trouble is None)


async def test_who_follows_hears_of_another_policy(tmp_path: Path) -> None:
    policies: list[str] = []
    async with both(tmp_path, policies) as b:
        b.leading.put_up()
        await until(lambda: policies == ["new"])


@pytest.mark.parametrize("choice", Choice)
async def test_a_question_is_asked_and_answered_elsewhere(tmp_path: Path, choice: Choice) -> None:
    async with both(tmp_path) as b:
        waiting = asking(b)
        await until(b.questions.pending)
        assert [(each.persona, each.host, each.port) for each in b.questions.pending()] == [("p", "new.test", 443)]
        b.questions.answer(1, choice)
        assert await waiting is choice


async def test_a_question_that_nobody_waits_for_any_more_is_withdrawn(tmp_path: Path) -> None:
    async with both(tmp_path) as b:
        waiting = asking(b)
        await until(b.questions.pending)
        waiting.cancel()
        await until(lambda: not b.questions.pending())


async def test_what_is_not_asked_there_is_not_asked_here(tmp_path: Path) -> None:
    async with both(tmp_path) as b:
        b.questions.close()
        with pytest.raises(NotAsked):
            await asking(b)


async def test_what_a_worker_asked_that_died_is_withdrawn_when_its_successor_begins(tmp_path: Path) -> None:
    async with both(tmp_path) as b:
        waiting = asking(b)
        await until(b.questions.pending)
        b.following._line.send(Here())
        await until(lambda: not b.questions.pending())
        waiting.cancel()


async def test_questions_are_asked_again_of_a_successor() -> None:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        ours, theirs = map(stack.enter_context, pair())
        heard: list[Message] = []
        lead = Line(ours, loop)
        lead.serve(heard.append)
        following = Following(Line(theirs, loop), loop, lambda: None)
        waiting = asyncio.ensure_future(following.questions.ask("p", NEW, Reason.NOT_LISTED))
        await until(lambda: len(heard) == 2)
        lead.send(Here())
        await until(lambda: len(heard) == 3)
        assert heard[1] == heard[2]
        assert isinstance(heard[1], Ask)
        lead.send(Answer(heard[1].number + 1, Choice.ALWAYS))  # to another, who is no longer there
        lead.send(Answer(heard[1].number, Choice.NO))
        assert await waiting is Choice.NO
        following.close()
        lead.close()


async def test_a_line_that_is_full_says_so_and_a_question_on_it_is_not_asked() -> None:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        _, theirs = map(stack.enter_context, pair())
        line = Line(theirs, loop)
        while line.send(PutUp()):
            pass
        following = Following(line, loop, lambda: None)
        with pytest.raises(NotAsked):
            await following.questions.ask("p", NEW, Reason.NOT_LISTED)
        following.close()


def test_every_kind_of_record_is_read_as_it_was_written() -> None:
    import msgspec

    common = {"ts": "2026-11-18T06:00:00.123456Z", "session": "k3f9", "persona": "p", "id": 1}
    said = {"via": Via.DNS, "host": "a.test", "port": None, "verdict": Verdict.DENY, "reason": Reason.LIMIT}
    records: list[Record] = [
        DecisionRecord(**common, **said, rule=None),  # type: ignore[arg-type]
        FloodRecord(**common, **said, rule=None, count=7),  # type: ignore[arg-type]
        EndRecord(**common, ip=None, up=1, down=2, ms=3, outcome="closed", status=200),  # type: ignore[arg-type]
        PolicyRecord(**common, generation=2, error=None),  # type: ignore[arg-type]
        GapRecord(**common, lost=3),  # type: ignore[arg-type]
    ]
    assert [read_record(msgspec.json.encode(record)) for record in records] == records


def test_times_that_were_taken_are_counted_once() -> None:
    times = Times()
    times.observe("dial", 0.3)
    (counts, total) = times.take()["dial"]
    assert (sum(counts), total) == (1, 0.3)
    assert times.take()["dial"] == ([0] * len(counts), 0.0)
    times.add({"dial": (counts, total)})
    assert times.take()["dial"] == (counts, total)
