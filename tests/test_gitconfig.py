"""Git's configuration, as far as it names programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launcher.gitconfig import inside, is_on, named, values


def test_values_of_a_key_are_found_in_any_section() -> None:
    text = '[core]\n\thooksPath = "a b"\n[x]\n HOOKSPATH=c\n; hookspath = d\n[include]\n path = e\nhookspath\n'
    assert values(text, "hookspath") == ["a b", "c", ""]
    assert values(text, "path") == ["e"]


@pytest.mark.parametrize(
    "text",
    [
        "[core]\nhooksPath = x",
        "[core] hooksPath = x",
        "[core]hookspath=x",
        "[a] [core] hooksPath = x",
        '[a "]="][core] hooksPath = x',
        '[a "\\"]"][core] hooksPath = x',
        "\ufeff[core] hooksPath = x",
        "[CORE]\r\n\tHOOKSPATH = x\r\n",
        "[core]\nhooksPath = x ; why",
        "[core]\nhooksPath = x#why",
        '[core]\nhooksPath = "x" # why',
        "[core]\nhooksPath = \\\nx",
    ],
)
def test_a_value_is_read_as_git_reads_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text, newline="")
    command = ["git", "config", "--file", str(tmp_path / "config"), "core.hooksPath"]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout == "x\n"
    assert values(text, "hookspath") == ["x"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        *((f"worktreeConfig = {word}", True) for word in ("true", "yes", "on", "1", "TRUE", '"Yes"', "2")),
        *((f"worktreeConfig = {word}", False) for word in ("false", "no", "off", "0", "False")),
        ("worktreeConfig", True),
        ("worktreeConfig ; why", True),
        ("other = true", False),
    ],
)
def test_a_switch_is_on_in_any_spelling(line: str, answer: bool) -> None:
    assert is_on(f"[extensions]\n{line}\n", "worktreeconfig") is answer
    assert is_on(f"[extensions] {line}", "worktreeconfig") is answer


def test_hooks_are_seen_from_the_tree_and_includes_from_the_file() -> None:
    text = "[core] hooksPath = h\nhooksPath = ~/h\n[include] path = ../i\npath = /etc/i"
    assert list(named(text, "/p", "/p/.git", "/home/me")) == ["/p/h/", "/home/me/h/", "/p/i", "/etc/i"]


def test_a_directory_is_not_inside_itself() -> None:
    assert inside("/p/h/", "/p")
    assert not inside("/p/", "/p")
    assert not inside("/pp", "/p")
