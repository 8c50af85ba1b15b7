"""What was seen becomes a persona, and no more than that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from auditkit import Record, decision, end, lines, passage, write
from hypothesis import given
from hypothesis import strategies as st
from policykit import document, policy

from egress.auditrecords import DecisionRecord, EndRecord
from egress.cli import main
from egress.draft import draft
from egress.lint import lint
from egress.model import Host, Target, Verdict, Via
from egress.policy import Persona
from egress.policylayers import bind
from egress.refusals import Reason
from egress.requestpolicy import Asked, decide_request
from egress.sightings import MOST_TARGETS, SeenRecords


def text_of(*records: Record) -> str:
    return draft(SeenRecords().entries(lines(records)), "d")


def persona(*records: Record) -> Persona:
    return policy(text_of(*records)).personas["d"]


def rules(*records: Record) -> list[str]:
    return [f"{rule.pattern} {sorted(rule.ports)}" for rule in persona(*records).allow]


def allowed(host: str, port: int = 443, number: int = 1, **fields: Any) -> Record:
    return decision(host, "allow", port=port, id=number, **fields)


def asked(method: str, path: str, number: int = 1, verdict: str = "allow", host: str = "api.test") -> Record:
    return decision(host, verdict, via="inspect", method=method, path=path, id=number)


def may(persona: Persona, host: str, port: int) -> bool:
    return persona.decide(Target(Host(host), port)).allowed


def requests(persona: Persona, *wanted: tuple[str, str]) -> list[bool]:
    found = persona.request_rules(Target(Host("api.test"), 443))
    return [decide_request(found, Asked(method, path, ())).allowed for method, path in wanted]


def test_a_host_gets_the_ports_that_were_seen_and_no_others() -> None:
    assert rules(
        allowed("a.test"), allowed("b.test", 80), allowed("b.test"), allowed("c.test", 22), allowed("c.test")
    ) == [
        "a.test [443]",
        "b.test [80, 443]",
        "c.test [22, 443]",
    ]


def test_each_line_says_why_it_is_there() -> None:
    text = text_of(
        allowed("a.test"),
        allowed("a.test", number=2, reason="observed", would_deny="not_listed", process={"exe": "/usr/bin/curl"}),
        allowed("b.test", 22, 3, reason="answered"),
    )
    assert "- a.test:443  # 2 connections, 1 would have been blocked, by /usr/bin/curl\n" in text
    assert "- b.test:22  # 1 connection, 1 allowed by a person who was asked\n" in text
    assert text.startswith("# What was let through in session k3f9 until 2026-11-18T12:00:00, and nothing else.\n")


def test_what_was_refused_is_not_in_it_nor_what_was_refused_on_its_way() -> None:
    assert rules(decision("evil.test"), allowed("late.test", number=7), decision("late.test", id=7)) == []


def test_a_name_that_was_only_looked_up_is_not_in_it() -> None:
    assert rules(allowed("a.test", via="dns") | {"port": None}) == []


def test_three_siblings_on_a_port_become_a_wildcard_for_that_port() -> None:
    three = [allowed(f"{name}.corp.test") for name in "abc"]
    assert rules(*three[:2]) == ["a.corp.test [443]", "b.corp.test [443]"]
    assert rules(*three, allowed("a.corp.test", 22), allowed("corp.test")) == [
        "corp.test [443]",
        "*.corp.test [443]",
        "a.corp.test [22]",
    ]
    assert '"*.corp.test:443"  # 3 hosts: a.corp.test, b.corp.test, c.corp.test; 3 connections\n' in text_of(*three)


@pytest.mark.parametrize(
    "parent", ["com", "co.uk", "github.io", "zendesk.com", "s3.amazonaws.com", "amazonaws.com", "slack.com", "ngrok.io"]
)
def test_where_anyone_may_have_a_name_or_one_undoes_the_list_there_is_no_wildcard(parent: str) -> None:
    assert rules(*(allowed(f"{name}.{parent}") for name in "abcd")) == [f"{name}.{parent} [443]" for name in "abcd"]


@pytest.mark.parametrize(
    "refused",
    [
        decision("gist.corp.test", reason="denied", id=9),
        decision("x.y.corp.test", reason="declined", id=9),
        decision("gist.corp.test", reason="denied", via="dns", id=9) | {"port": None},
    ],
)
def test_no_wildcard_takes_in_what_was_refused(refused: Record) -> None:
    three = [allowed(f"{name}.corp.test") for name in "abc"]
    assert len(rules(*three, refused)) == 3
    assert len(rules(*three, refused | {"port": 22, "via": "connect"})) == 1  # another port is another matter
    assert len(rules(*three, decision("a.corp.test", reason="unanswered", id=9))) == 1  # it got through in the end


def test_what_led_to_a_private_address_says_so_and_makes_no_wildcard() -> None:
    records = []
    for number, name in enumerate("abc"):
        records += [allowed(f"{name}.corp.test", number=number), end(number) | {"ip": "10.0.0.7"}]
    drafted = persona(*records, allowed("10.0.0.9", 5432, 9))
    assert [(str(rule.pattern), rule.private) for rule in drafted.allow] == [
        ("a.corp.test", True),
        ("b.corp.test", True),
        ("c.corp.test", True),
        ("10.0.0.9", True),
    ]
    assert not persona(allowed("a.corp.test"), end(1) | {"ip": "1.1.1.1"}).allow[0].private


def test_a_port_of_this_host_that_an_option_gave_needs_no_rule() -> None:
    assert rules(allowed("127.0.0.1", 5432, rule="--host-port 127.0.0.1")) == []


def test_addresses_are_written_so_that_they_are_read() -> None:
    assert rules(allowed("1.1.1.1"), allowed("2606:4700::1", 22), allowed("2606:4700::1")) == [
        "1.1.1.1 [443]",
        "2606:4700::1 [22, 443]",
    ]


def test_a_host_that_undoes_an_allowlist_is_pointed_out() -> None:
    assert "careful: webhook.site keeps what it is sent" in text_of(allowed("webhook.site"))


HOSTILE = [
    'x"\n      - "*.evil.test',
    "a.test\r- b.test",
    "A.TEST",
    "é.test",
    "*",
    "# x",
    "a.test: {",
    "\u2028- b.test",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_no_host_is_named_in_a_comment_and_nowhere_else(name: str) -> None:
    text = text_of(allowed(name), allowed("good.test"))
    assert [str(rule.pattern) for rule in policy(text).personas["d"].allow] == ["good.test"]
    assert text.isascii()
    assert sum("# left out, for it is no host: " in line for line in text.splitlines()) == 1


def test_a_program_or_session_cannot_break_out_of_its_comment() -> None:
    text = text_of(allowed("a.test", session="s\n- b.test\n", process={"exe": "/x\n      - evil.test\n\x1b[2J"}))
    assert [str(rule.pattern) for rule in policy(text).personas["d"].allow] == ["a.test"]
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_name_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="no name for a persona"):
        draft([], "a: b\n")


def test_a_flood_of_hosts_is_cut_and_that_is_said() -> None:
    text = text_of(*(allowed(f"h{number}.d{number}.test", number=number) for number in range(MOST_TARGETS + 3)))
    assert "# left out: 3 connections to more hosts than are kept" in text
    assert len(policy(text).personas["d"].allow) == MOST_TARGETS


def test_nothing_seen_is_nothing_allowed() -> None:
    assert rules() == []
    assert persona().name == "d"


def test_records_of_a_running_gate_will_do_as_well() -> None:
    ids: dict[str, Any] = {"ts": "2026-11-18T12:00:00.000000Z", "session": "s", "persona": "p", "id": 1}
    records = [
        DecisionRecord(
            **ids, via=Via.CONNECT, host="a.test", port=443, verdict=Verdict.ALLOW, reason=Reason.OBSERVED, rule=None
        ),
        EndRecord(**ids, ip="10.0.0.1", up=0, down=0, ms=0, outcome="closed"),
    ]
    (rule,) = policy(draft(records, "d")).personas["d"].allow
    assert (str(rule.pattern), rule.private) == ("a.test", True)


# Requests


def test_requests_that_were_looked_into_become_methods_and_paths() -> None:
    drafted = persona(
        allowed("api.test", number=1), asked("GET", "/a?x=***", 2), asked("GET", "/b", 3), asked("POST", "/b", 4)
    )
    assert requests(drafted, ("GET", "/a"), ("GET", "/b"), ("POST", "/b")) == [True] * 3
    assert requests(drafted, ("POST", "/a"), ("GET", "/c"), ("PUT", "/b")) == [False] * 3


def test_three_paths_side_by_side_become_a_glob_but_not_below_the_root() -> None:
    drafted = persona(*(asked("GET", f"/r/x/{number}", number) for number in range(3)))
    assert drafted.allow[0].requests is not None
    assert drafted.allow[0].requests.paths == ("/r/x/*",)
    assert requests(drafted, ("GET", "/r/x/9"), ("GET", "/r/x/9/y"), ("GET", "/r/x")) == [True, False, False]
    shallow = persona(*(asked("GET", f"/{number}", number) for number in range(3)))
    assert requests(shallow, ("GET", "/2"), ("GET", "/3")) == [True, False]


@pytest.mark.parametrize("path", ["/a/*", "/a/%2e%2e/b", '/a"b', "/a\\b", "/a/[1]", "/" + "x" * 1990, "*"])
def test_a_request_that_no_rule_can_name_is_said_and_not_widened(path: str) -> None:
    text = text_of(asked("GET", path, 1), asked("GET", "/ok", 2))
    drafted = policy(text).personas["d"]
    assert requests(drafted, ("GET", "/ok"), ("GET", "/a/other")) == [True, False]
    assert "no rule can name GET " in text


def test_a_connection_whose_requests_were_all_refused_allows_nothing_nor_does_a_wildcard_around_it() -> None:
    refused = [allowed("api.test", number=1), asked("POST", "/a", 2, verdict="deny")]
    assert rules(*refused) == []
    tried = [allowed("d.corp.test", number=9), asked("POST", "/a", 10, verdict="deny", host="d.corp.test")]
    assert len(rules(*(allowed(f"{name}.corp.test") for name in "abc"), *tried)) == 3


# As a whole

LABEL = st.sampled_from(["a", "b", "c", "d", "x1"])
PARENT = st.sampled_from(["corp.test", "s.corp.test", "example.com", "github.io", "co.uk", "zendesk.com"])
HOST = st.one_of(
    st.builds("{}.{}".format, LABEL, PARENT), PARENT, st.sampled_from(["1.1.1.1", "2606:4700::1", "10.0.0.1", "null"])
)
PORT = st.sampled_from([22, 80, 443, 8443])
SIGHTING = st.tuples(HOST, PORT, st.sampled_from(["allow", "allow", "allow", "deny"]))


@given(st.lists(SIGHTING, max_size=40), st.lists(st.tuples(HOST, PORT), max_size=20))
def test_the_draft_allows_what_was_seen_and_nothing_but_siblings_beside_it(
    sightings: list[tuple[str, int, str]], others: list[tuple[str, int]]
) -> None:
    records = [decision(host, verdict, port=port, id=number) for number, (host, port, verdict) in enumerate(sightings)]
    drafted = persona(*records)
    seen = {(host, port) for host, port, verdict in sightings if verdict == "allow"}
    refused = {(host, port) for host, port, verdict in sightings if verdict == "deny"} - seen
    assert all(may(drafted, *each) for each in seen)
    assert not any(may(drafted, *each) for each in refused)
    for host, port in set(others) - seen:
        if may(drafted, host, port):
            above = {host.split(".", cut)[-1] for cut in range(1, host.count(".") + 1)}
            families = [{h for h, p in seen if p == port and h.partition(".")[2] == parent} for parent in above]
            assert max(map(len, families)) >= 3


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["GET", "PUT", "POST"]), st.sampled_from(["/a", "/b", "/d/1", "/d/2", "/d/3", "/d/3/e"])
        )
    )
)
def test_the_draft_allows_the_requests_that_were_seen(seen: list[tuple[str, str]]) -> None:
    drafted = persona(*(asked(method, path, number) for number, (method, path) in enumerate(seen)))
    assert all(requests(drafted, *seen))
    assert not any(requests(drafted, *(("DELETE", path) for _, path in seen)))


def test_a_draft_has_nothing_that_lint_would_warn_of() -> None:
    text = text_of(*(allowed(f"{name}.corp.test") for name in "abc"), allowed("a.test"), allowed("a.test", 80))
    assert lint(bind([[document(text)]])) == []


# The command


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "egress").mkdir()
    return tmp_path / "egress" / "audit.jsonl"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["policy", "draft", *words])
        return code, *capsys.readouterr()

    return run


def patterns(text: str, name: str = "draft") -> list[str]:
    return [str(rule.pattern) for rule in policy(text).personas[name].allow]


def test_the_command_drafts_one_session_or_the_newest(log: Path, run: Any) -> None:
    write(log, *passage(1, "a.test", session="old"), *passage(1, "b.test", session="new"))
    assert patterns(run("--last")[1]) == ["b.test"]
    code, out, err = run("--session", "old", "--name", "mine")
    assert (code, patterns(out, "mine")) == (0, ["a.test"])
    assert "--persona mine" in err


def test_the_command_can_leave_out_other_personas(log: Path, run: Any) -> None:
    write(log, *passage(1, "a.test", persona="p"), *passage(2, "b.test", persona="q"))
    assert patterns(run("--last", "--persona", "p")[1]) == ["a.test"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--session", "none"), "no session none is on record in"),
        (("--last", "--persona", "nobody"), "no session is on record in"),
        (("--last", "--name", "a: b"), "'a: b' is no name for a persona"),
        ((), "one of the arguments --session --last is required"),
        (("--last", "--audit", "none.jsonl"), "none.jsonl: cannot be read"),
    ],
)
def test_what_cannot_be_drafted_is_said(log: Path, run: Any, words: tuple[str, ...], error: str) -> None:
    write(log, *passage(1, "a.test"))
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert error in err
    assert "egress: hint: " in err


def test_without_a_log_the_command_says_how_to_begin_one(log: Path, run: Any) -> None:
    code, _, err = run("--last")
    assert code == 2
    assert "hint: egress-launch --observe" in err
