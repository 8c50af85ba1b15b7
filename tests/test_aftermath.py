"""What is told at the end of a run."""

from __future__ import annotations

from pathlib import Path

from launcher.aftermath import new_repositories


def test_repositories_that_were_not_there_before_are_told(tmp_path: Path) -> None:
    for name in (".git", "old/.git", "b/deep/.git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.git").write_text("gitdir: ../elsewhere")
    assert new_repositories(["old/.git", "gone/.git"], str(tmp_path)) == ["a/.git", "b/deep/.git"]
    assert new_repositories(["old/.git", "a/.git", "b/deep/.git"], str(tmp_path)) == []
