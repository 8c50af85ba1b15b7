"""`egress audit`, as a person and as a program meet it."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from auditkit import Record, decision, end, gap, lines, passage, write

from egress.audit import Audit
from egress.auditsummary import MOST_ROWS
from egress.cli import main
from egress.commands import audit as command
from egress.commands.auditoptions import TOP
from egress.commands.audittable import ago, volume
from egress.commands.paper import Paper, visible
from egress.model import Decision, Source, Verdict, Via
from egress.refusals import TABLE, Reason
from egress.rules import parse_rule

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = "\x1b]0;x\x07\x1b[2J\r\n\u202e\x9b31m\x7fé\ud7ff"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the log is by default, in a directory that there is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("XDG_CONFIG_HOME", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "state" / "egress" / "audit.jsonl"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[str], list[str]]]:
    def run(*words: str) -> tuple[int, list[str], list[str]]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: "on_terminal" in request.fixturenames)
        code = main(["audit", *words])
        out, err = capsys.readouterr()
        return code, out.split("\n")[:-1], err.splitlines()

    return run


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a window of 80 columns, as `run` sees to."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


def before(**past: int) -> str:
    return (datetime.now(UTC) - timedelta(**past)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def cells(line: str) -> list[str]:
    return re.split(" {2,}", line.strip())


# The table


def test_the_table_says_what_was_blocked_and_then_what_was_allowed(run: Any, log: Path) -> None:
    recent = {"ts": before(hours=2, minutes=5)}
    write(
        log,
        *passage(1, **recent),
        decision("evil.example", id=2, ts=before(days=3)),
        decision("evil.example", id=3, port=80, ts=before(minutes=7, seconds=30)),
        decision("github.com", "allow", id=4, **recent),
        end(4, 1_200_000, 0, "unreachable", **recent),
        decision("github.com", id=5, port=22, reason="port_not_listed", **recent),
    )
    code, out, err = run()
    assert code == 0
    assert [cells(line) for line in out] == [
        ["blocked: 3 connections, 2 hosts"],
        ["COUNT", "HOST", "PORTS", "PERSONA", "LAST"],
        ["2", "evil.example", "80,443", "reviewer", "7m ago"],
        ["evil.example is not on the allowlist of persona reviewer"],
        ["to allow: --allow evil.example"],
        ["1", "github.com", "22", "reviewer", "2h ago"],
        ["persona reviewer may reach the host of github.com:22, but not that port"],
        ["to allow: --allow github.com:22"],
        [""],
        ["allowed: 2 connections, 1 host, 1.2 MB up, 20 B down"],
        ["COUNT", "HOST", "PORTS", "PERSONA", "UP", "DOWN", "LAST"],
        ["2", "github.com", "443", "reviewer", "1.2 MB", "20 B", "2h ago"],
        ["1 failed: github.com:443 cannot be reached"],
    ]
    (hint,) = err
    assert hint.startswith("egress: hint: --allow is for one run; `egress check evil.example --persona reviewer` shows")


def test_what_no_rule_had_allowed_has_a_row_of_its_own_that_says_how_it_passed(run: Any, log: Path) -> None:
    lifted = {"rule": "--observe evil.example", "would_deny": "not_listed"}
    write(
        log,
        decision("evil.example", "allow", id=1, reason="observed", **lifted),
        decision("evil.example", "allow", id=2, port=8443, reason="observed", **lifted),
        decision("evil.example", "allow", id=3, reason="answered", rule="--ask evil.example"),
        decision("late.example", "allow", id=4, reason="observed", **lifted),
        decision("late.example", id=4, reason="resolved_private"),
    )
    _, out, _ = run("--allowed")
    assert [cells(line)[:3] for line in out[2:]] == [
        ["2", "evil.example", "443,8443"],
        ["evil.example passed because the gate only observes"],
        ["to allow: --allow evil.example --allow evil.example:8443"],
        ["1", "evil.example", "443"],
        ["evil.example:443 was allowed by a person who was asked"],
        ["to allow: --allow evil.example"],
    ]
    _, sheet, _ = run("--csv", "--allowed")
    assert [row[4] for row in csv.reader(sheet[1:])] == ["observed", "answered"]


def test_blocked_or_allowed_may_be_asked_for_alone(run: Any, log: Path) -> None:
    write(log, *passage(1), decision(id=2))
    _, blocked, _ = run("--blocked")
    _, allowed, _ = run("--allowed")
    assert blocked[0] == "blocked: 1 connection, 1 host"
    assert not any("github.com" in line for line in blocked)
    assert allowed[0] == "allowed: 1 connection, 1 host, 10 B up, 20 B down"
    assert not any("evil.example" in line for line in allowed)


def test_where_one_kind_is_empty_that_is_said(run: Any, log: Path) -> None:
    write(log, *passage(1))
    assert run()[1][0] == "blocked: nothing"
    write(log, decision())
    assert run()[1][-1] == "allowed: nothing"


def test_an_allow_that_was_taken_back_is_among_the_blocked_however_it_is_asked(run: Any, log: Path) -> None:
    write(log, decision("a.test", "allow"), decision("a.test", reason="sni_mismatch"))
    assert any("the TLS server name is not the host of a.test:443" in line for line in run("--blocked")[1])
    assert run("--allowed")[1] == []


def test_the_line_at_the_end_of_a_session_leads_to_just_that_session(run: Any, log: Path) -> None:
    allow = Decision(Verdict.ALLOW, Reason.LISTED, parse_rule("github.com"))
    deny = Decision(Verdict.DENY, Reason.NOT_LISTED)
    sessions = {name: Audit(str(log), name) for name in ("k3f9", "other")}
    for name, audit in sessions.items():
        for number, host in enumerate(("evil.example", "evil.example", "telemetry.example"), 1):
            audit.decision(audit.next_id(), "reviewer", Via.DNS, f"{name}.{host}", None, deny)
            audit.decision(audit.next_id(), "reviewer", Via.CAPTURE, f"{name}.{host}", 400 + number, deny)
        audit.decision(audit.next_id(), "reviewer", Via.CAPTURE, "github.com", 443, allow)
        audit.end(audit.next_id() - 1, "reviewer", "192.0.2.1", 1, 1, 1, "closed")
        audit.close()
    tally = str(sessions["k3f9"].tally)
    assert tally == "1 allowed, 3 blocked: k3f9.evil.example (2), k3f9.telemetry.example (1)"
    code, out, _ = run("--session", "k3f9")
    assert code == 0
    assert out[0] == "session k3f9"
    assert "blocked: 3 connections, 2 hosts" in out
    assert [cells(line)[:2] for line in out if "evil.example  " in line or "telemetry.example  " in line] == [
        ["2", "k3f9.evil.example"],
        ["1", "k3f9.telemetry.example"],
    ]
    assert any(line.startswith("allowed: 1 connection, 1 host, 1 B up, 1 B down") for line in out)
    assert not any("other." in line for line in out)


def test_the_last_session_is_the_newest(run: Any, log: Path) -> None:
    write(log, decision("a.test", session="old"), decision("b.test", session="new"), decision("c.test", session="old"))
    _, out, _ = run("--last")
    assert out[0] == "session new"
    assert [line for line in out if ".test  " in line] == [line for line in out if "b.test  " in line]
    assert [json.loads(line)["host"] for line in run("--last", "--json")[1]] == ["b.test"]


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (("--persona", "writer"), ["b.evil.test"]),
        (("--host", "evil.test"), ["evil.test"]),
        (("--host", "EVIL.test."), ["evil.test"]),
        (("--host", "*.evil.test"), ["a.evil.test", "b.evil.test"]),
        (("--host", "*.evil.test:22"), ["a.evil.test"]),
        (("--since", "2h"), ["evil.test"]),
        (("--until", "2h"), ["a.evil.test", "b.evil.test"]),
        (("--since", "2d", "--until", "2h"), ["a.evil.test"]),
        (("--session", "nobody"), []),
    ],
)
def test_records_are_chosen(run: Any, log: Path, words: tuple[str, ...], hosts: list[str]) -> None:
    write(
        log,
        decision("b.evil.test", persona="writer", ts=before(days=5)),
        decision("a.evil.test", port=22, ts=before(days=1)),
        decision("evil.test", ts=before(hours=1)),
    )
    _, rows, _ = run(*words, "--csv")
    assert sorted(row["host"] for row in csv.DictReader(rows)) == hosts
    assert sorted(json.loads(line)["host"] for line in run(*words, "--json")[1]) == hosts


def test_only_the_top_is_shown_and_what_is_left_out_is_said(run: Any, log: Path) -> None:
    write(log, *(decision(f"h{number}.test") for number in range(40)), *[decision("often.test")] * 2)
    _, out, _ = run("--top", "2")
    assert out[0] == "blocked: 42 connections, 41 hosts"
    assert cells(out[2])[:2] == ["2", "often.test"]
    assert "and 39 rows more (--top 0 shows all)" in out
    assert "and 11 rows more (--top 0 shows all)" in run()[1]
    assert sum(".test  " in line for line in run("--top", "0")[1]) == 41
    assert len(run("--csv")[1]) == 42
    assert len(run("--csv", "--top", "3")[1]) == 4


def test_the_program_that_asked_is_shown_where_it_is_known(run: Any, log: Path) -> None:
    curl = {"pid": 7, "exe": "/usr/bin/curl", "command": "curl -s https://evil.example"}
    write(
        log, decision(process=curl), decision("b.test", process={"pid": 8, "exe": "/usr/bin/git"}), decision("c.test")
    )
    programs = {line.strip() for line in run()[1] if "program" in line}
    assert programs == {"program: /usr/bin/curl (curl -s https://evil.example)", "program: /usr/bin/git"}


def test_the_program_behind_what_was_allowed_is_shown_where_it_is_known(run: Any, log: Path) -> None:
    curl = {"pid": 7, "exe": "/usr/bin/curl", "command": "curl -s https://github.com"}
    write(log, *passage(1, process=curl), *passage(2, "api.github.com"))
    _, out, _ = run("--allowed")
    assert [line.strip() for line in out if "program" in line] == [
        "program: /usr/bin/curl (curl -s https://github.com)"
    ]
    head, *rows = csv.reader(run("--csv")[1])
    assert {row[head.index("host")]: row[head.index("program")] for row in rows} == {
        "github.com": "/usr/bin/curl", "api.github.com": "",
    }  # fmt: skip


def test_a_name_that_was_only_asked_of_the_nameserver_says_so(run: Any, log: Path) -> None:
    write(log, decision("a.test", via="dns", port=None))
    _, out, _ = run()
    assert cells(out[2])[:3] == ["1", "a.test", "dns"]
    assert out[0] == "blocked: 0 connections, 1 host"


def test_a_scan_is_shown_short_and_nothing_is_offered_for_it(run: Any, log: Path) -> None:
    write(log, *(decision("a.test", port=port) for port in range(20, 60)))
    _, out, _ = run("--blocked")
    assert cells(out[2])[:3] == ["40", "a.test", "20,21,..."]
    assert not any("to allow" in line for line in out)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.LISTED])
def test_every_reason_is_told_in_its_words(run: Any, log: Path, reason: Reason) -> None:
    write(log, decision("10.0.0.7", reason=reason.value, rule="p.yaml:3 10.0.0.7"))
    sentence = TABLE[reason].sentence.format(target="10.0.0.7:443", persona="reviewer")
    assert sentence in [line.strip() for line in run()[1]]


def test_a_reason_of_another_version_is_shown_as_it_is(run: Any, log: Path) -> None:
    write(log, decision(reason="too_purple"))
    assert "too_purple" in [line.strip() for line in run()[1]]


# What would allow it


POLICY = """\
version: 1
hosts: {fixed.test: 10.0.0.7}
personas:
  reader:
    allow:
      - web.test
      - fixed.test
