from __future__ import annotations

import os
from pathlib import Path

import pytest

from egress import projectfile
from egress.projectfile import Unusable


def test_a_file_that_is_not_there_is_made_with_its_directories(tmp_path: Path) -> None:
    file = projectfile.read(str(tmp_path), "a/b/c")
    assert (file.text, file.status) == (None, None)
    file.replace("new")
    assert (tmp_path / "a/b/c").read_text() == "new"
    assert os.listdir(tmp_path / "a/b") == ["c"]


def test_what_somebody_wrote_meanwhile_stays(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    file = projectfile.read(str(tmp_path), "f")
    (tmp_path / "f").write_text("theirs")
    for change in (lambda: file.replace("ours"), file.remove):
        with pytest.raises(Unusable, match="f: was changed by somebody else just now"):
            change()
    assert (tmp_path / "f").read_text() == "theirs"
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_that_came_meanwhile_stays(tmp_path: Path) -> None:
    file = projectfile.read(str(tmp_path), "f")
    (tmp_path / "f").write_text("theirs")
    with pytest.raises(Unusable, match="was changed"):
        file.replace("ours")
    assert (tmp_path / "f").read_text() == "theirs"


def test_a_directory_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    (project / "d").mkdir(parents=True)
    file = projectfile.read(str(project), "d/f")
    (project / "d").rmdir()
    (project / "d").symlink_to(outside)
    with pytest.raises(Unusable, match="leads out of the directory"):
        file.replace("ours")
    assert os.listdir(outside) == []


def test_a_link_to_nowhere_in_the_project_is_followed(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to("g")
    projectfile.read(str(tmp_path), "f").replace("new")
    assert (tmp_path / "g").read_text() == "new"
    assert (tmp_path / "f").is_symlink()


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"a\n\xff", "f:2: not UTF-8: byte 0xff"),
        (b"x" * (projectfile.MAX_BYTES + 1), "is larger than 4194304 bytes"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(Unusable, match=complaint):
        projectfile.read(str(tmp_path), "f")


def test_a_directory_goes_with_the_last_file_in_it(tmp_path: Path) -> None:
    for name in ("d/a", "d/b"):
        projectfile.read(str(tmp_path), name).replace("x")
    projectfile.read(str(tmp_path), "d/a").remove()
    assert os.listdir(tmp_path / "d") == ["b"]
    projectfile.read(str(tmp_path), "d/b").remove()
    assert os.listdir(tmp_path) == []
