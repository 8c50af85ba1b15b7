"""Other tools' files on the command line: imported, looked at, obeyed, and what is said on the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from egress.cli import main
from egress.policyfile import parse_document

HERE = Path(__file__).parent / "foreign"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in ("ANTHROPIC_API_KEY", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    shutil.copytree(HERE, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_check_names_the_line_of_the_other_tools_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "github.com", "--policy", "claude-step.json", "--persona", "claude-step"]) == 0
    assert "rule: claude-step.json:14 github.com" in capsys.readouterr().out


def test_check_tells_what_does_not_hold_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "github.com", "--policy", "claude-excluded.json"]) == 1
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "egress: persona claude-excluded, the only one in claude-excluded.json"
    said = "sandbox.allowUnsandboxedCommands is true: no command runs outside of the sandbox"
    assert f"egress: warning: claude-excluded.json:6: {said}" in err


def test_warnings_are_those_of_the_persona_that_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "github.com", "--policy", "wave.yaml", "--persona", "implementer"])
    assert "Edit(*)" not in capsys.readouterr().err
    main(["check", "github.com", "--policy", "wave.yaml", "--persona", "navigator"])
    assert "Edit(*)" in capsys.readouterr().err


def test_who_extends_a_persona_of_another_tool_hears_its_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.yaml").write_text("version: 1\npersonas: {mine: {extends: navigator}}\n")
    words = ["check", "github.com", "--policy", "wave.yaml", "--policy", "own.yaml", "--persona"]
    main([*words, "mine"])
    assert "egress: warning: wave.yaml:27: 'Edit(*)'" in capsys.readouterr().err
    main([*words, "auditor"])
    assert "warning" not in capsys.readouterr().err


def test_lint_shows_notes_and_warnings_and_is_strict_about_the_latter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "lint", "bwrap-config.json"]) == 0
    out = capsys.readouterr().out
    assert "bwrap-config.json:5: note: defaultConfig.maxProcesses: threads count as well" in out
    assert "bwrap-config.json:3: warning: defaultConfig.allowNetworking is true" in out
    assert main(["policy", "lint", "--strict", "bwrap-config.json"]) == 1


def test_an_import_is_a_policy_with_what_was_said_in_comments_and_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "import", "srt-settings.json", "--as", "agent"]) == 0
    out, err = capsys.readouterr()
    assert list(parse_document(out, "agent.yaml").personas) == ["agent"]
    assert "# srt-settings.json:5 warning: '/var/run/docker.sock' was left out" in out
    assert "egress: warning: srt-settings.json:5: '/var/run/docker.sock' was left out" in err


def test_several_files_become_one_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "import", "wave.yaml", "bwrap-config.json"]) == 0
    names = list(parse_document(capsys.readouterr().out, "all.yaml").personas)
    assert names == ["navigator", "implementer", "default", "development", "production"]


def test_personas_of_the_same_name_are_not_put_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "import", "wave.yaml", "wave-personas.yaml"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "egress: error: persona 'navigator' is in wave.yaml and in wave-personas.yaml" in err


def test_an_error_prevents_the_import_and_names_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.json").write_text(json.dumps({"sandbox": {"network": {"allowedDomains": ["*"]}}}, indent=1))
    assert main(["policy", "import", "s.json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "egress: error: s.json:5: '*' would allow everything; list the hosts" in err


@pytest.mark.parametrize("text", ['{"a": 1}', "version: 1\n", "[]", "{"])
def test_a_file_of_nobody_is_not_imported(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.json").write_text(text)
    assert main(["policy", "import", "s.json"]) == 1
    assert "egress: hint: it must be one of: a seccomp profile, bwrap-config.json" in capsys.readouterr().err
