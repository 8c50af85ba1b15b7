from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from egress import signpost
from egress.signpost import Entrance

HERE = Entrance("p", "127.0.0.1", 3128)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


def test_entrances_stand_as_long_as_the_gate_runs(environ: dict[str, str]) -> None:
    assert signpost.standing(environ) == []
    with signpost.posted([HERE], environ), signpost.posted([HERE._replace(port=1)], environ):
        assert sorted(signpost.standing(environ)) == [HERE._replace(port=1), HERE]
    assert signpost.standing(environ) == []


def test_what_a_killed_gate_left_is_taken_away(environ: dict[str, str], tmp_path: Path) -> None:
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:  # the gate
        with signpost.posted([HERE], environ):
            os.write(writable, b"!")
            signal.pause()
    os.read(readable, 1)
    assert signpost.standing(environ) == [HERE]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(readable)
    os.close(writable)
    assert os.listdir(tmp_path / "egress") != []
    assert signpost.standing(environ) == []
    assert os.listdir(tmp_path / "egress") == []


def test_nobody_else_reads_it(environ: dict[str, str], tmp_path: Path) -> None:
    with signpost.posted([HERE], environ):
        (post,) = (tmp_path / "egress").iterdir()
        assert post.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("address", "local"), [("127.0.0.1", True), ("::", True), ("::1", True), ("192.0.2.1", False)])
def test_localhost_leads_to_some(address: str, local: bool) -> None:
    assert HERE._replace(address=address).is_local is local


def test_a_directory_that_cannot_be_made_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "egress").write_text("a file")
    with pytest.raises(OSError, match="File exists"):
        signpost.posted([HERE], {"XDG_RUNTIME_DIR": str(tmp_path)})
