from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from egress.cli import main

POLICY = """\
version: 1
hosts: {fixed.test: 10.0.0.7, public.test: 140.82.112.3}
groups: {web: [web.test, "*.wild.test"]}
personas:
  reader:
    allow:
      - "@web"
      - 10.0.0.9
      - fixed.test
      - public.test
      - {host: inner.test, private: true, ports: [8443], tls: true}
      - {host: api.test, methods: [GET], paths: ["/v1/**"]}
      - {host: api.test, methods: [POST], paths: ["/v1/*/run"], headers: {forbid: [x-debug]}, upload_limit: 1M}
      - {host: api.test, ports: 443, secret: {env: KEY, header: x-key}}
      - {host: "*.deep.test", ports: [443, 9443], tls: true, private: true, methods: [GET]}
      - {host: plain.test, ports: [8080, 8443], methods: [GET]}
      - {host: key.test, ports: 443, secret: {env: TOKEN, header: authorization, optional: true}}
      - {host: key.test, ports: 80, secret: {env: TOKEN, header: authorization, optional: true}}
    deny: [bad.wild.test]
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(POLICY)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]):
    def run(*words: str, policy: str = "p.yaml", persona: str = "reader") -> tuple[int, list[str], list[str]]:
        code = main(["check", *words, "--policy", policy, "--persona", persona])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return run


@pytest.mark.parametrize(
    ("target", "first", "reason", "rule"),
    [
        ("web.test", "allow web.test:443", "listed", "p.yaml:3 web.test"),
        ("WEB.test.:80", "allow web.test:80", "listed", "p.yaml:3 web.test"),
        ("https://a.wild.test/x", "allow a.wild.test:443", "listed", "p.yaml:3 *.wild.test"),
        ("http://web.test/", "allow web.test:80", "listed", "p.yaml:3 web.test"),
        ("web.test:22", "deny web.test:22", "port_not_listed", "p.yaml:3 web.test"),
        ("evil.test", "deny evil.test:443", "not_listed", "none"),
        ("wild.test", "deny wild.test:443", "not_listed", "none"),
        ("bad.wild.test:22", "deny bad.wild.test:22", "denied", "p.yaml:19 bad.wild.test"),
        ("8.8.8.8", "deny 8.8.8.8:443", "address_literal", "none"),
        ("[::1]:80", "deny [::1]:80", "address_literal", "none"),
        ("169.254.169.254", "deny 169.254.169.254:443", "metadata_address", "none"),
        ("10.0.0.9", "deny 10.0.0.9:443", "resolved_private", "p.yaml:8 10.0.0.9"),
        ("fixed.test", "deny fixed.test:443", "resolved_private", "p.yaml:9 fixed.test"),
        ("public.test", "allow public.test:443", "listed", "p.yaml:10 public.test"),
        ("127.1", "deny 127.1", "malformed_host", "none"),
        ("a b", "deny a b", "malformed_host", "none"),
        ("web.test:0", "deny web.test:0", "malformed_host", "none"),
        ("user@web.test", "deny user@web.test", "malformed_host", "none"),
        ("[web.test]", "deny [web.test]", "malformed_host", "none"),
    ],
)
def test_the_answer_is_verdict_reason_and_rule(check, target: str, first: str, reason: str, rule: str) -> None:
    code, out, _ = check(target)
    assert out[0] == first
    assert out[1].startswith(f"reason: {reason}: ")
    assert out[2] == f"rule: {rule}"
    assert code == (0 if first.startswith("allow") else 1)


def test_the_reason_is_told_in_words(check) -> None:
    _, out, _ = check("evil.test")
    assert out[1] == "reason: not_listed: evil.test:443 is not on the allowlist of persona reader"


def test_what_a_rule_asks_beyond_host_and_port_is_told(check) -> None:
    assert check("inner.test:8443")[1][3] == "terms: tls private"
    assert check("GET https://api.test/v1/x")[1][3] == "terms: inspected methods=GET paths=/v1/**"
    assert len(check("web.test")[1]) == 3


def test_json_says_the_same_to_a_program(check) -> None:
    code, out, _ = check("a.wild.test", "--json")
    assert code == 0
    assert json.loads("\n".join(out)) == {
        "persona": "reader",
        "asked": "a.wild.test:443",
        "host": "a.wild.test",
        "port": 443,
        "verdict": "allow",
        "reason": "listed",
        "sentence": "a.wild.test:443 is on the allowlist of persona reader",
        "rule": "p.yaml:3 *.wild.test",
    }
    code, out, _ = check("127.1", "--json")
    told = json.loads("\n".join(out))
    assert (code, told["verdict"], told["reason"], told["host"], told["rule"]) == (
        1,
        "deny",
        "malformed_host",
        None,
        None,
    )


@pytest.mark.parametrize("target", ["a\nallow b", "a\x1b[2J", "a\u202eb", "é.test", "a\0b"], ids=ascii)
def test_nothing_that_was_typed_can_forge_a_line(check, target: str) -> None:
    code, out, err = check(target)
    assert code == 1
    assert len(out) == 3
    assert all(line.isascii() and line.isprintable() for line in out)
    assert all(line.startswith("egress: ") and line.isprintable() for line in err)


@pytest.mark.parametrize(
    "target", ["evil.test", "web.test:22", "8.8.8.8", "[2606:4700::1111]:99", "10.1.2.3", "[fd00::1]"]
)
def test_the_line_that_would_allow_it_allows_it_when_pasted(check, target: str) -> None:
    code, _, err = check(target)
    assert code == 1
    at = next(number for number, line in enumerate(err) if "add this to allow: of persona reader at p.yaml:5" in line)
    entry = err[at + 1].removeprefix("egress:   ")
    text = Path("p.yaml").read_text().replace('      - "@web"\n', f'      - "@web"\n      {entry}\n')
    Path("p.yaml").write_text(text)
    assert check(target)[0] == 0


def test_the_option_that_would_allow_it_allows_it(check) -> None:
    for target in ("evil.test", "web.test:22", "8.8.8.8", "[2606:4700::1111]"):
        _, _, err = check(target)
        option = next(line for line in err if "--allow" in line).split("add ")[1].split()
        assert check(target, *option)[0] == 0


def test_a_shipped_persona_is_added_to_in_the_users_own_file(check, tmp_path: Path) -> None:
    code, _, err = check("evil.test:8443", persona="reviewer")
    assert code == 1
    at = next(number for number, line in enumerate(err) if "put this into" in line)
    file = Path(err[at].split("put this into ")[1])
    assert file == tmp_path / ".config" / "egress" / "reviewer.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(line.removeprefix("egress:   ") for line in err[at + 1 :]))
    assert check("evil.test:8443", persona="reviewer")[0] == 0
    assert check("github.com", persona="reviewer")[0] == 0


def test_a_denial_is_told_with_the_line_to_take_away(check) -> None:
    _, _, err = check("bad.wild.test")
    assert err == ["egress: hint: a denial always wins; to allow it, take this line away: p.yaml:19 bad.wild.test"]


@pytest.mark.parametrize("target", ["169.254.169.254", "[::]", "127.1", "a b"])
def test_no_line_is_offered_where_none_would_help(check, target: str) -> None:
    _, _, err = check(target)
    assert not any("allow" in line for line in err)


def test_a_rule_that_lacks_private_is_named(check) -> None:
    _, _, err = check("fixed.test")
    assert "egress: 10.0.0.7 is a private address" in err
    assert "egress: hint: it needs a rule with private: true in place of p.yaml:9 fixed.test" in err
    assert not any("--allow" in line for line in err)


def test_without_a_persona_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    Path("q.yaml").write_text("version: 1\npersonas: {writer: {}}\n")
    assert main(["check", "web.test", "--policy", "p.yaml", "--policy", "q.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "egress: error: no persona given" in err
    assert re.search(r"egress: hint: .*navigator.*reader", err)


def test_the_only_persona_of_the_files_named_is_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "web.test", "--policy", "p.yaml"]) == 0
    out, err = capsys.readouterr()
    assert "persona reader" in out
    assert err == "egress: persona reader, the only one in p.yaml\n"


def test_an_unknown_persona_is_a_usage_error_with_the_near_one(check) -> None:
    code, out, err = check("web.test", persona="raeder")
    assert (code, out) == (2, [])
    assert "egress: error: unknown persona 'raeder'; did you mean 'reader'?" in err[0]
    assert err[1] == "egress: hint: egress policy show"


@pytest.mark.parametrize("text", ["", "version: 1\npersonas: {reader: {allow: ['*']}}", "version: 2"])
def test_a_bad_policy_answers_nothing(check, text: str) -> None:
    Path("bad.yaml").write_text(text)
    code, out, err = check("web.test", policy="bad.yaml")
    assert (code, out) == (2, [])
    assert err[0].startswith("egress: error: bad.yaml:")
    assert any(line.startswith("egress: hint: ") for line in err)


def test_a_missing_policy_answers_nothing(check) -> None:
    code, out, err = check("web.test", policy="none.yaml")
    assert (code, out) == (2, [])
    assert err[0] == "egress: error: none.yaml: cannot be read: No such file or directory"


def test_the_examples_in_the_help_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    examples = capsys.readouterr().out.split("example:\n")[1].splitlines()
    assert [main(shlex.split(example)[1:]) for example in examples] == [0, 0]


@pytest.mark.parametrize(
    ("words", "first", "reason", "rule"),
    [
        (["GET https://api.test/v1/x"], "allow GET https://api.test/v1/x", "listed", "p.yaml:12 api.test"),
        (["GET", "https://api.test/v1/x"], "allow GET https://api.test/v1/x", "listed", "p.yaml:12 api.test"),
        (["https://api.test/v1/x?a=b#c"], "allow GET https://api.test/v1/x?a=b", "listed", "p.yaml:12 api.test"),
        (["wss://api.test/v1/x"], "allow GET wss://api.test/v1/x", "listed", "p.yaml:12 api.test"),
        (["GET api.test/v1"], "allow GET https://api.test/v1", "listed", "p.yaml:12 api.test"),
        (["http://API.test/v1/"], "allow GET http://API.test/v1/", "listed", "p.yaml:12 api.test"),
        (["POST https://api.test/v1/a/run"], "allow POST https://api.test/v1/a/run", "listed", "p.yaml:13 api.test"),
        (["POST https://api.test/v1/a"], "deny POST https://api.test/v1/a", "path_not_listed", "p.yaml:13 api.test"),
        (["https://api.test"], "deny GET https://api.test/", "path_not_listed", "p.yaml:12 api.test"),
        (["https://api.test?a"], "deny GET https://api.test/?a", "path_not_listed", "p.yaml:12 api.test"),
        (["PUT https://api.test/v1/a"], "deny PUT https://api.test/v1/a", "method_not_listed", "p.yaml:12 api.test"),
        (["https://api.test/v1/?_method=PUT"], "deny GET https://api.test/v1/?_method=PUT", "method_not_listed",
         "p.yaml:12 api.test"),
        (["https://api.test/v1/../x"], "deny GET https://api.test/v1/../x", "ambiguous_path", "p.yaml:12 api.test"),
        (["POST", "https://api.test/v1/a/run", "--header", "X-Debug: 1"], "deny POST https://api.test/v1/a/run",
         "header_not_listed", "p.yaml:13 api.test"),
        (["https://api.test/v1", "--header", "X-Original-URL:/v1"], "deny GET https://api.test/v1", "ambiguous_path",
         "p.yaml:12 api.test"),
        (["https://api.test/v1", "--header", "X-Forwarded-Host: b.test"], "deny GET https://api.test/v1",
         "host_mismatch", "p.yaml:12 api.test"),
        (["https://api.test/v1", "--header", "x-key: mine"], "deny GET https://api.test/v1", "credential_mismatch",
         "p.yaml:12 api.test"),
        (["https://api.test/v1", "--header", "x-key: egress-placeholder-KEY"], "allow GET https://api.test/v1",
         "listed", "p.yaml:12 api.test"),
        (["POST https://web.test/x"], "allow POST https://web.test/x", "listed", "p.yaml:3 web.test"),
        (["POST https://evil.test/x"], "deny POST https://evil.test/x", "not_listed", "none"),
        (["POST https://bad.wild.test/x"], "deny POST https://bad.wild.test/x", "denied", "p.yaml:19 bad.wild.test"),
        (["http://web.test:443/"], "deny web.test:443", "not_tls", "p.yaml:3 web.test"),
        (["ws://web.test:443/"], "deny web.test:443", "not_tls", "p.yaml:3 web.test"),
        (["GET http://api.test:443/v1"], "deny GET http://api.test:443/v1", "not_tls", "p.yaml:12 api.test"),
        (["https://web.test:80/"], "allow web.test:80", "listed", "p.yaml:3 web.test"),
        (["http://plain.test:8443/x"], "allow GET http://plain.test:8443/x", "listed", "p.yaml:16 plain.test"),
        (["https://plain.test:8443/x"], "deny GET https://plain.test:8443/x", "not_http", "p.yaml:16 plain.test"),
        (["GET https://127.1/x"], "deny https://127.1", "malformed_host", "none"),
        (["https:///x"], "deny https://", "malformed_host", "none"),
    ],
)  # fmt: skip
def test_a_request_is_judged_as_the_gate_would(check, words: list[str], first: str, reason: str, rule: str) -> None:
    code, out, _ = check(*words)
    assert out[0] == first
    assert out[1].startswith(f"reason: {reason}: ")
    assert out[2] == f"rule: {rule}"
    assert code == (0 if first.startswith("allow") else 1)


def test_of_a_host_alone_it_tells_which_requests_are_allowed(check) -> None:
    code, out, _ = check("api.test")
    assert code == 0
    assert out[3:] == [
        "terms: inspected",
        "requests: GET /v1/** (p.yaml:12)",
        "requests: POST /v1/*/run forbid=x-debug upload_limit=1M (p.yaml:13)",
        "secret: x-key from $KEY",
    ]
    assert check("a.deep.test")[1][3:] == ["terms: tls private inspected", "requests: GET /** (p.yaml:15)"]


def test_a_secret_counts_where_this_machine_has_it(check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    assert len(check("key.test")[1]) == 3
    monkeypatch.setenv("TOKEN", "do-not-tell")
    _, out, err = check("key.test")
    assert out[3:] == ["terms: inspected", "requests: any /** (p.yaml:17)", "secret: authorization from $TOKEN"]
    assert "do-not-tell" not in "".join([*out, *err])


def test_a_secret_does_not_go_out_in_the_clear(check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "value")
    code, out, err = check("http://key.test/", "--header", "authorization: Bearer egress-placeholder-TOKEN")
    assert (code, out[1].split(": ")[1]) == (1, "not_tls")
    assert "egress: a secret is not put into a request that goes out in the clear" in err
    assert check("http://key.test/")[0] == 0


def test_json_has_the_request_or_the_rules_for_requests(check) -> None:
    told = json.loads(check("POST https://api.test/v1/a?b", "--json")[1][0])
    assert (told["method"], told["path"], told["reason"]) == ("POST", "/v1/a?b", "path_not_listed")
    assert "requests" not in told
    told = json.loads(check("api.test", "--json")[1][0])
    assert [rule["source"] for rule in told["requests"]] == ["p.yaml:12", "p.yaml:13", "p.yaml:14"]
    assert told["requests"][1]["upload_limit"] == {"request": 1 << 20, "session": None}
    assert "method" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([""], "nothing to check"),
        ([" "], "nothing to check"),
        (["get https://api.test/"], "'get' is not a method in upper case, such as GET"),
        (["get", "https://api.test/"], "'get' is not a method"),
        (["GET", "https://api.test/ x"], "'https://api.test/ x' is not a URL: it has a blank in it"),
        (["GET https://api.test/\nallow"], "is not a URL: it has a blank in it"),
        (["GET ssh://api.test/"], "'ssh' has no requests that are looked at; expected https or http"),
        (["https://api.test/", "--header", "x"], "'x' is not a header such as 'accept: application/json'"),
        (["https://api.test/", "--header", "a b: c"], "'a b: c' is not a header"),
        (["https://api.test/", "--header", "a: b\r\nc: d"], "is not a header"),
        (["https://api.test/", "--header", ": b"], "': b' is not a header"),
    ],
)
def test_what_is_no_question_is_a_usage_error(check, words: list[str], told: str) -> None:
    code, out, err = check(*words)
    assert (code, out) == (2, [])
    assert told in err[0]
    assert err[1] == "egress: hint: egress check 'POST https://example.com/path' --persona NAME"


@pytest.mark.parametrize(
    "words",
    [
        ["PUT https://api.test/v1/a"],
        ["POST https://api.test/v2/a"],
        ["POST https://api.test/v1/a/run", "--header", "x-debug: 1"],
        ["POST https://api.test/v1/a?_method=delete"],
        ["POST http://api.test/v3/%7Ea%20b"],
        ["POST https://a.deep.test:9443/x"],
        ["POST http://plain.test:8080/x"],
    ],
)
def test_the_rule_that_would_allow_a_request_allows_it_when_pasted_and_takes_nothing_away(
    check, words: list[str]
) -> None:
    others = ["https://api.test/v1/x", "https://a.deep.test/y", "http://plain.test:8443/y"]
    code, _, err = check(*words)
    assert code == 1
    assert err[0].startswith("egress: the nearest rule, p.yaml:")
    assert not any("--allow" in line for line in err)  # a plain rule would not widen
    at = next(number for number, line in enumerate(err) if "add this to allow: of persona reader at p.yaml:5" in line)
    entry = err[at + 1].removeprefix("egress:   ")
    text = Path("p.yaml").read_text().replace('      - "@web"\n', f'      - "@web"\n      {entry}\n')
    Path("p.yaml").write_text(text)
    assert check(*words)[0] == 0
    assert [check(other)[0] for other in others] == [0, 0, 0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["https://api.test/v1/../x"], "the path has a segment . or .."),
        (["https://api.test/v1/../x"], "hint: no rule allows such a path; ask for it in its plain spelling"),
        (["https://api.test/v1", "--header", "x-rewrite-url: /"], "a header gives the path a second time"),
        (["https://api.test/v1", "--header", "x-method: A,B,C,D"], "the nearest rule, p.yaml:12 api.test, allows GET"),
        (["https://api.test/v1", "--header", "x-host: b.test"], "its x-host header names another host"),
        (["https://api.test/v1", "--header", "x-host: b.test"], "hint: no rule allows a request that names two hosts"),
        (["https://api.test/v1", "--header", "x-key: a"], "or let the secret of this host say allow_other: true"),
        (["GET http://web.test:443"], "hint: ask with https://, or let the rule p.yaml:3 web.test say tls: false"),
        (["http://web.test:443"], "hint: ask with https://, or let the rule p.yaml:3 web.test say tls: false"),
        (["https://plain.test:8443"], "hint: ask with http://, or let the rule p.yaml:16 plain.test say tls: true"),
    ],
)  # fmt: skip
def test_where_no_line_would_help_it_says_what_would(check, words: list[str], told: str) -> None:
    _, _, err = check(*words)
    assert any(told in line for line in err)
    assert not any("add this" in line for line in err)


@pytest.mark.parametrize("path", ["a*b", "a|b", 'a"b', "[a]"])
def test_a_path_that_a_rule_cannot_say_gets_no_rule(check, path: str) -> None:
    code, _, err = check(f"PUT https://api.test/{path}")
    assert code == 1
    assert not any("add this" in line for line in err)
