"""Budgets for uploads: one request's, one session's, and one count in two processes."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from gatekit import descriptors, rule

from egress.counts import ENGINE, SLOTS, Counts
from egress.refusals import Reason, Refused
from egress.rules import Requests, Rule, UploadLimit
from egress.uploads import Budget, Meter, Uploads


@pytest.fixture
def counts() -> Iterator[Counts]:
    made = Counts.make(4)
    with contextlib.closing(made):
        yield made
    os.close(made.fd)


@pytest.fixture
def uploads() -> Iterator[Uploads]:
    with contextlib.closing(Uploads()) as made:
        yield made


@contextlib.contextmanager
def workers(count: int) -> Iterator[list[Counts]]:
    made = Counts.make(4, count)
    with contextlib.closing(made), contextlib.ExitStack() as stack:
        yield [made, *(stack.enter_context(contextlib.closing(made.of_worker(n))) for n in range(1, count))]
    os.close(made.fd)


def _in_a_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    return child


def limited(host: str = "a.test", request: int | None = None, session: int | None = None) -> Rule:
    return rule(host, requests=Requests(upload_limit=UploadLimit(request, session)))


def too_much(meter: Meter, size: int) -> str:
    with pytest.raises(Refused) as caught:
        meter.add(size)
    assert caught.value.reason is Reason.UPLOAD_LIMIT
    return caught.value.detail


def test_a_request_may_send_its_budget_to_the_last_byte_and_no_more(counts: Counts) -> None:
    meter = Meter(Budget(10, None, -1), counts)
    meter.add(7)
    meter.add(3)
    assert too_much(meter, 1) == "at most 10 bytes in one request"


def test_expecting_counts_nothing(counts: Counts) -> None:
    meter = Meter(Budget(10, 10, 0), counts)
    meter.expect(10)
    meter.expect(10)
    assert counts.total(0) == 0


def test_what_was_too_much_is_not_counted(counts: Counts) -> None:
    meter = Meter(Budget(None, 10, 0), counts)
    too_much(meter, 11)
    meter.add(10)
    assert counts.total(0) == 10


def test_a_session_is_counted_over_its_requests(counts: Counts) -> None:
    Meter(Budget(None, 10, 0), counts).add(6)
    assert too_much(Meter(Budget(None, 10, 0), counts), 5) == "at most 10 bytes in one session"


def test_a_request_without_a_session_budget_leaves_no_count(counts: Counts) -> None:
    Meter(Budget(100, None, -1), counts).add(50)
    assert [counts.total(slot) for slot in range(counts.slots)] == [0] * 4


def test_slots_are_counted_apart(counts: Counts) -> None:
    counts.add(0, 5)
    counts.add(3, 7)
    assert [counts.total(slot) for slot in range(4)] == [5, 0, 0, 7]


def test_what_the_engine_counts_the_gate_sees_and_the_other_way_round(counts: Counts) -> None:
    with contextlib.closing(Counts(counts.fd, ENGINE)) as engine:
        engine.add(1, 5)
        counts.add(1, 2)
        assert (engine.total(1), counts.total(1)) == (7, 7)


def test_neither_process_writes_where_the_other_does(counts: Counts) -> None:
    with contextlib.closing(Counts(counts.fd, ENGINE)) as engine:
        engine.add(1, 5)
        counts.add(1, 2)
    assert struct.unpack("8Q", os.pread(counts.fd, 64, 0)) == (0, 5, 0, 0, 0, 2, 0, 0)


def test_an_engine_that_dies_takes_no_count_with_it(counts: Counts) -> None:
    with contextlib.closing(Counts(counts.fd, ENGINE)) as first:
        first.add(2, 5)
    with contextlib.closing(Counts(counts.fd, ENGINE)) as second:
        second.add(2, 1)
        assert counts.total(2) == 6


def test_workers_and_their_engines_are_counted_together() -> None:
    with workers(2) as (first, second), contextlib.closing(Counts(first.fd, second.column - 1, 4)) as engine:
        for amount, counts in enumerate((first, second, engine), 1):
            counts.add(1, amount)
        assert [counts.total(1) for counts in (first, second, engine)] == [6, 6, 6]
        assert [first.total(slot) for slot in (0, 2, 3)] == [0, 0, 0]


def test_whoever_meets_a_rule_first_takes_the_row_that_all_count_in() -> None:
    with workers(2) as (first, second):
        assert [first.slot("p a.test"), second.slot("q a.test"), second.slot("p a.test")] == [0, 1, 0]
        assert first.slot("q a.test") == 1


def test_workers_that_meet_rules_at_the_same_time_take_a_row_each() -> None:
    names = [f"{number}.test" for number in range(200)]
    with contextlib.closing(Counts.make(400)) as counts:
        children = [_in_a_child(partial(list, map(counts.slot, order))) for order in (names, names[::-1])]
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        assert sorted(counts.slot(name) or 0 for name in names) == list(range(200))
        os.close(counts.fd)


def test_a_count_goes_past_four_gigabytes(counts: Counts) -> None:
    counts.add(0, 1 << 40)
    counts.add(0, 1)
    assert counts.total(0) == (1 << 40) + 1


def test_a_rule_without_a_limit_has_no_budget(uploads: Uploads) -> None:
    assert uploads.budget("p", rule("a.test")) is None
    assert uploads.budget("p", rule("a.test", requests=Requests(inspect=True))) is None


def test_a_limit_for_a_request_alone_takes_no_slot(uploads: Uploads) -> None:
    assert uploads.budget("p", limited(request=5)) == Budget(5, None, -1)
    assert uploads.budget("p", limited(session=9)) == Budget(None, 9, 0)


def test_a_pattern_and_persona_keep_their_slot_and_others_get_their_own(uploads: Uploads) -> None:
    asked = [("p", "a.test"), ("p", "b.test"), ("q", "a.test"), ("p", "*.a.test"), ("p", "a.test")]
    budgets = [uploads.budget(persona, limited(host, session=9)) for persona, host in asked]
    assert [budget and budget.slot for budget in budgets] == [0, 1, 2, 3, 0]


def test_a_session_that_cannot_be_counted_is_refused(uploads: Uploads) -> None:
    for number in range(SLOTS):
        uploads.budget("p", limited(f"h{number}.test", session=1))
    with pytest.raises(Refused) as caught:
        uploads.budget("p", limited("one-more.test", session=1))
    assert caught.value.reason is Reason.LIMIT
    assert uploads.budget("p", limited("h0.test", session=1)) == Budget(None, 1, 0)


def test_counts_are_made_when_first_needed_and_closed_with_the_gate() -> None:
    before = descriptors()
    uploads = Uploads()
    assert descriptors() == before
    assert uploads.counts.slots == SLOTS
    uploads.close()
    assert descriptors() == before
