"""What is told at the end of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from launcher import aftermath
from launcher.aftermath import look, remember, report
from launcher.plan import Repositories
from launcher.protect import FILE_MODE


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With a repository of its own, one further down, a submodule's file and one in a package of others."""
    for name in (".", "old", "node_modules/theirs"):
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    return tmp_path


def before(project: Path, complete: bool = True) -> Repositories:
    known = remember(str(project), ["old/.git", "sub/.git"], complete)
    while time.clock_gettime_ns(5) <= known.since:  # CLOCK_REALTIME_COARSE, which dates files
        pass
    return known


def told(known: Repositories, project: Path) -> list[str]:
    """The subject of each line, and what became of it; the hint is always the last."""
    lines = report(known, str(project))
    assert not lines or lines[-1].startswith("hint: read its config and hooks")
    return [line.removeprefix("warning: ").partition(":")[0] for line in lines[:-1]]


def test_where_nothing_was_touched_nothing_is_told(project: Path) -> None:
    known = before(project)
    (project / "old/.git/index").write_text("")
    (project / "node_modules/theirs/.git/index").write_text("")
    assert report(known, str(project)) == []


def test_a_repository_that_was_not_there_before_is_told(project: Path) -> None:
    known = before(project)
    (project / "a/deep/.git").mkdir(parents=True)
    (project / "b").mkdir()
    (project / "b/.git").write_text("gitdir: ../elsewhere")
    assert told(known, project) == ["a repository was made in 'a/deep/.git'", "a repository was made in 'b/.git'"]


def test_one_that_was_made_elsewhere_and_long_ago_is_told_where_it_is_new(project: Path) -> None:
    known = before(project)
    shutil.move(project / "node_modules/theirs", project / "moved")
    assert told(known, project) == ["a repository was made in 'moved/.git'"]


@pytest.mark.parametrize("place", ["node_modules", ".venv/src", "target/x/.cache"])
def test_one_that_is_made_among_packages_of_others_is_told(project: Path, place: str) -> None:
    known = before(project)
    subprocess.run(["git", "init", "-q", str(project / place / "mine")], check=True)
    assert told(known, project) == [f"a repository was made in '{place}/mine/.git'"]


@pytest.mark.parametrize("name", ["config", "hooks/pre-commit", "commondir", "config.worktree"])
@pytest.mark.parametrize(
    ("where", "what"),
    [("node_modules/theirs", "a repository was made in '{}/.git'"), ("old", "the repository '{}/.git' was changed")],
)
def test_one_whose_programs_were_changed_is_told(project: Path, where: str, what: str, name: str) -> None:
    known = before(project)
    (project / where / ".git" / name).write_text("[core]\n\tfsmonitor = evil\n")
    assert told(known, project) == [what.format(where)]


def test_a_hook_that_was_there_and_is_written_again_is_told(project: Path) -> None:
    hook = project / "old/.git/hooks/pre-push"
    hook.write_text("#!/bin/sh\n")
    known = before(project)
    with hook.open("a") as file:
        file.write("evil\n")
    assert told(known, project) == ["the repository 'old/.git' was changed"]


def test_so_is_one_that_is_a_link(project: Path) -> None:
    known = before(project)
    (project / "old/.git/commondir").symlink_to("../../evil")
    assert told(known, project) == ["the repository 'old/.git' was changed"]


def test_an_old_date_hides_nothing(project: Path) -> None:
    known = before(project)
    config = project / "old/.git/config"
    config.write_text("[core]\n\tfsmonitor = evil\n")
    os.utime(config, (0, 0))
    assert told(known, project) == ["the repository 'old/.git' was changed"]


def test_nor_does_the_mode_of_a_placeholder(project: Path) -> None:
    known = before(project)
    (project / "old/.git/commondir").write_text("../../evil\n")
    (project / "old/.git/commondir").chmod(FILE_MODE)
    assert told(known, project) == ["the repository 'old/.git' was changed"]


def test_placeholders_of_another_sandbox_are_no_change(project: Path) -> None:
    shutil.rmtree(project / "old/.git/hooks")
    known = before(project)
    (project / "old/.git/hooks").mkdir(mode=0o1755)
    (project / "old/.git/commondir").write_text(".\n")
    (project / "old/.git/config.worktree").write_text("\n")
    assert report(known, str(project)) == []


@pytest.mark.parametrize("where", ["old", "sub"])
def test_one_that_was_moved_aside_for_another_is_told(project: Path, where: str) -> None:
    known = before(project)
    (project / where).rename(project / "node_modules/.cache")
    subprocess.run(["git", "init", "-q", str(project / where)], check=True)
    assert told(known, project)[0] == f"the repository '{where}/.git' was replaced"


def test_a_file_that_says_where_the_git_directory_is_and_says_another_is_told(project: Path) -> None:
    known = before(project)
    (project / "sub/.git").write_text("gitdir: ../evil\n")
    assert told(known, project) == ["the repository 'sub/.git' was changed"]


def test_one_that_is_gone_is_told(project: Path) -> None:
    known = before(project)
    (project / "sub/.git").unlink()
    assert told(known, project) == ["the repository 'sub/.git' is gone, which was there before the run"]


def test_after_a_search_that_was_cut_short_only_what_is_young_is_new(project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project / "unknown")], check=True)
    known = before(project, complete=False)
    assert report(known, str(project)) == []
    subprocess.run(["git", "init", "-q", str(project / "made")], check=True)
    assert told(known, project) == ["a repository was made in 'made/.git'"]


def test_names_are_shown_without_what_a_terminal_would_obey(project: Path) -> None:
    known = before(project)
    (project / "x\x1b[2J\ny/.git").mkdir(parents=True)
    assert told(known, project) == [r"a repository was made in 'x\x1b[2J\ny/.git'"]


def test_many_are_told_in_few_lines(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aftermath, "MOST_TOLD", 2)
    known = before(project)
    for number in range(5):
        (project / f"{number}/.git").mkdir(parents=True)
    assert told(known, project)[1:] == ["a repository was made in '1/.git'", "and 3 more repositories"]


@pytest.mark.parametrize(("bound", "value"), [("MOST_ENTRIES", 3), ("LONGEST", -1.0)])
def test_a_bound_that_was_met_is_told(project: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: float) -> None:
    known = before(project)
    monkeypatch.setattr(aftermath, bound, value)
    assert "too large to look for repositories" in report(known, str(project))[-1]


def test_packages_of_others_are_looked_through_last(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "z/y/x/.git").mkdir(parents=True)
    everything = look(str(project)).repositories
    assert everything[-1] == "node_modules/theirs/.git"
    assert set(everything) == {".git", "old/.git", "sub/.git", "z/y/x/.git", "node_modules/theirs/.git"}


def test_no_link_is_followed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    known = before(project)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / ".git").mkdir()
    (project / "link").symlink_to(elsewhere)
    assert report(known, str(project)) == []
