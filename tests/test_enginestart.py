"""What the engine is told and given, and where it may import from."""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import sys
from pathlib import Path

import pytest
from gatekit import descriptors

from egress import enginestart
from egress.counts import Counts
from egress.enginestart import COUNTS, LINE, Config, read_config, start

PACKAGE = Path(enginestart.__file__).resolve().parent.parent
FULL = Config(b"key\x00", b"certificate", ("a.example", "*.b.example"), ("/roots.pem",))
STAND_IN = """
import json, os, socket, sys
from egress.counts import ENGINE, Counts
from egress.enginestart import COUNTS, LINE, read_config

def main():
    given = sorted(map(int, os.listdir("/proc/self/fd")))
    config = read_config()
    Counts(COUNTS, ENGINE).add(3, 42)
    line = socket.socket(fileno=LINE)
    said = {"names": config.names, "key": config.key.decode(), "path": sys.path, "environ": dict(os.environ),
            "session": os.getsid(0) == os.getpid(), "open": given,
            "alone": bool(sys.flags.isolated and sys.flags.no_site)}
    line.send(json.dumps(said).encode())
"""


def read_through(config: Config) -> Config:
    fd = os.memfd_create("test")
    try:
        os.write(fd, marshal.dumps(tuple(config)))
        os.lseek(fd, 0, os.SEEK_SET)
        return read_config(fd)
    finally:
        os.close(fd)


def inheritable() -> set[int]:
    """What whoever runs the tests left open for every program."""
    found = {1, 2}
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own
            found |= {number} if os.get_inheritable(number) else set()
    return found


@pytest.mark.parametrize("config", [Config(), FULL, Config(names=("a.example",))])
def test_a_configuration_arrives_as_it_was_sent(config: Config) -> None:
    arrived = read_through(config)
    assert arrived == config
    assert isinstance(arrived, Config)


def test_reading_leaves_the_descriptor_open() -> None:
    read, write = os.pipe()
    try:
        os.write(write, marshal.dumps(tuple(FULL)))
        os.close(write)
        assert read_config(read) == FULL
        os.fstat(read)
    finally:
        os.close(read)


# Where it imports from


def test_the_working_directory_is_never_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", "lib", str(tmp_path), "/usr/lib/elsewhere"])
    assert enginestart._import_path() == [str(PACKAGE), "/usr/lib/elsewhere"]


def test_the_working_directory_is_imported_from_if_we_are_there_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PACKAGE)
    monkeypatch.setattr(sys, "path", ["", "/usr/lib/elsewhere"])
    assert enginestart._import_path() == [str(PACKAGE), "/usr/lib/elsewhere"]


def test_only_harmless_variables_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GH_TOKEN", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SSL_CERT_FILE", "/roots.pem")
    environment = enginestart._environment()
    assert environment["SSL_CERT_FILE"] == "/roots.pem"
    assert environment.keys().isdisjoint({"GH_TOKEN", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "HTTPS_PROXY"})


# A process


def test_a_process_gets_its_configuration_line_and_counts_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "standin.py").write_text(STAND_IN)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "json.py").write_text("raise SystemExit('taken over')")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "project"), str(tmp_path / "lib"), *sys.path])
    monkeypatch.setattr(enginestart, "_MAIN", "standin")
    monkeypatch.setenv("GH_TOKEN", "real")
    before = descriptors()
    inherited = inheritable()
    counts = Counts.make(8)
    started = start(FULL, counts.fd)
    try:
        with started.line:
            started.line.settimeout(15)
            said = json.loads(started.line.recv(65536))
    finally:
        _, status = os.waitpid(started.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (said["names"], said["key"]) == (list(FULL.names), "key\x00")
    assert counts.total(3) == 42
    ours = {0, LINE, COUNTS}
    assert ours <= set(said["open"])
    assert len(set(said["open"]) - ours - inherited) == 1  # the listing's own
    assert str(tmp_path / "project") not in said["path"]
    assert "GH_TOKEN" not in said["environ"]
    assert said["session"]
    assert said["alone"]
    counts.close()
    os.close(counts.fd)
    assert descriptors() == before


@pytest.mark.parametrize("places", ["each other's", "free ones", "high ones"])
def test_descriptors_arrive_in_their_places_whatever_stood_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: str
) -> None:
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
    (one, other), reads = [write for _, write in pipes], [read for read, _ in pipes]
    near = (other, one) if places == "each other's" else reversed(next_free())
    first, second = (201, 200) if places == "high ones" else near
    (tmp_path / "standin.py").write_text(
        f"import os\ndef main():\n    os.write({first}, b'first')\n    os.write({second}, b'second')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(enginestart, "_MAIN", "standin")
    pid = enginestart._spawn({first: one, second: other})
    os.close(one)
    os.close(other)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [os.read(read, 100) for read in reads] == [b"first", b"second"]
    finally:
        for read in reads:
            os.close(read)


def next_free() -> tuple[int, int]:
    """The numbers that the next two descriptors get."""
    numbers = os.dup(0), os.dup(0)
    for number in numbers:
        os.close(number)
    return numbers