"""


def asked(target: str, *words: str) -> int:
    return main(["check", target, "--policy", "p.yaml", "--persona", "reader", *words])


def offers(out: list[str]) -> list[str]:
    return [line.split("to allow: ")[1] for line in out if "to allow: " in line]


@pytest.mark.parametrize(
    ("host", "ports", "reason"),
    [
        ("evil.test", [443], "not_listed"),
        ("evil.test", [80, 443, 8443], "not_listed"),
        ("web.test", [22, 23], "port_not_listed"),
        ("8.8.8.8", [53], "address_literal"),
        ("2606:4700::1111", [443, 99], "address_literal"),
    ],
)
def test_the_option_that_is_offered_allows_it(run: Any, log: Path, host: str, ports: list[int], reason: str) -> None:
    Path("p.yaml").write_text(POLICY)
    write(log, *(decision(host, port=port, reason=reason) for port in ports))
    (offer,) = offers(run()[1])
    for port in ports:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        assert asked(target) == 1
        assert asked(target, *shlex.split(offer)) == 0


@pytest.mark.parametrize(
    ("host", "ports", "reason"),
    [
        ("evil.test", [20, 21, 22, 443, 8443], "not_listed"),
        ("10.1.2.3", [5432, 5433], "address_literal"),
        ("fd00::7", [443], "address_literal"),
        ("fixed.test", [443], "resolved_private"),
    ],
)
def test_the_line_that_is_offered_allows_it(run: Any, log: Path, host: str, ports: list[int], reason: str) -> None:
    Path("p.yaml").write_text(POLICY)
    write(log, *(decision(host, port=port, reason=reason, rule="p.yaml:7 fixed.test") for port in ports))
    entries = [offer.split("  (in place of p.yaml:7 fixed.test)")[0] for offer in offers(run()[1])]
    targets = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for port in ports]
    assert [asked(target) for target in targets] == [1] * len(ports)
    text = POLICY.replace("      - fixed.test\n", "") + "".join(f"      {entry}\n" for entry in entries)
    Path("p.yaml").write_text(text)
    assert [asked(target) for target in targets] == [0] * len(ports)


def test_a_denial_is_offered_for_taking_away(run: Any, log: Path) -> None:
    write(log, decision("gist.github.com", reason="denied", rule="mine.yaml:9 gist.github.com"))
    assert offers(run()[1]) == ["take away the denial mine.yaml:9 gist.github.com"]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("169.254.169.254", "metadata_address"),
        ("127.1", "malformed_host"),
        ("a b; rm -rf ~", "not_listed"),
        ("$(reboot)", "port_not_listed"),
        ("*.evil.example", "limit"),
        ("evil.example", "sni_mismatch"),
        ("evil.example", "too_purple"),
    ],
)
def test_nothing_is_offered_where_no_line_would_help(run: Any, log: Path, host: str, reason: str) -> None:
    write(log, decision(host, reason=reason))
    _, out, err = run()
    assert offers(out) == []
    assert err == []


def test_a_name_under_an_address_reason_is_no_address(run: Any, log: Path) -> None:
    write(log, decision("evil.example", reason="address_literal"))
    assert offers(run()[1]) == ["--allow evil.example"]


# For programs


def test_json_is_the_records_as_they_are_stored(run: Any, log: Path) -> None:
    odd = '{"event": "decision",  "session":"s", "ts":"2026", "later": [1.50, "é"]}'
    log.write_bytes(lines([*passage(1), gap(3)]) + odd.encode() + b"\n")
    code, out, err = run("--json")
    assert (code, err) == (0, [])
    assert out == [*lines([*passage(1), gap(3)]).decode().splitlines(), odd]


def test_json_of_some_records_has_the_ends_that_belong_to_them(run: Any, log: Path) -> None:
    write(log, *passage(1), *passage(2, "b.test"), decision(id=3), gap(3))
    found = [(json.loads(line)["id"], json.loads(line)["event"]) for line in run("--json", "--host", "b.test")[1]]
    assert found == [(2, "decision"), (2, "end")]


def test_csv_has_every_row_whole(run: Any, log: Path) -> None:
    name = ("long" * 15 + ".") * 4 + "test"
    write(
        log,
        *(decision(name, port=port, process={"exe": "/bin/x", "command": "x y"}) for port in (22, 80, 443, 8443)),
        *passage(1),
    )
    blocked, allowed = csv.DictReader(run("--csv")[1])
    assert blocked["host"] == name
    assert (blocked["verdict"], blocked["ports"], blocked["connections"]) == ("deny", "22 80 443 8443", "4")
    assert (blocked["reason"], blocked["program"]) == ("not_listed", "/bin/x")
    assert blocked["allow"].split() == [f"{name}:22", name, f"{name}:8443"]
    assert (allowed["verdict"], allowed["up"], allowed["down"]) == ("allow", "10", "20")
    assert allowed["rule"] == "policies/groups.yaml:11 *.github.com"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", '=HYPERLINK("http://x")'])
def test_no_cell_of_a_csv_is_a_formula(run: Any, log: Path, text: str) -> None:
    write(log, decision(text, persona=text, reason=text, rule=text, process={"exe": text}))
    (row,) = csv.DictReader(run("--csv")[1])
    for field in ("host", "persona", "reason", "rule", "program"):
        assert row[field] == f"'{text}"


def test_csv_of_nothing_still_has_its_head(run: Any, log: Path) -> None:
    log.touch()
    code, out, err = run("--csv")
    assert (code, len(out)) == (0, 1)
    assert err == [f"egress: nothing is on record in {log}"]


# Hostile text


def hostile() -> list[Record]:
    process = {"pid": 1, "exe": HOSTILE, "command": HOSTILE}
    everywhere = dict.fromkeys(("persona", "reason", "rule", "via", "session", "ts"), HOSTILE) | {"process": process}
    return [
        decision(HOSTILE, **everywhere),
        decision(HOSTILE, "allow", **everywhere),
        decision(HOSTILE, reason="not_listed", persona=HOSTILE),
        decision(HOSTILE, reason="denied", rule=HOSTILE),
    ]


@pytest.mark.parametrize("words", [(), ("--csv",), ("--session", HOSTILE), ("--last",), ("--json",)])
@pytest.mark.usefixtures("on_terminal")
def test_nothing_in_a_log_acts_on_the_terminal(
    run: Any, log: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    log.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in hostile()) + "\n")
    code, out, err = run(*words)
    assert code == 0
    assert out
    assert all(line.isascii() and line.isprintable() for line in [*out, *err])


@pytest.mark.usefixtures("on_terminal")
def test_json_on_a_terminal_is_spelt_otherwise_and_says_the_same(run: Any, log: Path) -> None:
    log.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in hostile()) + "\n")
    assert [json.loads(line) for line in run("--json")[1]] == hostile()


@pytest.mark.usefixtures("on_terminal")
def test_bytes_that_no_reader_looked_at_are_made_visible_too(run: Any, log: Path) -> None:
    log.write_bytes(lines([decision(more="X")]).replace(b"X", b"\xff\x9b31m"))
    (line,) = run("--json")[1]
    assert line.isascii()
    assert line.isprintable()
    assert r"\xff\x9b31m" in line


def test_visible_text_is_left_alone() -> None:
    assert visible(r"a\x1b.example") == r"a\x1b.example"
    assert visible("a\x1bb") == r"a\x1bb"


# The terminal


def wide() -> list[Record]:
    return [
        *[decision("x" * 60 + ".very.long.tunnel.evil.example", persona="a-persona-with-a-long-name")] * 1_000,
        decision("a.test", port=10022),
        decision("a.test", port=10023),
        decision(
            "a.test", port=10024, ts=before(days=400), process={"exe": "/usr/bin/" + "x" * 90, "command": "x " * 90}
        ),
        *passage(7, "y" * 60 + ".github.com", persona="a-persona-with-a-long-name"),
        decision("z.test", "allow", id=8, ts=before(days=400)),
        end(8, 999_499_999, 999_499_999, "unreachable"),
    ]


@pytest.mark.usefixtures("on_terminal")
@pytest.mark.parametrize("columns", [80, 100, 200])
def test_the_table_is_no_wider_than_the_terminal(
    run: Any, log: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    write(log, *wide())
    _, out, _ = run()
    assert max(len(line) for line in out if "to allow: " not in line) <= columns
    assert any("tunnel.evil.example  443" in line for line in out)
    assert ("x" * 60 + ".very.long.tunnel.evil.example  443" in "\n".join(out)) == (columns == 200)


@pytest.mark.usefixtures("on_terminal")
def test_what_is_for_pasting_is_never_cut_or_folded(run: Any, log: Path) -> None:
    write(log, *wide())
    assert f"--allow {'x' * 60}.very.long.tunnel.evil.example" in offers(run()[1])


def test_where_there_is_no_terminal_nothing_is_cut_or_coloured(run: Any, log: Path) -> None:
    write(log, *wide())
    _, out, _ = run()
    assert "x" * 60 + ".very.long.tunnel.evil.example  443" in "\n".join(out)
    assert "\x1b" not in "\n".join(out)


@pytest.mark.usefixtures("on_terminal")
def test_colour_is_for_terminals_that_want_it(run: Any, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(log, decision())
    assert "\x1b[31mevil.example\x1b[0m" in "\n".join(run()[1])
    monkeypatch.setenv("NO_COLOR", "")
    assert "\x1b[31mevil.example\x1b[0m" in "\n".join(run()[1])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "\n".join(run()[1])
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in "\n".join(run()[1])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1949, "1.9 kB"),
        (9960, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (123_456_789, "123 MB"),
        (3_400_000_000, "3.4 GB"),
        (10**16, "10000 TB"),
    ],
)
def test_a_volume_takes_six_places(count: int, text: str) -> None:
    assert volume(count) == text


@pytest.mark.parametrize(
    ("past", "text"),
    [
        ({"seconds": 0}, "0s ago"),
        ({"seconds": 59}, "59s ago"),
        ({"minutes": 59, "seconds": 59}, "59m ago"),
        ({"hours": 23}, "23h ago"),
        ({"days": 400}, "400d ago"),
        ({"seconds": -5}, "0s ago"),
    ],
)
def test_a_time_is_told_by_its_age(past: dict[str, int], text: str) -> None:
    now = datetime(2026, 11, 18, tzinfo=UTC)
    assert ago((now - timedelta(**past)).isoformat(), now) == text


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-18T06:00:00"])
def test_what_is_no_time_is_told_by_a_question_mark(text: str) -> None:
    assert ago(text, datetime.now(UTC)) == "?"


def test_text_is_folded_only_on_paper_that_has_a_width() -> None:
    assert Paper(width=40).indented("word " * 9, 4) == ["    word word word word word word word", "    word word"]
    assert Paper().indented("word " * 12, 4) == ["    " + "word " * 12]


# What can be wrong


def test_before_the_first_run_it_says_how_to_get_a_log(run: Any, log: Path) -> None:
    code, out, err = run()
    assert (code, out) == (0, [])
    assert err[0] == f"egress: there is no audit log yet at {log}"
    assert err[1].startswith("egress: hint: ")
    log.parent.rmdir()
    assert run() == (0, [], err)
    assert not log.parent.exists()


def test_an_empty_log_is_no_error(run: Any, log: Path) -> None:
    log.touch()
    assert run() == (0, [], [f"egress: nothing is on record in {log}"])
    assert run("--json") == (0, [], [f"egress: nothing is on record in {log}"])


def test_where_nothing_matches_that_is_said(run: Any, log: Path) -> None:
    write(log, *passage(1))
    for words in (("--blocked",), ("--session", "x"), ("--host", "a.test", "--json"), ("--until", "2000-01-01")):
        assert run(*words) == (0, [], [f"egress: no record matches in {log}"])


def test_a_log_that_was_named_and_is_not_there_is_an_error(run: Any) -> None:
    for words in ((), ("--json",), ("--last",)):
        code, out, err = run("--audit", "none.jsonl", *words)
        assert (code, out) == (2, [])
        assert err == [
            "egress: error: none.jsonl: cannot be read: No such file or directory",
            "egress: hint: name another with --audit FILE",
        ]


def test_torn_lines_and_lost_records_are_confessed(run: Any, log: Path) -> None:
    log.write_bytes(lines([decision()]) + b'{"v":1,"ts":"2026\n' + lines([gap(17), decision()]))
    _, out, err = run()
    assert out[0] == "blocked: 2 connections, 1 host"
    assert "egress: warning: left out 1 line that is no whole record" in err
    assert "egress: warning: 17 records were lost while the gate could not write its log" in err
    code, out, err = run("--json")
    assert (code, len(out)) == (0, 3)
    assert err == ["egress: warning: left out 1 line that is no whole record"]


def test_rotated_and_compressed_logs_are_read_with_it(run: Any, log: Path) -> None:
    log.with_name("audit.jsonl.2.gz").write_bytes(gzip.compress(lines([decision("a.test", ts=before(days=2))])))
    write(log.with_name("audit.jsonl.1"), decision("b.test", ts=before(days=1)))
    write(log, decision("c.test"))
    found = [json.loads(line)["host"] for line in run("--json")[1]]
    assert found == ["a.test", "b.test", "c.test"]
    log.unlink()
    assert len(run("--json")[1]) == 2


def test_several_logs_and_directories_may_be_named(run: Any, tmp_path: Path) -> None:
    write(tmp_path / "one.jsonl", decision("a.test"))
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "two.jsonl", decision("b.test"))
    _, out, _ = run("--audit", "one.jsonl", "--audit", "more", "--json")
    assert {json.loads(line)["host"] for line in out} == {"a.test", "b.test"}


def test_a_damaged_file_is_an_error_after_what_could_be_read_of_the_others(run: Any, log: Path) -> None:
    log.with_name("audit.jsonl.1.gz").write_bytes(gzip.compress(lines([decision()]))[:-20])
    write(log, decision("b.test"))
    code, out, err = run()
    assert code == 2
    assert out[0] == "blocked: 1 connection, 1 host"
    assert any(line.startswith("egress: error: ") and "audit.jsonl.1.gz: is damaged" in line for line in err)


def test_the_last_session_cannot_be_found_in_a_pipe(run: Any) -> None:
    reader, writer = os.pipe()
    os.write(writer, lines([decision()]))
    os.close(writer)
    code, _, err = run("--audit", f"/dev/fd/{reader}", "--last")
    assert code == 2
    assert "a pipe can be read once" in err[0]
    assert run("--audit", f"/dev/fd/{reader}")[1][0] == "blocked: 1 connection, 1 host"
    os.close(reader)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--since", "2x"), "'2x' is neither a time ago, such as 30m, 2h or 3d"),
        (("--host", "*"), "'\\*' would allow everything"),
        (("--host", "a b"), "a rule is a host without blanks"),
        (("--top", "-1"), "is not a number of rows|expected one argument"),
        (("--top", "many"), "'many' is not a number of rows"),
        (("--blocked", "--allowed"), "not allowed with"),
        (("--session", "a", "--last"), "not allowed with"),
        (("--json", "--csv"), "not allowed with"),
        (("--follow", "--csv"), "--follow shows records as they come"),
        (("--follow", "--top", "3"), "--follow shows records as they come"),
        (("--follow", "--until", "1h"), "--follow shows records as they come"),
        (("--follow", "--audit", "a", "--audit", "b"), "--follow reads one log"),
        (("--follow", "--audit", "."), "--follow reads one log"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(run: Any, words: tuple[str, ...], message: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, [])
    assert re.search(message, err[0])
    assert err[1].startswith("egress: hint: ")


# Following


@pytest.fixture
def follow(run: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str], list[str]]]:
    """Follows while the given steps happen, one between two looks, and is then interrupted."""

    def follow(*steps: Callable[[], object], words: tuple[str, ...] = ()) -> tuple[int, list[str], list[str]]:
        left = iter([*steps, *[lambda: None] * 4])

        def pause(_: float) -> None:
            step = next(left, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(command.time, "sleep", pause)
        return run("--follow", *words)

    return follow


def append(path: Path, *records: Record) -> Callable[[], object]:
    def step() -> None:
        with path.open("ab") as file:
            file.write(lines(records))

    return step


def test_decisions_are_shown_as_they_happen_and_ctrl_c_is_no_error(follow: Any, log: Path) -> None:
    write(log, decision("old.test"))
    curl = {"pid": 3, "exe": "/usr/bin/curl", "command": "curl x"}
    code, out, err = follow(
        append(log, *passage(1)), append(log, decision(id=2, process=curl), decision("fd00::7", via="socks5"))
    )
    assert (code, err) == (0, [])
    assert [line.split(" ", 1)[1] for line in out] == [
        "allowed github.com:443 (reviewer, connect): policies/groups.yaml:11 *.github.com",
        "blocked evil.example:443 (reviewer, connect, /usr/bin/curl): not_listed",
        "blocked [fd00::7]:443 (reviewer, socks5): not_listed",
    ]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in out)


def test_following_obeys_the_same_choice(follow: Any, log: Path) -> None:
    records = [*passage(1), decision("a.test", id=2), decision("b.a.test", id=3, session="other")]
    for words, expected in (
        (("--blocked",), ["a.test", "b.a.test"]),
        (("--host", "*.a.test"), ["b.a.test"]),
        (("--session", "other"), ["b.a.test"]),
    ):
        _, out, _ = follow(append(log, *records), words=words)
        assert [line.split()[2].removesuffix(":443") for line in out] == expected


def test_following_as_json_shows_every_record_as_stored(follow: Any, log: Path) -> None:
    _, out, _ = follow(append(log, *passage(1), gap(2)), words=("--json",))
    assert out == lines([*passage(1), gap(2)]).decode().splitlines()


def test_following_survives_rotation_and_truncation(follow: Any, log: Path) -> None:
    log.touch()
    _, out, _ = follow(
        append(log, decision("a.test")),
        lambda: log.rename(log.with_name("audit.jsonl.1")),
        append(log, decision("b.test")),
        lambda: None,
        lambda: None,
        append(log, decision("c.test")),
        lambda: os.truncate(log, 0),
        append(log, decision("d.test")),
    )
    assert [line.split()[2] for line in out] == ["a.test:443", "b.test:443", "c.test:443", "d.test:443"]


def test_a_log_that_is_not_there_is_waited_for(follow: Any, log: Path) -> None:
    code, out, err = follow(append(log, decision()))
    assert (code, len(out)) == (0, 1)
    assert err == [f"egress: waiting for {log}"]


def test_following_since_a_time_begins_with_what_there_is(follow: Any, log: Path) -> None:
    write(
        log.with_name("audit.jsonl.1"),
        decision("older.test", ts=before(days=3)),
        decision("a.test", ts=before(hours=2)),
    )
    write(log, decision("b.test", ts=before(hours=1)))
    _, out, _ = follow(append(log, decision("c.test", ts=before(hours=0))), words=("--since", "1d"))
    assert [line.split()[2] for line in out] == ["a.test:443", "b.test:443", "c.test:443"]


def test_following_the_last_session_shows_that_one(follow: Any, log: Path) -> None:
    write(log, decision(session="old"), decision(session="new"))
    step = append(log, decision("a.test", session="old"), decision("b.test", session="new"))
    _, out, _ = follow(step, words=("--last",))
    assert [line.split()[2] for line in out] == ["b.test:443"]


def test_nothing_that_is_followed_acts_on_the_terminal(follow: Any, log: Path) -> None:
    _, out, _ = follow(append(log, *hostile()))
    assert len(out) == 4
    assert all(line.isascii() and line.isprintable() for line in out)


def test_a_log_that_cannot_be_followed_is_an_error(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = run("--follow", "--audit", "file/audit.jsonl")
    assert code == 2
    assert err[0] == "egress: error: file/audit.jsonl: cannot be read: Not a directory"


def egress(*words: str, **options: Any) -> subprocess.Popen[str]:
    script = "import sys; from egress.cli import main; sys.exit(main())"
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, text=True, env=environ, **options
    )


def test_a_real_one_shows_a_decision_and_ends_in_good_order(log: Path) -> None:
    log.touch()
    with egress("audit", "--follow", "--since", "1h") as process:
        append(log, decision(ts=before(hours=0)))()
        assert process.stdout is not None
        assert "blocked evil.example:443" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def test_a_reader_that_has_seen_enough_ends_it_quietly(log: Path) -> None:
    write(log, *(decision(f"h{number}.test") for number in range(20_000)))
    with egress("audit", "--json", stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["host"] == "h0.test"
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr.read() == ""


# Help and documentation


def test_the_example_in_the_help_works(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    write(log, decision(ts=before(hours=1)))
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    example = shlex.split(capsys.readouterr().out.split("example:\n")[1])
    assert example[0] == "egress"
    assert main(example[1:]) == 0
    assert "evil.example" in capsys.readouterr().out


def test_the_source_of_a_rule_is_shown_as_the_gate_wrote_it(run: Any, log: Path) -> None:
    audit = Audit(str(log), "k3f9")
    rule = parse_rule("bad.test", Source("mine.yaml", 9))
    audit.decision(1, "reviewer", Via.CONNECT, "bad.test", 443, Decision(Verdict.DENY, Reason.DENIED, rule))
    audit.close()
    assert offers(run()[1]) == ["take away the denial mine.yaml:9 bad.test"]


DOCUMENT = (ROOT / "docs" / "audit.md").read_text()


def test_every_option_is_documented_and_every_documented_option_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    options = set(re.findall(r"^  (?:-h, )?(--[a-z]+)", capsys.readouterr().out, re.MULTILINE)) - {"--help"}
    (table,) = re.findall(r"^\| option \|.*?\n((?:\|.*\n)+)", DOCUMENT, re.MULTILINE)
    firsts = " ".join(re.findall(r"^\| (.*?) \| ", table, re.MULTILINE))
    assert options == set(re.findall(r"--[a-z]+", firsts))


def test_every_command_in_the_documentation_runs(run: Any, log: Path) -> None:
    write(log, *passage(1), decision())
    commands = re.findall(r"^    (?:\$ )?egress audit(.*)$", DOCUMENT, re.MULTILINE)
    assert len(commands) >= 5
    for words in commands:
        if "--follow" not in words:
            assert run(*shlex.split(words.split(" | ")[0]))[0] == 0


def test_the_columns_and_limits_in_the_documentation_are_the_real_ones(run: Any, log: Path) -> None:
    log.touch()
    (listed,) = re.findall(r"with these columns: (.*?)\.", DOCUMENT, re.DOTALL)
    assert re.findall("`([a-z]+)`", listed) == run("--csv")[1][0].split(",")
    assert f"Past {MOST_ROWS:,} different rows" in DOCUMENT
    assert f"{TOP} if not given" in DOCUMENT


def test_the_table_in_the_documentation_is_what_is_printed(run: Any, log: Path) -> None:
    asked = [("evil.example", port, "not_listed", 2) for port in [80] * 6 + [443] * 6]
    asked += [("github.com", 22, "port_not_listed", 5)] * 3
    let_through = [("api.anthropic.com", 120_000, 9_879_000, 1)] * 100 + [("github.com", 1_250, 55_000, 5)] * 20
    blocked = [decision(host, port=port, reason=why, ts=before(minutes=past)) for host, port, why, past in asked]
    allowed = [
        record
        for number, (host, up, down, past) in enumerate(let_through)
        for record in (decision(host, "allow", id=number, ts=before(minutes=past)), end(number, up, down))
    ]
    write(log, *blocked, *allowed)
    shown = DOCUMENT.split("    $ egress audit --session k3f9\n")[1].split("\n\nThe line that")[0]
    assert dedent(shown).splitlines() == run("--session", "k3f9")[1]
