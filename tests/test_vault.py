"""Where the values of secrets come from, and what becomes of a policy whose secrets are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from policykit import policy

from egress.model import Target
from egress.names import parse_host
from egress.policy import Policy
from egress.problems import PolicyError
from egress.refusals import Reason, Refused
from egress.requestpolicy import secrets_of
from egress.rules import Requests, Secret
from egress.vault import Missing, Vault, is_there, read

VARIABLE = Secret("authorization", env="TOKEN")


def one_persona(*entries: str) -> Policy:
    rules = "".join(f"\n      - {entry}" for entry in entries)
    return policy(f"version: 1\npersonas:\n  p:\n    allow:{rules}\n")


def rules_for(settled: Policy, host: str) -> tuple[Secret, ...]:
    return secrets_of(settled.personas["p"].request_rules(Target(parse_host(host), 443)))


def why(secret: Secret, **environ: str) -> str:
    with pytest.raises(Missing) as caught:
        read(secret, environ)
    return str(caught.value)


@pytest.fixture
def typed() -> Iterator[None]:
    """Words that wait on the standard input."""
    kept, (reading, writing) = os.dup(0), os.pipe()
    os.write(writing, b"typed\n")
    os.close(writing)
    os.dup2(reading, 0)
    yield
    os.dup2(kept, 0)
    os.close(kept)
    os.close(reading)


def test_a_variable_is_read_without_the_blanks_around_it() -> None:
    assert read(VARIABLE, {"TOKEN": " real\n"}) == "real"


@pytest.mark.parametrize("environ", [{}, {"TOKEN": ""}, {"TOKEN": " \n"}])
def test_a_variable_that_is_unset_or_empty_is_missing(environ: dict[str, str]) -> None:
    assert why(VARIABLE, **environ) == "$TOKEN is not set or empty"
    assert not is_there(VARIABLE, environ)


@pytest.mark.parametrize("value", ["one\ntwo", "one\r\nx-evil: 1", "t\x00n", "tökén"])
def test_a_value_that_could_not_be_one_header_is_missing_and_not_shown(value: str) -> None:
    words = why(VARIABLE, TOKEN=value)
    assert words == "$TOKEN gives more than one line of printable characters"


def test_a_file_is_read_before_a_variable_which_only_names_the_placeholder(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-file\n")
    assert read(VARIABLE._replace(file=str(tmp_path / "key")), {"TOKEN": "from-variable"}) == "from-file"


def test_a_tilde_in_a_files_name_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text("real")
    secret = VARIABLE._replace(file="~/key")
    assert is_there(secret, {})
    assert read(secret, {}) == "real"


def test_a_file_that_is_not_there_is_missing_by_name(tmp_path: Path) -> None:
    secret = VARIABLE._replace(file=str(tmp_path / "key"))
    assert why(secret) == f"{tmp_path / 'key'}: No such file or directory"
    assert not is_there(secret, {})


def test_a_file_of_bytes_that_are_not_text_is_missing(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    assert "printable" in why(VARIABLE._replace(file=str(tmp_path / "key")))


def test_a_command_is_run_with_the_hosts_variables_and_never_in_the_project() -> None:
    secret = VARIABLE._replace(command=("/bin/sh", "-c", 'echo "$PWD:$WHO"'))
    assert read(secret, {"WHO": "me", "TOKEN": "from-variable"}) == "/:me"


def test_a_command_does_not_read_what_is_typed(typed: None) -> None:
    assert read(VARIABLE._replace(command=("/bin/sh", "-c", "cat; echo end")), {"PATH": os.defpath}) == "end"


def test_a_command_that_fails_is_missing_and_what_it_said_is_not_told() -> None:
    secret = VARIABLE._replace(command=("/bin/sh", "-c", "echo real; echo real >&2; exit 3"))
    assert why(secret) == "the command '/bin/sh' ends with code 3"


def test_a_command_that_is_not_there_is_missing() -> None:
    secret = VARIABLE._replace(command=("/nowhere/tool", "token"))
    assert why(secret) == "the command '/nowhere/tool': No such file or directory"


def test_a_command_is_taken_at_its_word_before_it_is_run() -> None:
    assert is_there(VARIABLE._replace(command=("/nowhere/tool",)), {})


def test_a_vault_knows_what_it_has_read() -> None:
    vault = Vault({"TOKEN": "real"})
    settled = vault.settle(one_persona("{host: a.example, secret: {env: TOKEN, header: X-Key}}"), {"p"})
    ((secret, value),) = vault.known(rules_for(settled, "a.example"))
    assert (secret.header, value) == ("x-key", "real")


def test_a_secret_that_was_never_read_refuses_the_request() -> None:
    with pytest.raises(Refused) as caught:
        Vault({"TOKEN": "real"}).known([VARIABLE])
    assert caught.value.reason is Reason.CREDENTIAL_MISMATCH


def test_all_that_is_missing_is_told_at_once_with_its_line() -> None:
    written = one_persona(
        "{host: a.example, secret: {env: ONE, header: x-key}}",
        "{host: b.example, secret: {env: TWO, header: x-key}}",
    )
    with pytest.raises(PolicyError) as caught:
        Vault({}).settle(written, {"p"})
    assert [str(problem) for problem in caught.value.problems] == [
        "layer0.yaml:5: the secret for a.example: $ONE is not set or empty",
        "layer0.yaml:6: the secret for b.example: $TWO is not set or empty",
    ]


def test_a_failed_settling_leaves_the_values_that_were_there() -> None:
    environ = {"TOKEN": "real"}
    vault = Vault(environ)
    settled = vault.settle(one_persona("{host: a.example, secret: {env: TOKEN, header: x-key}}"), {"p"})
    with pytest.raises(PolicyError):
        vault.settle(one_persona("{host: a.example, secret: {env: GONE, header: x-key}}"), {"p"})
    assert [known.value for known in vault.known(rules_for(settled, "a.example"))] == ["real"]


def test_a_secret_that_left_the_policy_is_forgotten() -> None:
    vault = Vault({"TOKEN": "real"})
    settled = vault.settle(one_persona("{host: a.example, secret: {env: TOKEN, header: x-key}}"), {"p"})
    vault.settle(one_persona("a.example"), {"p"})
    with pytest.raises(Refused):
        vault.known(rules_for(settled, "a.example"))


def test_the_secrets_of_other_personas_are_not_read() -> None:
    text = "version: 1\npersonas:\n  {}: {{allow: [{{host: a.example, secret: {{env: {}, header: x-key}}}}]}}\n"
    both = policy(text.format("p", "TOKEN"), text.format("other", "ABSENT"))
    assert (
        Vault({"TOKEN": "real"}).settle(both, {"p"}).personas["p"].request_rules(Target(parse_host("a.example"), 443))
    )


def test_an_optional_secret_that_is_missing_leaves_a_plain_rule() -> None:
    settled = Vault({}).settle(
        one_persona("{host: a.example, secret: {env: TOKEN, header: x-key, optional: true}}"), {"p"}
    )
    (rule,) = settled.personas["p"].allow
    assert rule.requests is None
    assert settled.personas["p"].inspected == ()


def test_an_optional_secret_that_is_missing_leaves_the_rest_of_its_rule() -> None:
    entry = "{host: a.example, methods: [GET], secret: {env: TOKEN, header: x-key, optional: true}}"
    (rule,) = Vault({}).settle(one_persona(entry), {"p"}).personas["p"].allow
    assert rule.requests == Requests(methods=frozenset({"GET"}))


def test_an_optional_secret_that_is_there_is_put_in() -> None:
    vault = Vault({"TOKEN": "real"})
    settled = vault.settle(one_persona("{host: a.example, secret: {env: TOKEN, header: x-key, optional: true}}"), {"p"})
    assert [known.value for known in vault.known(rules_for(settled, "a.example"))] == ["real"]
