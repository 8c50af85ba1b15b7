"""The log, read back: its lines, its files, which of its records are wanted, and what they come to."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pytest
import zstandard
from auditkit import Record, decision, end, gap, lines, passage, write
from hypothesis import given
from hypothesis import strategies as st

from egress import auditread, auditsummary, places
from egress.audit import Audit, timestamp
from egress.auditfiles import Logs, Unreadable, family, is_missing
from egress.auditfollow import Tail
from egress.auditread import MAX_LINE, Entry, Lines, Passages, Process, Recent, Records
from egress.auditselect import Selection, Sieve, newest_session, parse_moment
from egress.auditsummary import MOST_PORTS, Row, Summary
from egress.auditunpack import Damaged, unpacked
from egress.model import Decision, Verdict, Via
from egress.refusals import Reason
from egress.rules import Pattern, parse_pattern, parse_rule


def entries(*records: Record) -> list[Entry]:
    return Records().entries(lines(records))


def summary(*records: Record) -> Summary:
    result = Summary()
    result.add(entries(*records))
    return result


def pattern(text: str) -> Pattern:
    return parse_pattern(text)[0]


# Lines


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_are_the_same_wherever_the_bytes_were_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"\n".join(parts)
    reader, blocks, rest = Lines(), [], whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        blocks.append(reader.feed(rest[:size]))
        rest = rest[size:]
    assert all(block == b"" or block.endswith(b"\n") for block in blocks)
    assert b"".join([*blocks, reader.end()]) == whole
    assert reader.end() == b""


def test_a_line_without_end_takes_no_more_memory_than_the_longest_line() -> None:
    reader = Lines()
    for _ in range(40):
        assert reader.feed(b"x" * 100_000) == b""
    block = reader.feed(b"y\nnext")
    assert len(block) == MAX_LINE + 2
    assert reader.end() == b"next"


# Records


def test_what_the_gate_writes_is_read_back(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit.jsonl"), "k3f9")
    rule = parse_rule("github.com")
    audit.decision(1, "reviewer", Via.CAPTURE, "github.com", 443, Decision(Verdict.ALLOW, Reason.LISTED, rule))
    audit.end(1, "reviewer", "192.0.2.1", 3, 4, 5, "closed")
    audit.decision(2, "", Via.HTTP, "", None, Decision(Verdict.DENY, Reason.CREDENTIALS))
    audit.policy(2, "nonsense")
    audit.close()
    allowed, ended, denied, policy = Records().entries((tmp_path / "audit.jsonl").read_bytes())
    assert (allowed.event, allowed.session, allowed.persona, allowed.id) == ("decision", "k3f9", "reviewer", 1)
    assert (allowed.via, allowed.host, allowed.port, allowed.verdict) == ("capture", "github.com", 443, "allow")
    assert (allowed.reason, allowed.rule) == ("listed", str(rule))
    assert (ended.event, ended.up, ended.down, ended.outcome) == ("end", 3, 4, "closed")
    assert (denied.persona, denied.host, denied.port, denied.rule) == ("", "", None, None)
    assert policy.event == "policy"


def test_the_process_is_read_where_it_is_known() -> None:
    process = {"pid": 7, "exe": "/usr/bin/curl", "command": "curl x"}
    known, unknown, partly = entries(
        decision(process=process), decision(process=None), decision(process={"pid": 8, "exe": None, "more": []})
    )
    assert known.process == Process(7, "/usr/bin/curl", "curl x")
    assert unknown.process is None
    assert partly.process == Process(8)


def test_fields_that_are_not_known_yet_are_no_hindrance() -> None:
    (entry,) = entries(decision(would_deny=True, nested={"a": [1, {"b": None}]}))
    assert entry.host == "evil.example"


GOOD = lines([decision()])


@pytest.mark.parametrize(
    "line",
    [
        GOOD[:40],
        GOOD[:-3],
        b"null",
        b"[]",
        b"{}",
        b"\0\0\0\0",
        b"not json",
        lines([decision(port=0)])[:-1],
        lines([decision(port=65536)])[:-1],
        lines([decision(port="443")])[:-1],
        lines([decision(id=-1)])[:-1],
        lines([end(up=-1)])[:-1],
        lines([decision("x" * 5000)])[:-1],
        lines([decision(process="curl")])[:-1],
        GOOD.replace(b"evil.example", b"\xff")[:-1],
        GOOD.replace(b"evil.example", b"a\x1bb")[:-1],
        GOOD.replace(b"evil.example", b"\\ud800")[:-1],
        GOOD.replace(b"null", b"[" * 100_000)[:-1],
    ],
)
def test_what_is_no_record_is_left_out_and_counted_and_spoils_no_other(line: bytes) -> None:
    records = Records()
    found = records.entries(GOOD + line + b"\n" + GOOD)
    assert [entry.host for entry in found] == ["evil.example"] * 2
    assert records.torn == 1
    assert [entry for _, entry in records.pairs(GOOD + line + b"\n" + GOOD)] == found


def test_blank_lines_are_nothing() -> None:
    records = Records()
    assert len(records.entries(b"\n\n" + GOOD + b" \n\r\n" + GOOD)) == 2
    assert len(list(records.pairs(b"\n\n" + GOOD + b" \n\r\n" + GOOD[:-1]))) == 2
    assert records.torn == 0


def test_a_record_is_paired_with_its_line_as_stored() -> None:
    odd = b'{"event":"decision",  "session":"s","ts":"t", "extra": 1.50}'
    assert [line for line, _ in Records().pairs(odd + b"\n" + GOOD)] == [odd, GOOD[:-1]]


@given(st.binary(max_size=300), st.integers(0, len(GOOD)))
def test_no_bytes_at_all_stop_the_reading(noise: bytes, at: int) -> None:
    records = Records()
    block = GOOD[:at] + noise + b"\n" + GOOD
    assert records.entries(block)[-1].host == "evil.example"
    assert list(Records().pairs(block))[-1][0] == GOOD[:-1]


def test_recent_entries_are_kept_and_old_ones_forgotten() -> None:
    table: Recent[int, str] = Recent(10)
    for number in range(1000):
        table.put(number, str(number))
        assert all(known in table for known in range(max(0, number - 9), number + 1))
    assert sum(number in table for number in range(1000)) <= 20
    assert (table.pop(999), table.pop(999), 999 in table) == ("999", None, False)


def test_a_passage_is_known_by_session_and_number_until_it_ends() -> None:
    passages = Passages[str]()
    one, other, question = entries(decision(id=1), decision(id=1, session="x"), decision(id=2, via="dns"))
    passages.begin(one, "one")
    passages.begin(other, "other")
    passages.begin(question, "question")
    assert [passages.end(entry) for entry in (other, one, one, question)] == ["other", "one", None, None]


# Files


def test_a_log_is_where_the_gate_puts_it() -> None:
    assert places.audit_log({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}) == "/state/egress/audit.jsonl"
    assert places.audit_log({"HOME": "/home/me"}) == "/home/me/.local/state/egress/audit.jsonl"
    assert (
        places.audit_log({"XDG_STATE_HOME": "here", "HOME": "/home/me"}) == "/home/me/.local/state/egress/audit.jsonl"
    )


ROTATED = [
    "audit.jsonl.1",
    "audit.jsonl.2.gz",
    "audit.jsonl-20261118",
    "audit.jsonl-20261117.xz",
    "audit.jsonl-20261118-1795500000.bz2",
    "audit.jsonl.2026-11-16T06:00.zst",
    "audit-20261115.jsonl",
    "audit.3.jsonl.gz",
]
OTHERS = [
    "audit.jsonl.bak",
    "audit.jsonl.tmp.gz",
    "audit.jsonl~",
    "audit.json",
    "xaudit.jsonl",
    "xaudit.jsonl.1",
    "audit-2.jsonl",
    "audit.schema.json",
]


def test_what_was_rotated_away_belongs_to_a_log_and_what_is_called_alike_does_not(tmp_path: Path) -> None:
    for name in [*ROTATED, *OTHERS, "audit.jsonl"]:
        (tmp_path / name).touch()
    assert {Path(path).name for path in family(str(tmp_path / "audit.jsonl"))} == {*ROTATED, "audit.jsonl"}


def test_a_directory_is_all_the_logs_in_it(tmp_path: Path) -> None:
    for name in [*ROTATED, *OTHERS, "audit.jsonl"]:
        (tmp_path / name).touch()
    found = {Path(path).name for path in family(str(tmp_path))}
    assert found == {*ROTATED, "audit.jsonl", "xaudit.jsonl", "xaudit.jsonl.1", "audit-2.jsonl"}


def test_a_log_in_the_working_directory_is_found_by_its_bare_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "a.jsonl.1"):
        Path(name).touch()
    assert family("a.jsonl") == ["a.jsonl.1", "a.jsonl"]


def test_a_file_that_is_being_compressed_counts_once(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.1", "a.jsonl.1.gz", "a.jsonl.2.gz"):
        (tmp_path / name).touch()
    assert [Path(path).name for path in family(str(tmp_path / "a.jsonl"))] == ["a.jsonl.1", "a.jsonl.2.gz", "a.jsonl"]
    assert [Path(path).name for path in family(str(tmp_path))] == ["a.jsonl", "a.jsonl.1", "a.jsonl.2.gz"]


def hosts(logs: Logs) -> list[str]:
    records = Records()
    return [entry.host for block in logs.blocks() for entry in records.entries(block)]


def stamped(day: int) -> Record:
    return decision(f"day{day}.example", ts=f"2026-11-{day:02d}T00:00:00.000000Z")


def test_files_are_read_oldest_first_whatever_their_names(tmp_path: Path) -> None:
    names = ["a.jsonl", "a.jsonl.1", "a.jsonl.2.gz", "a.jsonl-20261105", "a.jsonl.10"]
    days = [9, 8, 7, 5, 3]
    for name, day in zip(names, days, strict=True):
        data = lines([stamped(day)])
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert hosts(Logs([str(tmp_path / "a.jsonl")])) == [f"day{day}.example" for day in sorted(days)]


def test_a_torn_first_line_does_not_lose_a_file_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.1").write_bytes(b'{"torn\n' + lines([stamped(4)]))
    write(tmp_path / "a.jsonl.2", stamped(2))
    write(tmp_path / "a.jsonl", stamped(6))
    assert hosts(Logs([str(tmp_path / "a.jsonl")])) == ["day2.example", "day4.example", "day6.example"]


def test_each_file_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", decision())
    (tmp_path / "b.jsonl").hardlink_to(path)
    assert hosts(Logs([str(path), str(path), str(tmp_path)])) == ["evil.example"]


def test_what_is_left_of_a_log_that_was_rotated_a_moment_ago_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl.1", decision())
    assert not is_missing(str(tmp_path / "a.jsonl"))
    assert hosts(Logs([str(tmp_path / "a.jsonl")])) == ["evil.example"]


def test_a_log_that_is_nowhere_is_missing_and_cannot_be_read(tmp_path: Path) -> None:
    for path in (str(tmp_path / "a.jsonl"), str(tmp_path / "none" / "a.jsonl")):
        assert is_missing(path)
        with pytest.raises(Unreadable, match=r"a\.jsonl: cannot be read: No such file or directory"):
            Logs([path])


def test_a_pipe_is_read_and_can_be_read_only_once(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, GOOD)
    os.close(writer)
    logs = Logs([f"/dev/fd/{reader}", str(write(tmp_path / "a.jsonl", stamped(1)))])
    assert not logs.can_be_read_twice
    assert hosts(logs) == ["day1.example", "evil.example"]
    os.close(reader)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),  # as the command does
}


@cache
def noise(count: int) -> bytes:
    """Records that do not compress well, so that a cut is in the middle of something."""
    letters = random.Random(1)
    return lines([decision(f"{letters.getrandbits(200):x}.example", id=number) for number in range(count)])


@pytest.mark.parametrize("pack", PACK)
def test_a_compressed_file_holds_what_it_held_before(tmp_path: Path, pack: str) -> None:
    data = noise(3000)
    (tmp_path / f"a.jsonl.1.{pack}").write_bytes(PACK[pack](data))
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    logs = Logs([str(tmp_path / "a.jsonl")])
    assert b"".join(logs.blocks()) == data + GOOD
    assert b"".join(logs.blocks()) == data + GOOD
    assert not logs.damaged


@pytest.mark.parametrize("pack", PACK)
def test_compressed_files_may_be_several_in_one_and_called_anything(tmp_path: Path, pack: str) -> None:
    path = tmp_path / "called.anything"
    path.write_bytes(PACK[pack](GOOD) + PACK[pack](GOOD))
    assert hosts(Logs([str(path)])) == ["evil.example"] * 2


@pytest.mark.parametrize("pack", PACK)
def test_a_file_that_was_cut_short_is_read_as_far_as_it_goes_and_told(tmp_path: Path, pack: str) -> None:
    data = noise(10_000)
    packed = PACK[pack](data)
    (tmp_path / "a.jsonl.1").write_bytes(packed[: len(packed) * 3 // 4])
    write(tmp_path / "a.jsonl", decision("last.example"))
    logs = Logs([str(tmp_path / "a.jsonl")])
    found = hosts(logs)
    assert 1000 < len(found) < 10_000
    assert found[-1] == "last.example"
    (damage,) = logs.damaged.values()
    assert "a.jsonl.1: is damaged: " in str(damage)


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("at", [0.3, 0.6])
def test_a_file_with_wrong_bytes_in_it_is_told(pack: str, at: float) -> None:
    packed = bytearray(PACK[pack](noise(10_000)))
    place = int(len(packed) * at)
    packed[place : place + 50] = bytes(50)
    stream = unpacked(BufferedReader(BytesIO(bytes(packed))))  # type: ignore[arg-type]
    with pytest.raises(Damaged):
        list(iter(lambda: stream.read(65536), b""))


def test_without_the_package_for_a_format_the_name_of_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.jsonl").write_bytes(PACK["zst"](GOOD))
    logs = Logs([str(tmp_path / "a.jsonl")])
    assert hosts(logs) == []
    assert "cannot be read without the package zstandard" in str(logs.damaged.popitem()[1])


# Selection


def chosen(selection: Selection, *records: Record) -> list[int]:
    """The numbers of those that the sieve takes, and that the summary is given."""
    sieve = Sieve(selection)
    return [entry.id for entry in entries(*records) if sieve.takes(entry)]


RECORDS = [
    *passage(1, "github.com", session="a", ts="2026-11-18T01:00:00.000000Z"),
    decision("evil.example", id=2, session="a", ts="2026-11-18T02:00:00.000000Z", persona="writer"),
    decision("a.evil.example", id=3, session="b", ts="2026-11-18T03:00:00.000000Z", port=22),
    gap(5, id=4, session="b", ts="2026-11-18T04:00:00.000000Z"),
]


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        (Selection(), [1, 1, 2, 3, 4]),
        (Selection(session="a"), [1, 1, 2]),
        (Selection(session="none"), []),
        (Selection(persona="writer"), [2]),
        (Selection(since="2026-11-18T02:00:00.000000Z"), [2, 3, 4]),
        (Selection(until="2026-11-18T02:00:00.000000Z"), [1, 1]),
        (Selection(host=pattern("evil.example")), [2]),
        (Selection(host=pattern("*.evil.example")), [3]),
        (Selection(host=pattern("github.com")), [1, 1]),
        (Selection(host=pattern("a.evil.example"), port=22), [3]),
        (Selection(host=pattern("a.evil.example"), port=23), []),
        (Selection(verdict=Verdict.DENY), [2, 3]),
        (Selection(verdict=Verdict.ALLOW), [1, 1]),
        (Selection(session="a", verdict=Verdict.DENY), [2]),
    ],
)
def test_records_are_chosen_by_their_own_fields_and_ends_with_their_decision(
    selection: Selection, taken: list[int]
) -> None:
    assert chosen(selection, *RECORDS) == taken


def test_sifting_leaves_to_the_summary_what_it_must_see_to_count_right() -> None:
    found = Selection(host=pattern("github.com"), verdict=Verdict.DENY).sift(entries(*RECORDS))
    assert [entry.event for entry in found] == ["decision", "end", "gap"]
    assert Selection(session="b").sift(entries(*RECORDS)) == entries(*RECORDS)[3:]
    assert Selection(host=pattern("a.evil.example"), port=23).sift(entries(*RECORDS[2:4])) == []


def test_the_newest_session_is_the_one_that_began_last() -> None:
    batches = [entries(*(decision(session=session) for session in "aabab")), entries(decision(session="a"))]
    assert newest_session(batches, None) == "b"
    assert newest_session([], None) is None


def test_the_newest_session_may_be_asked_for_by_persona() -> None:
    batch = entries(decision(session="a", persona="p"), decision(session="b", persona="q"), decision(session="c"))
    assert newest_session([batch], "p") == "a"
    assert newest_session([batch], "none") is None


NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30s", "2026-11-18T11:59:30.000000Z"),
        ("30m", "2026-11-18T11:30:00.000000Z"),
        ("2h", "2026-11-18T10:00:00.000000Z"),
        ("3d", "2026-11-15T12:00:00.000000Z"),
        ("1w", "2026-11-11T12:00:00.000000Z"),
        ("1d12h", "2026-11-17T00:00:00.000000Z"),
        ("2026-11-18T06:00:00Z", "2026-11-18T06:00:00.000000Z"),
        ("2026-11-18T06:00:00.123456+02:00", "2026-11-18T04:00:00.123456Z"),
    ],
)
def test_a_time_is_an_age_or_a_date(text: str, moment: str) -> None:
    assert parse_moment(text, NOW) == moment


def test_a_date_without_a_zone_is_local() -> None:
    local = datetime(2026, 11, 18, 6, 0).astimezone().astimezone(UTC)
    assert parse_moment("2026-11-18T06:00", NOW) == local.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert parse_moment("2026-11-18 06:00", NOW) == parse_moment("2026-11-18T06:00", NOW)


def test_where_now_is_makes_no_difference() -> None:
    assert parse_moment("1h", NOW.astimezone(timezone(timedelta(hours=5)))) == parse_moment("1h", NOW)


@pytest.mark.parametrize(
    "text", ["", "2x", "h", "2 h", "-2h", "yesterday", "2026-13-01", "２h", "99999999999999d", "0001-01-01T00:00+14:00"]
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is neither a time ago, such as 30m, 2h or 3d, nor a time, such as 2026"):
        parse_moment(text, NOW)


def test_a_time_that_is_asked_for_is_spelt_as_the_log_spells_it() -> None:
    assert re.sub("[0-9]", "0", parse_moment("0s", NOW)) == re.sub("[0-9]", "0", timestamp())


# Summary


def counts(rows: list[Row]) -> dict[str, int]:
    return {row.host: row.count for row in rows}


def test_blocked_and_allowed_are_counted_by_host() -> None:
    found = summary(decision("a.test"), *passage(1), *passage(2), decision("b.test"), decision("a.test"))
    assert counts(found.blocked) == {"a.test": 2, "b.test": 1}
    assert counts(found.allowed) == {"github.com": 2}


def test_an_allow_that_was_refused_on_its_way_counts_as_blocked_alone() -> None:
    found = summary(
        *passage(1), decision("github.com", "allow", id=2), decision("github.com", id=2, reason="sni_mismatch")
    )
    assert counts(found.allowed) == {"github.com": 1}
    assert [(row.host, row.reason, row.count) for row in found.blocked] == [("github.com", "sni_mismatch", 1)]


def test_a_host_of_which_every_allow_was_taken_back_was_not_allowed() -> None:
    found = summary(decision("a.test", "allow"), decision("a.test", reason="no_sni"))
    assert found.allowed == []
    assert counts(found.blocked) == {"a.test": 1}


def test_bytes_and_failures_are_those_of_the_connections_that_ended() -> None:
    found = summary(
        *passage(1),
        *passage(2),
        decision("down.test", "allow", id=3),
        end(3, 0, 0, "unreachable"),
        decision("open.test", "allow", id=4),
        end(99, 5000, 5000),
    )
    rows = {row.host: row for row in found.allowed}
    assert (rows["github.com"].up, rows["github.com"].down, rows["github.com"].failures) == (20, 40, None)
    assert rows["down.test"].failures == {"unreachable": 1}
    assert (rows["open.test"].count, rows["open.test"].up) == (1, 0)


def test_the_same_number_in_another_session_is_another_connection() -> None:
    found = summary(decision("a.test", "allow", session="a"), end(1, 7, 7, session="b"), end(1, 1, 2, session="a"))
    assert [(row.up, row.down) for row in found.allowed] == [(1, 2)]


def test_a_question_to_the_nameserver_counts_where_no_connection_followed() -> None:
    question = {"via": "dns", "port": None}
    found = summary(
        decision("a.test", **question),
        decision("a.test"),
        decision("b.test", **question),
        decision("b.test", **question),
    )
    assert counts(found.blocked) == {"a.test": 1, "b.test": 2}
    assert {row.host: (row.connections, row.asked) for row in found.blocked} == {"a.test": (1, 1), "b.test": (0, 2)}


def test_another_persona_or_reason_is_another_row() -> None:
    found = summary(decision(), decision(persona="writer"), decision(reason="denied", rule="p.yaml:3 evil.example"))
    assert {(row.persona, row.reason, row.rule) for row in found.blocked} == {
        ("reviewer", "not_listed", None),
        ("writer", "not_listed", None),
        ("reviewer", "denied", "p.yaml:3 evil.example"),
    }


def test_rows_know_ports_and_first_and_last_time_though_records_come_out_of_order() -> None:
    stamps = [f"2026-11-18T0{hour}:00:00.000000Z" for hour in (2, 5, 3)]
    found = summary(*(decision(ts=stamp, port=port) for stamp, port in zip(stamps, (443, 22, 443), strict=True)))
    (row,) = found.blocked
    assert (row.ports, row.first, row.last) == ({22, 443}, stamps[0], stamps[1])


def test_the_most_frequent_come_first_and_of_those_the_latest() -> None:
    found = summary(
        decision("old.test", ts="2026-11-18T01:00:00.000000Z"), decision("new.test"), *[decision("often.test")] * 3
    )
    assert [row.host for row in found.blocked] == ["often.test", "new.test", "old.test"]


def test_programs_are_kept_with_what_they_last_ran() -> None:
    ran = [
        {"exe": "/bin/curl", "command": "curl a"},
        {"exe": "/bin/curl", "command": "curl b"},
        {"pid": 5},
        {"command": "git x"},
    ]
    (row,) = summary(*(decision(process=process) for process in ran)).blocked
    assert row.programs == {"/bin/curl": "curl b", "pid 5": "", "git x": "git x"}


def test_lost_records_are_added_up() -> None:
    assert summary(gap(3), decision(), gap(4)).lost == 7


def test_other_events_count_for_nothing() -> None:
    found = summary(decision(event="policy"), decision(event="tomorrow"))
    assert (found.blocked, found.allowed, found.lost) == ([], [], 0)


def test_a_flood_of_names_is_counted_by_parent_and_then_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditsummary, "MOST_ROWS", 10)
    found = summary(
        decision("first.test"),
        *(decision(f"n{number}.evil.example") for number in range(1000)),
        *(decision(f"n.evil{number}.example") for number in range(1000)),
        decision("first.test"),
        *passage(1),
    )
    rows = {row.host: row for row in found.blocked}
    assert len(rows) <= 21
    assert sum(row.count for row in rows.values()) == 2002
    assert (rows["first.test"].count, rows["first.test"].is_many) == (2, False)
    assert (rows["*.evil.example"].count, rows["*.evil.example"].is_many) == (991, True)
    assert rows["*"].is_many
    assert counts(found.allowed) == {"github.com": 1}


def test_no_field_makes_a_row_grow_without_bound() -> None:
    records = (
        decision(port=number + 1, id=number, process={"exe": f"/bin/{number}", "command": "x" * 4000})
        for number in range(2000)
    )
    (row,) = summary(*records).blocked
    assert len(row.ports) == MOST_PORTS
    assert len(row.programs or {}) <= 4


def test_connections_that_never_end_are_forgotten_and_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditread, "_MOST_OPEN", 10)
    found = summary(*(decision("a.test", "allow", id=number) for number in range(100)), end(1, 5, 5), end(99, 7, 7))
    assert [(row.count, row.up) for row in found.allowed] == [(100, 7)]


# Following


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def follow(path: Path, request: pytest.FixtureRequest) -> Callable[..., Callable[[], list[str]]]:
    def start(**options: Any) -> Callable[[], list[str]]:
        tail = Tail(str(path), **options)
        request.addfinalizer(tail.close)

        def come() -> list[str]:
            """The hosts of what has come, over as many looks as a change may take."""
            records = Records()
            return [entry.host for _ in range(6) for entry in records.entries(tail.read())]

        return come

    return start


def append(path: Path, *hosts: str) -> None:
    with path.open("ab") as file:
        file.write(lines(decision(host) for host in hosts))


def test_only_what_is_new_is_followed(path: Path, follow: Any) -> None:
    append(path, "old.test")
    come = follow()
    assert come() == []
    append(path, "a.test", "b.test")
    assert come() == ["a.test", "b.test"]
    assert come() == []


def test_what_there_was_may_come_first(path: Path, follow: Any) -> None:
    append(path, "old.test")
    come = follow(from_start=True)
    append(path, "a.test")
    assert come() == ["old.test", "a.test"]


def test_half_a_line_waits_for_its_other_half(path: Path, follow: Any) -> None:
    come = follow()
    path.write_bytes(GOOD[:50])
    assert come() == []
    with path.open("ab") as file:
        file.write(GOOD[50:])
    assert come() == ["evil.example"]


def test_a_log_that_is_not_there_yet_is_waited_for(path: Path, follow: Any) -> None:
    assert Tail(str(path)).is_waiting
    come = follow()
    assert come() == []
    append(path, "a.test")
    assert come() == ["a.test"]


def test_rotation_by_rename_loses_nothing(path: Path, follow: Any) -> None:
    append(path, "old.test")
    come = follow()
    append(path, "a.test")
    path.rename(path.with_suffix(".1"))
    append(path.with_suffix(".1"), "b.test")
    append(path, "c.test")
    assert come() == ["a.test", "b.test", "c.test"]
    append(path, "d.test")
    assert come() == ["d.test"]


def test_what_a_gate_wrote_to_the_old_file_after_it_was_replaced_comes_too(path: Path) -> None:
    append(path, "old.test")
    tail, records = Tail(str(path)), Records()
    path.rename(path.with_suffix(".1"))
    append(path, "c.test")
    assert tail.read() == b""  # it was replaced, and is given one more look
    append(path.with_suffix(".1"), "late.test")
    assert [entry.host for _ in range(5) for entry in records.entries(tail.read())] == ["late.test", "c.test"]
    tail.close()


def test_a_log_that_was_moved_away_is_followed_until_there_is_another(path: Path, follow: Any) -> None:
    append(path, "old.test")
    come = follow()
    path.rename(path.with_suffix(".1"))
    append(path.with_suffix(".1"), "a.test")
    assert come() == ["a.test"]
    append(path, "b.test")
    assert come() == ["b.test"]


def test_a_log_that_was_copied_and_truncated_begins_anew(path: Path, follow: Any) -> None:
    append(path, "old.test", "older.test")
    come = follow()
    append(path, "a.test")
    assert come() == ["a.test"]
    os.truncate(path, 0)
    append(path, "b.test")
    assert come() == ["b.test"]


def test_a_line_torn_off_by_rotation_does_not_run_into_the_next(path: Path) -> None:
    path.touch()
    tail, records = Tail(str(path)), Records()
    path.write_bytes(GOOD + GOOD[:50])
    first = tail.read()
    path.rename(path.with_suffix(".1"))
    append(path, "a.test")
    found = [entry.host for _ in range(5) for entry in records.entries(tail.read())]
    assert (records.entries(first)[0].host, found, records.torn) == ("evil.example", ["a.test"], 1)
    tail.close()


def test_the_gate_and_a_tail_get_along(path: Path, follow: Any) -> None:
    audit = Audit(str(path), "k3f9")
    come = follow()
    seen: list[str] = []
    for number in range(60):
        audit.decision(number, "p", Via.HTTP, f"h{number}.test", 80, Decision(Verdict.DENY, Reason.NOT_LISTED))
        if number % 20 == 10:
            seen += come()
            path.rename(path.with_suffix(f".{number}"))
    audit.close()
    assert seen + come() == [f"h{number}.test" for number in range(60)]


def test_a_log_that_may_not_be_read_is_an_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        Tail(str(path))
