"""Entering a sandbox's mount namespace, where every path is the sandbox's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher import mountns
from launcher.netns.model import parse_info

BWRAP = ["bwrap", "--die-with-parent", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc"]


@pytest.fixture
def sandbox() -> Iterator[int]:
    told, tell = os.pipe()
    command = [*BWRAP, "--info-fd", str(tell), "--", "sh", "-c", "echo ready; exec sleep 60"]
    process = subprocess.Popen(command, pass_fds=(tell,), stdout=subprocess.PIPE)
    os.close(tell)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield parse_info(os.read(told, 4096)).pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(told)


class Spy:
    """Tells of every import in a process that is not this one."""

    def __init__(self) -> None:
        self.heard, self._tell = os.pipe()
        os.set_blocking(self.heard, False)
        self._home = os.getpid()

    def find_spec(self, name: str, *_: object) -> None:
        if os.getpid() != self._home:
            os.write(self._tell, name.encode() + b"\n")

    def close(self) -> None:
        os.close(self._tell)
        os.close(self.heard)


def test_nothing_is_imported_once_paths_are_the_sandboxs(sandbox: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy()
    kept = mountns._keep_only
    monkeypatch.setattr(mountns, "_keep_only", lambda *fds: kept(*fds, spy._tell))
    monkeypatch.setattr(sys, "meta_path", [spy, *sys.meta_path])
    for name in ("ctypes", "struct"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert mountns.cut_off(sandbox)
    with pytest.raises(BlockingIOError):
        os.read(spy.heard, 1)
    spy.close()


def test_its_mounts_are_private_afterwards(sandbox: int) -> None:
    assert mountns.cut_off(sandbox)
    fields = [line.split(" - ")[0].split()[6:] for line in Path(f"/proc/{sandbox}/mountinfo").read_text().splitlines()]
    assert fields
    assert not any(fields)


def test_a_process_that_is_gone_is_an_error() -> None:
    with pytest.raises(OSError, match="No such"):
        mountns.cut_off(2**22)
