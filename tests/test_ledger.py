"""What workers count together."""

from __future__ import annotations

import os
from pathlib import Path

from egress.audit import Audit
from egress.ledger import Ledger, Row, alone


def test_a_gate_without_others_counts_from_one() -> None:
    row = alone(most=5)
    assert [row.next_id() for _ in range(3)] == [1, 2, 3]


def test_each_worker_has_numbers_of_its_own_that_go_up() -> None:
    ledger = Ledger(3, most=5)
    numbers = [[row.next_id() for _ in range(3)] for row in (Row(ledger, 0), Row(ledger, 1), Row(ledger, 2))]
    assert numbers == [[1, 4, 7], [2, 5, 8], [3, 6, 9]]


def test_who_takes_the_place_of_a_worker_goes_on_with_its_numbers() -> None:
    ledger = Ledger(2, most=5)
    Row(ledger, 1).next_id()
    ledger.clear(1)
    assert Row(ledger, 1).next_id() == 4


def test_another_process_sees_what_one_has_counted() -> None:
    ledger = Ledger(2, most=5)
    child = os.fork()
    if child == 0:
        Row(ledger, 1).note_open(4)
        Row(ledger, 1).next_id()
        os._exit(0)
    os.waitpid(child, 0)
    assert ledger.open() == 4
    assert Row(ledger, 1).next_id() == 4


def test_it_is_full_when_all_together_have_as_many_as_they_may() -> None:
    ledger = Ledger(2, most=5)
    first, second = Row(ledger, 0), Row(ledger, 1)
    first.note_open(3)
    assert not first.is_full()
    second.note_open(2)
    assert (first.is_full(), second.is_full()) == (True, True)
    ledger.clear(1)
    assert not first.is_full()


def test_the_log_takes_its_numbers_from_it(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit.jsonl"), "k3f9", next_id=Row(Ledger(2, 5), 1).next_id)
    audit.policy(2, None)
    audit.close()
    assert '"id":2,' in (tmp_path / "audit.jsonl").read_text()
