from __future__ import annotations

import json
import re
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
        ("bad.wild.test:22", "deny bad.wild.test:22", "denied", "p.yaml:13 bad.wild.test"),
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
    assert check("api.test")[1][3] == "terms: inspected methods=GET paths=/v1/**"
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
    assert err == ["egress: hint: a denial always wins; to allow it, take this line away: p.yaml:13 bad.wild.test"]


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
    assert main(["check", "web.test", "--policy", "p.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "egress: error: no persona given" in err
    assert re.search(r"egress: hint: .*navigator.*reader", err)


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


def test_the_example_in_the_help_works(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    example = capsys.readouterr().out.split("example:\n")[1].split()
    assert main(example[1:]) == 0
