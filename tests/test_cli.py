"""The command line's surface: its help, its examples as a reader would paste them, its errors and its exit codes."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress import __version__, cli, places
from egress.audit import Audit
from egress.commands.say import Failure
from egress.model import Decision, Verdict, Via
from egress.refusals import Reason
from egress.users import parse_users

ROOT = Path(__file__).resolve().parent.parent
RUNS_ON = (
    "egress proxy ",
    "egress dns ",
    "egress watch",
    "egress attach ",
)  # what an example of these starts does not end by itself


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)


PARSERS = {parser.prog: parser for parser in _parsers(cli._parser([]))}
EXAMPLES = sorted(
    {
        line.strip()
        for parser in PARSERS.values()
        for line in (parser.epilog or "").splitlines()
        if "egress " in line and not line.startswith("example")
    }
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    """Where `egress` is a command, as it is once installed."""
    command = home / "bin" / "egress"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m egress.cli "$@"\n')
    command.chmod(0o755)
    return {"PATH": f"{command.parent}:{os.environ['PATH']}", "HOME": str(home), "PYTHONPATH": str(ROOT)}


def shell(home: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", text], env=environment(home), capture_output=True, text=True, check=False)


def run_once(home: Path) -> None:
    """What a session leaves: some examples are about the last one."""
    log = Path(places.audit_log({"HOME": str(home)}))
    log.parent.mkdir(parents=True)
    audit = Audit(str(log), "k3f9")
    for host, decision in {
        "github.com": Decision(Verdict.ALLOW, Reason.LISTED),
        "evil.example": Decision(Verdict.DENY, Reason.NOT_LISTED),
    }.items():
        audit.decision(audit.next_id(), "reviewer", Via.CONNECT, host, 443, decision)
    audit.close()


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[str]]:
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


def understood(words: list[str]) -> bool:
    try:
        cli._parser(words).parse_args(words)
    except Failure:
        return False
    except SystemExit as end:  # --help, --version
        return end.code == 0
    return True


# --- help


def test_the_commands_are_found() -> None:
    assert {f"egress {name}" for name in cli._COMMANDS} <= set(PARSERS)
    assert {"egress policy show", "egress policy lint"} <= set(PARSERS)


@pytest.mark.parametrize("prog", PARSERS)
def test_every_help_says_what_it_is_for_and_has_an_example(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([*prog.split()[1:], "--help"])
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (0, "")
    usage, description, *_ = out.split("\n\n")
    assert usage.startswith(f"usage: {prog} ")
    assert description.endswith(".")
    assert out.partition("\nexample:\n")[2].lstrip().partition("egress ")[2]


@pytest.mark.parametrize("prog", PARSERS)
def test_every_option_is_explained(prog: str) -> None:
    for action in PARSERS[prog]._actions:
        assert action.help or not action.option_strings, action.option_strings


def test_the_help_of_all_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(f"\n    {name} " in out for name in cli._COMMANDS)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert (end.value.code, capsys.readouterr().out) == (0, f"egress {__version__}\n")


# --- examples


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_understood(example: str) -> None:
    command = example.partition("egress ")[2].partition(" >")[0]
    assert understood(shlex.split(command))


@pytest.mark.scenario
@pytest.mark.parametrize("example", [example for example in EXAMPLES if not example.startswith(RUNS_ON)])
def test_every_example_works_when_pasted(home: Path, example: str) -> None:
    run_once(home)
    (home / ".claude").mkdir(exist_ok=True)
    (home / ".claude/settings.json").write_text('{"sandbox": {"enabled": true}}')
    done = shell(home, f"cd {shlex.quote(str(home))} && {example}")
    assert done.returncode == 0, done
    assert "error" not in done.stderr


@pytest.mark.scenario
def test_the_example_for_users_makes_a_file_that_the_gate_takes(home: Path) -> None:
    (example,) = [example for example in EXAMPLES if "egress users " in example]
    assert shell(home, f"cd {shlex.quote(str(home))} && {example}").stdout == ""
    (user,) = parse_users((home / "users.txt").read_text(), "users.txt").values()
    assert (user.name, user.persona) == ("ci", "reviewer")


# --- errors

MISTAKES = {
    "no command": ([], "the following arguments are required: COMMAND", "egress --help"),
    "an unknown command": (["prox"], "invalid choice: 'prox'", "egress --help"),
    "an unknown option": (["--color"], "required: COMMAND", "egress --help"),
    "an unknown option of a command": (
        ["check", "a.test", "--color"],
        "unrecognized arguments: --color",
        "egress --help",
    ),
    "no action": (["policy"], "the following arguments are required: ACTION", "egress policy --help"),
    "an unknown action": (["policy", "sow"], "invalid choice: 'sow'", "egress policy --help"),
    "nothing to check": (["check"], "the following arguments are required: HOST[:PORT]|URL", "egress check --help"),
    "no persona": (["check", "a.test"], "no persona given", "add --persona NAME, one of: navigator, "),
    "an unknown persona": (
        ["check", "a.test", "--persona", "reviewr"],
        "unknown persona 'reviewr'; did you mean 'reviewer'?",
        "egress policy show",
    ),
    "an unknown persona to show": (["policy", "show", "--persona", "x"], "unknown persona 'x'", "egress policy show"),
    "no policy": (
        ["check", "a.test", "--persona", "reviewer", "--policy", "my policy.yaml"],
        "my policy.yaml: cannot be read: No such file or directory",
        "egress policy lint 'my policy.yaml'",
    ),
    "a bad rule for one run": (
        ["check", "a.test", "--persona", "reviewer", "--allow", "https://a.test/x"],
        "--allow: ",
        "write it as --allow host.example",
    ),
    "a user without a persona": (
        ["users", "hash", "ci"],
        "the following arguments are required: --persona",
        "users --help",
    ),
    "a user's name": (["users", "hash", "c:i", "--persona", "p"], "expected name:persona:hash", "a name is letters"),
    "a limit": (["proxy", "--limit", "x"], "--limit 'x' is not NAME=NUMBER", "egress proxy --limit help"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_an_error_and_a_hint_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    words, error, hint = MISTAKES[mistake]
    monkeypatch.setattr("sys.stdin", io.StringIO("a long password\n"))
    code, out, err = answer(capsys, *words)
    assert (code, out) == (2, "")
    assert err[0].startswith("egress: error: ")
    assert error in err[0]
    assert [line for line in err if line.startswith("egress: hint: ")] == err[-1:]
    assert hint in err[-1]
    assert all(line.startswith("egress: ") and not line.endswith(".") for line in err)


@pytest.mark.parametrize("mistake", [name for name, (_, _, hint) in MISTAKES.items() if hint.startswith("egress ")])
def test_a_hint_that_is_a_command_is_understood(capsys: pytest.CaptureFixture[str], mistake: str) -> None:
    *_, last = answer(capsys, *MISTAKES[mistake][0])[2]
    assert understood(shlex.split(last.removeprefix("egress: hint: "))[1:])


def test_an_empty_password_makes_no_user(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    code, out, err = answer(capsys, "users", "hash", "ci", "--persona", "reviewer")
    assert (code, out, err[0]) == (2, "", "egress: error: an empty password")


# --- exit codes


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("check github.com --persona reviewer", 0),
        ("check example.com --persona reviewer", 1),
        ("check example.com --persona nobody", 2),
        ("policy lint", 0),
        ("policy lint --strict", 0),
        ("policy lint none.yaml", 1),
        ("policy show", 0),
        ("proxy --limit help", 0),
    ],
)
def test_the_exit_code_is_the_answer(capsys: pytest.CaptureFixture[str], words: str, code: int) -> None:
    assert answer(capsys, *words.split())[0] == code


def test_facts_go_to_stdout_and_advice_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = answer(capsys, "check", "example.com", "--persona", "reviewer")
    assert out.startswith("deny example.com:443\n")
    assert "egress: " not in out
    assert err
    assert all(line.startswith("egress: ") for line in err)


def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("egress.commands.check.run", interrupt)
    assert answer(capsys, "check", "a.test") == (130, "", [])


@pytest.mark.scenario
@pytest.mark.parametrize("words", ["--help", "policy show --persona reviewer", "check github.com --persona reviewer"])
def test_a_reader_that_has_gone_is_no_traceback(home: Path, words: str) -> None:
    """`egress … | true`, where the shell would say 141."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "egress.cli", *words.split()],
            env=environment(home),
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.scenario
def test_a_closed_stdout_is_no_traceback(home: Path) -> None:
    done = shell(home, "egress check github.com --persona reviewer >&-")
    assert (done.returncode, done.stderr) == (0, "")
