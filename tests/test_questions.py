"""Questions to a person, and those who wait for the answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gatekit import until

from egress import notify, questions
from egress.model import Host, Target
from egress.notify import Desktop, words_of
from egress.questions import MOST_PENDING, MOST_WAITING, Choice, NotAsked, Question, Questions

EVIL = Target(Host("evil.example"), 443)


def target(number: int, port: int = 443) -> Target:
    return Target(Host(f"h{number}.example"), port)


class Desk(Questions):
    """Questions with nobody to answer them but the test."""

    def __init__(self, timeout: float = 60.0) -> None:
        self.kept: list[tuple[str, Target]] = []
        self.new: list[Question] = []
        keep = lambda persona, target: self.kept.append((persona, target))  # noqa: E731
        super().__init__(asyncio.get_running_loop(), timeout, keep, self.new.append)

    async def asked(self, target: Target = EVIL, persona: str = "p") -> asyncio.Task[Choice | None]:
        """Somebody who waits for an answer."""
        task = asyncio.ensure_future(self.ask(persona, target, "not_listed"))
        await asyncio.sleep(0)
        return task


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    made.close()


async def test_a_question_says_who_wants_what_and_until_when(desk: Desk) -> None:
    task = await desk.asked()
    (question,) = desk.pending()
    assert question[:5] == (1, "p", "evil.example", 443, "not_listed")
    assert question.deadline == question.asked + 60
    assert question.count == 1
    assert desk.new == [question]
    assert desk.answer(1, Choice.ONCE)
    assert await task is Choice.ONCE
    assert desk.pending() == ()


async def test_many_connections_to_one_name_are_one_question(desk: Desk) -> None:
    tasks = [await desk.asked() for _ in range(5)]
    (question,) = desk.pending()
    assert (question.count, len(desk.new)) == (5, 1)
    desk.answer(question.id, Choice.ONCE)
    assert await asyncio.gather(*tasks) == [Choice.ONCE] * 5


async def test_another_port_or_persona_is_another_question(desk: Desk) -> None:
    for persona, port in (("p", 443), ("p", 80), ("q", 443)):
        await desk.asked(Target(EVIL.host, port), persona)
    assert [(each.persona, each.port) for each in desk.pending()] == [("p", 443), ("p", 80), ("q", 443)]
    assert [each.id for each in desk.pending()] == [1, 2, 3]


async def test_once_is_asked_again(desk: Desk) -> None:
    await desk.asked()
    desk.answer(1, Choice.ONCE)
    await desk.asked()
    assert [each.id for each in desk.pending()] == [2]


@pytest.mark.parametrize("choice", [Choice.SESSION, Choice.ALWAYS, Choice.NO])
async def test_the_other_answers_settle_it_for_that_persona_and_port(desk: Desk, choice: Choice) -> None:
    task = await desk.asked()
    desk.answer(1, choice)
    assert await task is choice
    assert await desk.ask("p", EVIL, "not_listed") is choice
    assert len(desk.new) == 1
    await desk.asked(persona="q")
    await desk.asked(Target(EVIL.host, 80))
    assert [(each.persona, each.port) for each in desk.pending()] == [("q", 443), ("p", 80)]


async def test_always_is_kept_once_however_many_wait(desk: Desk) -> None:
    tasks = [await desk.asked() for _ in range(3)]
    desk.answer(1, Choice.ALWAYS)
    await asyncio.gather(*tasks)
    await desk.ask("p", EVIL, "not_listed")
    assert desk.kept == [("p", EVIL)]


@pytest.mark.parametrize("choice", [Choice.ONCE, Choice.SESSION, Choice.NO])
async def test_nothing_else_is_kept(desk: Desk, choice: Choice) -> None:
    await desk.asked()
    desk.answer(1, choice)
    assert desk.kept == []


async def test_an_answer_is_kept_although_the_client_leaves_with_it(desk: Desk) -> None:
    task = await desk.asked()
    desk.answer(1, Choice.ALWAYS)
    task.cancel()
    assert desk.kept == [("p", EVIL)]


async def test_no_answer_in_time_is_none_and_settles_nothing() -> None:
    desk = Desk(timeout=0.01)
    tasks = [await desk.asked(), await desk.asked()]
    assert await asyncio.gather(*tasks) == [None, None]
    assert desk.pending() == ()
    assert not desk.answer(1, Choice.ONCE)
    await desk.asked()
    assert [each.id for each in desk.pending()] == [2]
    desk.close()


async def test_a_client_that_leaves_is_forgotten_and_the_question_with_the_last(desk: Desk) -> None:
    first, second = await desk.asked(), await desk.asked()
    first.cancel()
    await asyncio.sleep(0)
    assert desk.pending()[0].count == 1
    second.cancel()
    await asyncio.sleep(0)
    assert desk.pending() == ()
    assert not desk.answer(1, Choice.ALWAYS)
    assert desk.kept == []


async def test_an_answer_to_no_question_is_none(desk: Desk) -> None:
    assert not desk.answer(1, Choice.ALWAYS)


async def test_so_many_questions_wait_of_one_persona_and_further_ones_are_not_asked(desk: Desk) -> None:
    for number in range(MOST_PENDING):
        await desk.asked(target(number))
    with pytest.raises(NotAsked):
        await desk.ask("p", target(99), "not_listed")
    await desk.asked(target(0))  # joins one that waits
    await desk.asked(target(99), "q")
    assert len(desk.pending()) == MOST_PENDING + 1


async def test_so_many_questions_wait_in_all(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MOST_PENDING_IN_ALL", 3)
    for persona in "abc":
        await desk.asked(persona=persona)
    with pytest.raises(NotAsked):
        await desk.ask("d", EVIL, "not_listed")


async def test_so_many_wait_for_one_answer(desk: Desk) -> None:
    tasks = [await desk.asked() for _ in range(MOST_WAITING)]
    with pytest.raises(NotAsked):
        await desk.ask("p", EVIL, "not_listed")
    desk.answer(1, Choice.ONCE)
    assert set(await asyncio.gather(*tasks)) == {Choice.ONCE}


async def test_who_subscribes_hears_of_every_change_once_a_turn_until_they_end_it(desk: Desk) -> None:
    heard: list[int] = []
    end = desk.subscribe(lambda: heard.append(len(desk.pending())))
    await desk.asked()
    await desk.asked()
    await until(lambda: heard)
    desk.answer(1, Choice.NO)
    await until(lambda: heard[-1] == 0)
    end()
    end()
    count = len(heard)
    await desk.asked(target(2))
    await asyncio.sleep(0)
    assert len(heard) == count


async def test_when_it_closes_those_who_wait_get_no_answer_and_nobody_is_asked_any_more(desk: Desk) -> None:
    task = await desk.asked()
    desk.close()
    assert await task is None
    with pytest.raises(NotAsked):
        await desk.ask("p", EVIL, "not_listed")


# On the desktop

QUESTION = Question(7, "reviewer", "evil.example", 443, "not_listed", 100.0, 160.0, 1)


def test_a_notification_is_plain_words_after_the_end_of_options() -> None:
    words = words_of(QUESTION)
    assert words[words.index("--") + 1] == "egress: may reviewer reach evil.example:443?"
    assert "evil.example:443 is not on the allowlist of persona reviewer" in words[-1]
    assert "in 60 s it is a no" in words[-1]


def test_nothing_in_a_notification_is_markup_or_another_line() -> None:
    words = words_of(QUESTION._replace(host="<b>x</b>\n\x1b[2J&", persona="--help"))
    summary, body = words[words.index("--") + 1 :]
    assert summary.isprintable()
    assert body.isprintable()
    assert "<" not in body
    assert "&lt;b&gt;" in body


async def test_notify_send_is_run_once_for_a_burst_and_not_waited_for(tmp_path: Path) -> None:
    program, said = tmp_path / "notify-send", tmp_path / "said"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {said}.part\nmv {said}.part {said}\n')
    program.chmod(0o755)
    desktop = Desktop(asyncio.get_running_loop(), {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    desktop.tell(QUESTION)
    desktop.tell(QUESTION)
    await until(said.exists)
    assert said.read_text().splitlines() == words_of(QUESTION)
    await desktop.close()


async def test_without_notify_send_nothing_happens(tmp_path: Path) -> None:
    desktop = Desktop(asyncio.get_running_loop(), {"PATH": str(tmp_path)})
    desktop.tell(QUESTION)
    assert not desktop._tasks
    await desktop.close()


async def test_a_notify_send_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_PATIENCE", 0.05)
    program = tmp_path / "notify-send"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    desktop = Desktop(asyncio.get_running_loop(), {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    desktop.tell(QUESTION)
    await until(lambda: not desktop._tasks)
