"""The audit trail: what it says, and that nothing passes when it cannot be written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import egress.audit
from egress.audit import Audit, printable, timestamp
from egress.model import Decision, Source, Verdict, Via
from egress.net.relay import Outcome
from egress.refusals import Reason, Refused
from egress.rules import parse_rule

SCHEMA = json.loads((Path(egress.audit.__file__).parent / "audit.schema.json").read_text())
ALLOW = Decision(Verdict.ALLOW, Reason.LISTED, parse_rule("github.com", Source("policies/personas.yaml", 14)))
DENY = Decision(Verdict.DENY, Reason.NOT_LISTED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def audit(path: Path) -> Audit:
    return Audit(str(path), "k3f9")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def allow(audit: Audit) -> None:
    audit.decision(audit.next_id(), "reviewer", Via.CAPTURE, "github.com", 443, ALLOW)


def deny(audit: Audit, host: str = "evil.example") -> None:
    audit.decision(audit.next_id(), "reviewer", Via.CONNECT, host, 443, DENY)


def test_records_read_as_the_documentation_shows(audit: Audit, path: Path) -> None:
    allow(audit)
    audit.end(1, "reviewer", "140.82.112.3", 1234, 56789, 210, "closed")
    decision, end = path.read_text().splitlines()
    stamp = r'"ts":"[0-9T:.-]+Z"'
    assert re.fullmatch(
        rf'{{"v":1,{stamp},"session":"k3f9","persona":"reviewer","id":1,"event":"decision","via":"capture",'
        r'"host":"github.com","port":443,"verdict":"allow","reason":"listed",'
        r'"rule":"policies/personas.yaml:14 github.com"}',
        decision,
    )
    assert re.fullmatch(
        rf'{{"v":1,{stamp},"session":"k3f9","persona":"reviewer","id":1,"event":"end","ip":"140.82.112.3",'
        r'"up":1234,"down":56789,"ms":210,"outcome":"closed"}',
        end,
    )


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_in_the_schema(audit: Audit, path: Path, reason: Reason) -> None:
    verdict = Verdict.ALLOW if reason is Reason.LISTED else Verdict.DENY
    audit.decision(1, "", Via.HTTP, "", None, Decision(verdict, reason))
    jsonschema.validate(lines(path)[0], SCHEMA)


@pytest.mark.parametrize("outcome", [*Outcome, *(reason for reason in Reason if reason.is_failure)])
def test_every_outcome_is_in_the_schema(audit: Audit, path: Path, outcome: str) -> None:
    audit.end(1, "p", None, 0, 0, 0, outcome)
    audit.policy(2, "policy.yaml:1: nonsense")
    audit.flood(3, "p", "*.evil.example", DENY, 97)
    for line in lines(path):
        jsonschema.validate(line, SCHEMA)


def test_the_schema_refuses_what_is_no_record(audit: Audit, path: Path) -> None:
    allow(audit)
    (record,) = lines(path)
    for change in ({"reason": "because"}, {"verdict": "maybe"}, {"port": 0}, {"host": "a\nb"}, {"v": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(record | change, SCHEMA)


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "\x00", "\u2028", "\x85", "\x1b[2J", 'a"b', "a\\b", "é", "\x7f"])
def test_whatever_a_client_wrote_stays_on_one_line_of_ascii(audit: Audit, path: Path, text: str) -> None:
    deny(audit, printable(text))
    raw = path.read_bytes()
    assert raw.count(b"\n") == 1
    assert raw.isascii()
    assert len(raw.decode().splitlines()) == 1
    jsonschema.validate(json.loads(raw), SCHEMA)


def test_what_a_client_wrote_is_cut_to_a_length() -> None:
    assert len(printable("x" * 100_000)) == 300


def test_the_file_is_the_owners_alone(audit: Audit, path: Path) -> None:
    allow(audit)
    assert path.stat().st_mode & 0o777 == 0o600


def test_time_stamps_have_microseconds_and_never_run_backwards() -> None:
    stamps = [timestamp() for _ in range(1000)]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", stamp) for stamp in stamps)
    assert stamps == sorted(stamps)


def test_rotation_by_rename_loses_nothing(audit: Audit, path: Path) -> None:
    allow(audit)
    path.rename(path.with_suffix(".1"))
    allow(audit)
    assert [line["id"] for line in lines(path.with_suffix(".1"))] == [1]
    assert [line["id"] for line in lines(path)] == [2]


def test_a_log_that_was_copied_and_truncated_goes_on_at_its_start(audit: Audit, path: Path) -> None:
    allow(audit)
    os.truncate(path, 0)
    allow(audit)
    assert [line["id"] for line in lines(path)] == [2]


def _replace_by_symlink(path: Path) -> None:
    path.symlink_to(path.with_suffix(".elsewhere"))


def _replace_by_fifo(path: Path) -> None:
    os.mkfifo(path)


def _replace_by_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("replace", [_replace_by_symlink, _replace_by_fifo, _replace_by_directory])
def test_nothing_passes_while_something_else_stands_in_its_place(audit: Audit, path: Path, replace: Any) -> None:
    allow(audit)
    path.unlink()
    replace(path)
    with pytest.raises(Refused) as refused:
        allow(audit)
    assert refused.value.reason is Reason.AUDIT_UNAVAILABLE
    assert audit.failing
    path.rmdir() if path.is_dir() else path.unlink()
    allow(audit)
    assert [line["id"] for line in lines(path)] == [3]
    assert audit.failing is None
    assert not path.with_suffix(".elsewhere").exists()


def test_a_fifo_with_a_reader_is_no_log_either(audit: Audit, path: Path) -> None:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(Refused):
            allow(audit)
    finally:
        os.close(reader)


def test_denials_and_ends_wait_until_the_log_is_back(audit: Audit, path: Path) -> None:
    path.mkdir()
    deny(audit)
    audit.end(7, "p", None, 1, 2, 3, "closed")
    path.rmdir()
    allow(audit)
    assert [line["event"] for line in lines(path)] == ["decision", "end", "decision"]


def test_an_outage_longer_than_the_queue_is_confessed(audit: Audit, path: Path) -> None:
    path.mkdir()
    for _ in range(5000):
        deny(audit)
    path.rmdir()
    allow(audit)
    records = lines(path)
    (gap,) = [record for record in records if record["event"] == "gap"]
    jsonschema.validate(gap, SCHEMA)
    assert gap["lost"] + sum(record["event"] == "decision" for record in records) == 5001


def test_a_full_disk_refuses_and_a_torn_line_spoils_no_other(
    audit: Audit, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(audit)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
    with pytest.raises(Refused):
        allow(audit)
    monkeypatch.setattr(os, "write", real)
    allow(audit)
    first, torn, last = path.read_bytes().splitlines()
    assert (json.loads(first)["id"], len(torn), json.loads(last)["id"]) == (1, 10, 3)


class Disk:
    """Takes so many bytes and no more."""

    def __init__(self, room: int) -> None:
        self._room, self._write = room, os.write

    def write(self, fd: int, data: bytes) -> int:
        if not self._room:
            raise OSError(28, "no space left on device")
        written = self._write(fd, data[: self._room])
        self._room -= written
        return written


@pytest.mark.parametrize("room", range(0, 700, 7))
def test_several_records_that_a_full_disk_cuts_are_each_there_once_in_the_end(
    audit: Audit, path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path.mkdir()
    for number in range(4):
        audit.end(number, "p", None, 1, 2, 3, "closed")
    path.rmdir()
    with monkeypatch.context() as full:
        full.setattr(os, "write", Disk(room).write)
        for _ in range(2):
            with pytest.raises(Refused):
                allow(audit)
    allow(audit)
    whole = [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    assert [record["id"] for record in whole] == [0, 1, 2, 3, 3]


def test_ends_of_one_turn_are_written_together_when_it_is_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[Callable[[], None]] = []
    writes: list[bytes] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(data) or real(fd, data))
    audit = Audit(str(path), "k3f9", soon=later.append)
    for _ in range(2):
        for number in range(5):
            audit.end(number, "p", None, 1, 2, 3, "closed")
        (turn,) = later
        later.clear()
        turn()
    assert [record["id"] for record in lines(path)] == [*range(5), *range(5)]
    assert len(writes) == 2


@pytest.mark.parametrize("verdict", [allow, deny])
def test_a_decision_waits_for_no_turn_and_takes_the_ends_before_it_along(path: Path, verdict: Any) -> None:
    later: list[Callable[[], None]] = []
    audit = Audit(str(path), "k3f9", soon=later.append)
    audit.end(7, "p", None, 1, 2, 3, "closed")
    verdict(audit)
    assert [record["event"] for record in lines(path)] == ["end", "decision"]
    later[0]()
    assert len(lines(path)) == 2


def test_what_waits_for_its_turn_is_written_before_the_log_is_closed(path: Path) -> None:
    audit = Audit(str(path), "k3f9", soon=lambda _: None)
    audit.end(7, "p", None, 1, 2, 3, "closed")
    audit.close()
    assert len(lines(path)) == 1


def test_two_gates_may_share_a_log(path: Path) -> None:
    one, two = Audit(str(path), "one"), Audit(str(path), "two")
    for _ in range(100):
        allow(one)
        allow(two)
    assert [line["session"] for line in lines(path)] == ["one", "two"] * 100


def test_a_line_that_the_other_of_two_gates_tore_spoils_no_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Audit(str(path), "one"), Audit(str(path), "two")
    allow(two)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
    with pytest.raises(Refused):
        allow(one)
    monkeypatch.setattr(os, "write", real)
    allow(two)
    first, torn, last = path.read_bytes().splitlines()
    assert (json.loads(first)["session"], len(torn), json.loads(last)["session"]) == ("two", 10, "two")


def test_an_outage_and_its_end_are_told_once_each(path: Path) -> None:
    said: list[str] = []
    audit = Audit(str(path), "k3f9", said.append)
    path.mkdir()
    deny(audit)
    deny(audit)
    path.rmdir()
    deny(audit)
    deny(audit)
    assert [line.partition(":")[0] for line in said] == ["error", f"the audit log {path} can be written again"]


def test_a_line_that_another_left_unfinished_spoils_no_record(audit: Audit, path: Path) -> None:
    path.write_bytes(b'{"v":1,"ts"')
    path.chmod(0o600)
    allow(audit)
    torn, whole = path.read_bytes().splitlines()
    assert (torn, json.loads(whole)["id"]) == (b'{"v":1,"ts"', 1)


def test_a_log_that_others_can_write_is_not_taken(audit: Audit, path: Path) -> None:
    path.touch()
    path.chmod(0o666)
    with pytest.raises(Refused, match="others can write it"):
        allow(audit)


def test_a_log_with_a_second_name_is_not_taken(audit: Audit, path: Path) -> None:
    path.touch(mode=0o600)
    os.link(path, path.with_suffix(".other"))
    with pytest.raises(Refused, match="another name"):
        allow(audit)
