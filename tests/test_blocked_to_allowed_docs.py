"""docs/blocked-to-allowed.md shows what the programs really say and write."""

from __future__ import annotations

import re
from pathlib import Path

from auditkit import decision, lines
from policykit import policy

from egress import questions
from egress.draft import draft
from egress.model import Host, Target
from egress.policyedit import EMPTY, add_rule
from egress.questions import Choice
from egress.sightings import SeenRecords

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "blocked-to-allowed.md").read_text()
BY_HAND, FROM_THE_QUESTION, DRAFT = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
TRACKER = Target(Host("tracker.example.com"), 443)
SHIPPED = "version: 1\npersonas: {reviewer: {}}\n"


def test_every_policy_on_the_page_allows_the_tracker() -> None:
    for text, persona in ((BY_HAND, "reviewer"), (FROM_THE_QUESTION, "reviewer"), (DRAFT, "reviewer-tracker")):
        assert policy(SHIPPED, text).personas[persona].decide(TRACKER).allowed


def test_the_file_that_an_answer_writes_is_the_one_on_the_page() -> None:
    note = "allowed from the question, 2026-11-18"
    assert add_rule(EMPTY, "reviewer.yaml", "reviewer", TRACKER, note) == FROM_THE_QUESTION


def test_the_draft_on_the_page_is_the_one_that_is_made() -> None:
    process = {"exe": "/usr/bin/curl"}
    common = {"session": "k3f9rq", "ts": "2026-11-18T14:05:31.000000Z"}
    records = [
        decision("api.anthropic.com", "allow", id=1, **common),
        decision("tracker.example.com", "allow", id=2, reason="observed", process=process, **common),
    ]
    head, version, rest = draft(SeenRecords().entries(lines(records)), "reviewer-tracker").partition("version: 1")
    assert version + rest == DRAFT
    assert all(f"    {line}\n" in TEXT for line in head.splitlines())


def test_the_numbers_and_answers_on_the_page_are_those_in_force() -> None:
    assert f"After {questions.TIMEOUT:g} s" in TEXT
    assert f"At most {questions.MOST_PENDING} questions" in TEXT
    assert re.findall(r"^\| (\w+) \| [a-z] \|", TEXT, re.MULTILINE) == [choice.value for choice in Choice]
