"""Sandboxes by the policy files of other tools, as they stand, as root and as an ordinary user."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from launchkit import PEOPLE, Person, somebody

pytestmark = pytest.mark.scenario

FILES = Path(__file__).resolve().parents[1] / "foreign"
PYTHON = "/usr/bin/python3"  # every user can run this one
TRACE = """
import ctypes, errno
library = ctypes.CDLL(None, use_errno=True)
print("done" if library.ptrace(0, 0, 0, 0) == 0 else errno.errorcode[ctypes.get_errno()])
"""
RUNS = '#include <unistd.h>\nint main(void) { write(1, "it runs\\n", 8); return 0; }\n'


@pytest.fixture(params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as who:
        shutil.copytree(FILES, who.home / "foreign")
        who.own()
        yield who


def launch(
    person: Person, file: str, *command: str, options: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    ours = ["--policy", str(person.home / "foreign" / file), "--audit", str(person.audit), *options]
    return subprocess.run(
        [person.installation.python, "-m", "launcher.cli", *ours, "--", *command],
        cwd=person.project,
        env=person.env | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
        **person.identity,
    )


# --- the worker's configuration --------------------------------------------------------------------------


def test_calls_that_the_worker_blocks_are_refused_by_its_own_list(person: Person) -> None:
    """Without the default filter, so that nothing else refuses; and where the profile allows it, it works."""
    for persona, outcome in (("production", "EPERM\n"), ("default", "EPERM\n"), ("development", "done\n")):
        options = ("--persona", persona, "--seccomp", "off")
        done = launch(person, "bwrap-config.json", PYTHON, "-c", TRACE, options=options)
        assert (done.returncode, done.stdout) == (0, outcome), done.stderr
        assert "allowNetworking is true" in done.stderr


def test_a_profile_that_allows_tracing_still_stands_behind_the_default_filter(person: Person) -> None:
    done = launch(person, "bwrap-config.json", PYTHON, "-c", TRACE, options=("--persona", "development"))
    assert done.stdout == "EPERM\n"
    assert "bwrap-config.json:19: allowPtrace is true: the default filter refuses it" in done.stderr


# --- its seccomp profile ---------------------------------------------------------------------------------


def test_the_minimal_profile_is_refused_with_the_call_that_every_program_lacks(person: Person) -> None:
    done = launch(person, "seccomp.json", "true")
    assert done.returncode == 125
    assert (
        "egress: error: the persona's allow_calls lack arch_prctl, without which no program starts or ends"
        in done.stderr
    )
    assert "for programs that load libraries also: pread64, newfstatat" in done.stderr


def with_calls(person: Person, *more: str) -> str:
    profile = json.loads((FILES / "seccomp.json").read_text())
    profile["syscalls"][0]["names"] += more
    name = f"with-{len(more)}.json"
    (person.home / "foreign" / name).write_text(json.dumps(profile))
    person.own()
    return name


def test_with_that_call_a_program_without_libraries_runs(person: Person) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no compiler to make a static program with")
    (person.project / "it.c").write_text(RUNS)
    subprocess.run([compiler, "-static", "-o", "it", "it.c"], cwd=person.project, check=True)
    person.own()
    done = launch(person, with_calls(person, "arch_prctl"), "./it")
    assert (done.returncode, done.stdout) == (0, "it runs\n"), done.stderr
    assert "allow_calls lack pread64, newfstatat: programs that load libraries may not start" in done.stderr


def test_with_three_more_a_shell_runs_but_can_start_nothing_since_fork_is_not_listed(person: Person) -> None:
    file = with_calls(person, "arch_prctl", "pread64", "newfstatat")
    done = launch(person, file, "sh", "-c", "echo works; ls")
    assert done.stdout == "works\n", done.stderr
    assert "Cannot fork" in done.stderr
    assert "may not start" not in done.stderr


# --- an agent's settings ---------------------------------------------------------------------------------


def test_settings_are_obeyed_without_a_persona_and_say_whose_they_are(person: Person) -> None:
    (person.project / "secrets").mkdir()
    (person.project / "secrets" / "key").write_text("k")
    (person.project / ".env").write_text("A=1\n")
    filesystem = {"denyRead": ["secrets"], "allowWrite": [".", "/tmp"], "denyWrite": [".env"]}
    (person.home / "foreign" / "own.json").write_text(json.dumps({"sandbox": {"filesystem": filesystem}}))
    person.own()
    script = "ls secrets | wc -l; echo x >> .env || echo protected; echo y > new && cat new"
    done = launch(person, "own.json", "sh", "-c", script)
    assert done.stdout == "0\nprotected\ny\n", done.stderr
    assert "egress: persona own, the only one in " in done.stderr


def test_warnings_come_at_every_start_also_when_the_files_are_not_read_again(person: Person) -> None:
    for _ in range(2):
        done = launch(person, "claude-excluded.json", "true", options=("--persona", "claude-excluded"))
        assert done.returncode == 0, done.stderr
        said = (
            "claude-excluded.json:6: sandbox.allowUnsandboxedCommands is true: no command runs outside of the sandbox"
        )
        assert f"egress: warning: {person.home}/foreign/{said}\n" in done.stderr
    assert list((person.home / ".cache/egress/outlines").iterdir())


# --- Wave ------------------------------------------------------------------------------------------------


def test_no_variable_goes_in_that_the_manifest_does_not_pass(person: Person) -> None:
    canaries = {"AWS_SECRET_ACCESS_KEY": "canary", "DATABASE_PASSWORD": "canary"}
    done = launch(person, "wave.yaml", "env", options=("--persona", "navigator"), TERM="xterm-256color", **canaries)
    assert "canary" not in done.stdout
    assert "TERM=xterm-256color" in done.stdout.splitlines()
    assert "SANDBOX_ACTIVE=1" in done.stdout.splitlines()


def test_a_file_with_several_personas_wants_one_named(person: Person) -> None:
    done = launch(person, "wave.yaml", "true")
    assert done.returncode == 2
    assert "egress: error: no persona was given" in done.stderr


def test_a_key_is_there_as_a_placeholder() -> None:
    with somebody(PEOPLE[0]) as person:  # whose Python has what opens TLS
        shutil.copytree(FILES, person.home / "foreign")
        person.own()
        script = 'echo "$ANTHROPIC_API_KEY $GH_TOKEN"'
        keys = {"ANTHROPIC_API_KEY": "sk-real", "GH_TOKEN": "gh-real"}
        done = launch(person, "wave.yaml", "sh", "-c", script, options=("--persona", "navigator"), **keys)
        assert done.stdout == "egress-placeholder-ANTHROPIC_API_KEY \n", done.stderr
