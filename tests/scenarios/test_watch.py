"""`egress watch` on a real terminal, beside a gate with real questions."""

from __future__ import annotations

import asyncio
import functools
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from auditkit import decision, lines
from controlkit import Controlled, controlled
from gatekit import PATIENCE
from launchkit import PEOPLE, Person, somebody
from programs import need
from tmuxscreen import Screen

from egress.model import Decision, Host, Target, Verdict, Via
from egress.refusals import Reason

pytestmark = pytest.mark.scenario
WATCH = "-m egress.cli watch"
T = TypeVar("T")


@pytest.fixture(scope="module")
def person() -> Iterator[Person]:
    with somebody(PEOPLE[0]) as made:
        yield made


@pytest.fixture
def shell(person: Person) -> Iterator[Screen]:
    """At the end the terminal is as it was."""
    need("tmux")
    made = Screen(person, columns=80, rows=24)
    try:
        mode = made.do("stty -g | cksum").splitlines()[-2]
        yield made
        made.clear()
        assert made.do("stty -g | cksum").splitlines()[-2] == mode
    finally:
        made.close()


@pytest.fixture
async def gate(tmp_path: Path, person: Person) -> AsyncIterator[Controlled]:
    """Its socket is where the person's `egress watch` looks."""
    folder = person.home / "runtime" / "egress"
    folder.mkdir(mode=0o700, exist_ok=True)
    async with controlled(tmp_path) as made:
        (folder / "test.sock").unlink(missing_ok=True)
        await made.control.start(page=False, unix=str(folder / "test.sock"))
        yield made


async def aside(do: Callable[..., T], *words: Any) -> T:
    """While the gate's loop goes on."""
    return await asyncio.wait_for(
        asyncio.get_running_loop().run_in_executor(None, functools.partial(do, *words)), 2 * PATIENCE
    )


def record(gate: Controlled, host: str, reason: Reason = Reason.NOT_LISTED) -> None:
    audit = gate.kit.gateway.audit
    audit.decision(audit.next_id(), "p", Via.CONNECT, host, 443, Decision(Verdict.DENY, reason))


def command(person: Person, *words: str) -> str:
    return " ".join([person.installation.python, WATCH, *words])


async def test_decisions_are_shown_at_80_columns_and_q_ends_it(gate: Controlled, shell: Screen, person: Person) -> None:
    record(gate, "before.test")
    await aside(shell.enter, command(person))
    await aside(shell.wait_for, "before.test:443")
    record(gate, "after.test")
    text = await aside(shell.wait_for, "after.test:443")
    assert "session test" in text
    assert "0 allowed  2 blocked  0 open" in text
    assert "not_listed" in text
    await aside(shell.resize, 100, 30)
    await aside(shell.wait_until, lambda text: any(len(line) > 90 for line in text.splitlines()))
    await aside(shell.press, "q")
    text = await aside(shell.wait_for_prompt)
    assert "after.test" not in text


@pytest.mark.parametrize(("key", "choice"), [("y", "once"), ("s", "session"), ("a", "always"), ("n", "no")])
async def test_a_key_answers_the_question(
    gate: Controlled, shell: Screen, person: Person, key: str, choice: str
) -> None:
    await aside(shell.enter, command(person, "--session", "test"))
    await aside(shell.wait_for, "session test")
    asked = asyncio.create_task(gate.questions.ask("p", Target(Host("asked.test"), 443), "not_listed"))
    text = await aside(shell.wait_for, "y once  s session  a always  n no")
    assert "? may p reach asked.test:443" in text
    await aside(shell.press, key)
    assert await asyncio.wait_for(asked, PATIENCE) == choice
    await aside(shell.wait_until, lambda text: "asked.test" not in text)
    await aside(shell.press, "C-c")
    await aside(shell.wait_for_prompt)


async def test_it_is_suspended_and_comes_back(gate: Controlled, shell: Screen, person: Person) -> None:
    record(gate, "shown.test")
    await aside(shell.enter, command(person))
    await aside(shell.wait_for, "shown.test")
    await aside(shell.press, "C-z")
    text = await aside(shell.wait_for_prompt)
    assert "Stopped" in text
    assert "shown.test" not in text
    await aside(shell.enter, "fg")
    await aside(shell.wait_for, "shown.test")
    await aside(shell.press, "q")
    await aside(shell.wait_for_prompt)


def test_without_a_gate_it_follows_the_log(shell: Screen, person: Person) -> None:
    log = person.home / "watched.jsonl"
    shell.enter(command(person, "--audit", str(log)))
    shell.wait_for("q quit")  # it shows what comes from now on
    with log.open("ab") as file:
        file.write(lines([decision("logged.example"), decision("fine.example", "allow", id=2)]))
    text = shell.wait_for("fine.example:443")
    assert "logged.example:443" in text
    assert "1 allowed  1 blocked" in text
    shell.press("b")
    shell.wait_until(lambda text: "fine.example" not in text)
    shell.press("q")
    shell.wait_for_prompt()


def test_a_name_with_escapes_does_nothing_to_the_terminal(shell: Screen, person: Person) -> None:
    log = person.home / "hostile.jsonl"
    log.write_bytes(b"")
    shell.enter(command(person, "--audit", str(log)))
    shell.wait_for("q quit")
    with log.open("ab") as file:
        file.write(lines([decision("\x1b[2Jevil.example")]))
    assert "\\x1b[2J" in shell.wait_for("evil.example")
    shell.press("q")
    shell.wait_for_prompt()


def test_without_a_terminal_it_says_what_to_use(person: Person) -> None:
    words = [person.installation.python, *WATCH.split()]
    done = subprocess.run(words, env=person.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 2
    assert done.stderr == "egress: error: egress watch needs a terminal\negress: hint: egress audit --follow\n"
