"""The environment inside."""

from __future__ import annotations

import pytest

from launcher.env import DEFAULT_PATH, environment, passed, proxy_variables
from launcher.mounts import PlanError

PROXY = "http://127.0.0.1:3128"
ME = {"HOME": "/home/me", "USER": "me", "LOGNAME": "me"}


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "GH_TOKEN", "DATABASE_URL", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"),
        *("NODE_OPTIONS", "BASH_ENV", "ENV", "PERL5LIB", "RUBYOPT", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"),
        *("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "PWD", "OLDPWD", "EGRESS_POLICY", "LC", "TERMINFO", "TMUX"),
    ],
)
def test_what_the_host_has_set_stays_there(name: str) -> None:
    assert environment({name: "x"}, ME) == environment({}, ME)


@pytest.mark.parametrize("name", ["TERM", "LANG", "LC_ALL", "LC_MEASUREMENT", "TZ", "NO_COLOR", "COLORTERM", "SHELL"])
def test_how_the_terminal_and_the_language_look_is_kept(name: str) -> None:
    assert environment({name: "x"}, ME)[name] == "x"


def test_an_environment_from_nothing() -> None:
    assert environment({}, ME) == {
        **ME,
        "PATH": DEFAULT_PATH,
        "TMPDIR": "/tmp",
        "SANDBOX_ACTIVE": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_BUG_COMMAND": "1",
        "CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY": "1",
    }


def test_who_one_is_does_not_come_from_variables() -> None:
    host = {"HOME": "/elsewhere", "USER": "root", "LOGNAME": "root", "TMPDIR": "/home/me/tmp"}
    inside = environment(host, ME)
    assert {name: inside[name] for name in ME} == ME
    assert inside["TMPDIR"] == "/tmp"


def test_a_persona_gets_the_variables_that_it_lists_where_they_are_set() -> None:
    inside = environment({"GH_TOKEN": "t", "OTHER": "o"}, ME, persona=["GH_TOKEN", "NPM_TOKEN"])
    assert inside["GH_TOKEN"] == "t"
    assert "NPM_TOKEN" not in inside
    assert "OTHER" not in inside


def test_a_persona_cannot_bring_the_hosts_proxy_back() -> None:
    host = {"HTTPS_PROXY": "http://corp:1", "no_proxy": "*", "SANDBOX_ACTIVE": "0"}
    inside = environment(host, ME, persona=list(host), proxy=PROXY)
    assert inside["HTTPS_PROXY"] == PROXY
    assert inside["no_proxy"] == "localhost,127.0.0.1,::1"
    assert inside["SANDBOX_ACTIVE"] == "1"


def test_a_flag_has_the_last_word() -> None:
    inside = environment({"A": "host", "TERM": "xterm"}, ME, ["A"], {"B": "ours"}, ["A=flag", "B=", "TERM", "C=a=b"])
    assert (inside["A"], inside["B"], inside["C"], inside["TERM"]) == ("flag", "", "a=b", "xterm")


@pytest.mark.parametrize("flag", ["", "=x", "A\0B", "A=x\0y"])
def test_what_is_no_variable_is_refused(flag: str) -> None:
    with pytest.raises(PlanError, match="expected NAME or NAME=VALUE"):
        environment({}, ME, flags=[flag])


def test_a_flag_without_a_value_must_name_what_is_set() -> None:
    with pytest.raises(PlanError, match="'MISSING' is not set") as refusal:
        environment({}, ME, flags=["MISSING"])
    assert refusal.value.hint == "--env MISSING=VALUE gives it one"


def test_only_names_that_the_user_passes_are_counted_as_theirs() -> None:
    assert passed(["GH_TOKEN"], ["A=b=c", "D"]) == {"GH_TOKEN", "A", "D"}


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "grpc_proxy", "PIP_PROXY"])
def test_programs_are_told_of_the_gate_by_the_name_they_look_for(name: str) -> None:
    assert proxy_variables(PROXY, capture=True)[name] == PROXY


def test_no_proxy_is_ever_a_socks_proxy() -> None:
    assert {v for v in proxy_variables(PROXY, capture=True).values() if "://" in v} == {PROXY}


def test_loopback_goes_past_the_gate_and_nothing_else_does() -> None:
    values = proxy_variables(PROXY, capture=True)
    assert {values[name] for name in ("NO_PROXY", "no_proxy", "npm_config_noproxy")} == {"localhost,127.0.0.1,::1"}


def test_java_and_ssh_are_told_only_where_nothing_is_captured() -> None:
    captured, not_captured = proxy_variables(PROXY, capture=True), proxy_variables(PROXY, capture=False)
    added = {name: value for name, value in not_captured.items() if name not in captured}
    assert added == {
        "JAVA_TOOL_OPTIONS": "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1"
        " -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=localhost|127.*|[::1]",
        "GIT_SSH_COMMAND": "ssh -o ProxyCommand='nc -X connect -x 127.0.0.1:3128 %h %p'",
    }


def test_without_a_gate_there_are_no_proxy_variables() -> None:
    assert proxy_variables("", capture=False) == {}
