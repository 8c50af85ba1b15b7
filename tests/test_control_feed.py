"""The table of the newest records, and what a watcher is told of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from egress.auditrecords import EndRecord, Record
from egress.control.feed import Feed
from egress.control.stream import Stream


def record(number: int) -> Record:
    return EndRecord(ts="t", session="s", persona="p", id=number, ip=None, up=0, down=0, ms=0, outcome="closed")


def filled(count: int, kept: int = 10) -> Feed:
    feed = Feed(kept)
    for number in range(1, count + 1):
        feed.add(record(number))
    return feed


def ids(found: tuple[int, list[Record]]) -> tuple[int, list[int]]:
    return found[0], [each.id for each in found[1]]


@pytest.mark.parametrize(
    ("after", "most", "expected"),
    [
        (0, 10, (3, [1, 2, 3])),
        (0, 2, (2, [1, 2])),
        (2, 10, (3, [3])),
        (3, 10, (3, [])),
        (99, 10, (3, [])),
    ],
)
def test_a_reader_gets_what_comes_after_its_number(after: int, most: int, expected: tuple[int, list[int]]) -> None:
    assert ids(filled(3).after(after, most)) == expected


def test_only_the_newest_are_kept_and_numbers_go_on() -> None:
    feed = filled(25)
    assert (feed.oldest, feed.newest) == (16, 25)
    assert ids(feed.after(0, 3)) == (18, [16, 17, 18])
    assert ids(feed.after(20, 100)) == (25, [21, 22, 23, 24, 25])


def test_an_empty_feed_has_nothing_for_anyone() -> None:
    assert ids(Feed().after(0, 10)) == (0, [])


async def test_a_record_wakes_whoever_waits() -> None:
    feed = filled(0)
    waiting = asyncio.create_task(feed.changed(3600))
    await asyncio.sleep(0)
    feed.add(record(1))
    await asyncio.wait_for(waiting, 10)


async def test_a_reader_that_gives_up_is_forgotten() -> None:
    feed = filled(0)
    waiting = asyncio.create_task(feed.changed(3600))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert feed._waiting == set()


def told(stream: Stream) -> list[tuple[str, object]]:
    found = []
    for block in stream.news():
        fields = dict(line.split(": ", 1) for line in block.decode().strip().splitlines())
        data = json.loads(fields["data"])
        found.append((fields["event"], [each["id"] for each in data] if fields["event"] == "records" else data))
    return found


def test_a_watcher_is_told_what_is_new_and_questions_only_when_they_change() -> None:
    feed, questions = filled(2), [1]
    stream = Stream(feed, 0, lambda: list(questions), lambda: "state")
    assert told(stream) == [("records", [1, 2]), ("state", "state"), ("questions", [1])]
    feed.add(record(3))
    assert told(stream) == [("records", [3]), ("state", "state")]
    questions.append(2)
    assert told(stream) == [("state", "state"), ("questions", [1, 2])]


def test_a_watcher_that_was_away_too_long_is_told_how_much_it_missed() -> None:
    stream = Stream(filled(25), 10, lambda: None, lambda: None)
    assert told(stream)[:2] == [("missed", 5), ("records", list(range(16, 26)))]


def test_a_watcher_from_the_start_gets_all_in_batches() -> None:
    stream = Stream(filled(1200, kept=2000), 0, lambda: None, lambda: None)
    batches = [data for kind, data in told(stream) if kind == "records"]
    assert [len(batch) for batch in batches] == [500, 500, 200]  # type: ignore[arg-type]
