"""A person's options, through the real `egress-launch`: observe, ask, the page, numbers, and whose request it was."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from gatekit import until as eventually

ROOT = Path(__file__).resolve().parent.parent.parent
MAIN = "import sys; from launcher.cli import main; sys.exit(main())"
ASK_FOR = "curl -sS -m 20 -o /dev/null -w '%{http_code}' http://unlisted.test/"
PATIENCE = 60

pytestmark = pytest.mark.scenario


class Launch:
    def __init__(self, home: Path) -> None:
        self.home, self.log = home, home / "audit.jsonl"
        (home / "policy.yaml").write_text("version: 1\npersonas: {p: {allow: [listed.test]}}\n")
        (home / "project").mkdir()

    def start(self, *options: str, command: str = ASK_FOR) -> subprocess.Popen[str]:
        words = ["--persona", "p", "--policy", str(self.home / "policy.yaml"), "--audit", str(self.log), *options]
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *words, "--", "sh", "-c", command],
            cwd=self.home / "project", env={**kept, "HOME": str(self.home), "PYTHONPATH": str(ROOT)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *options: str) -> tuple[str, str]:
        return self.start(*options).communicate(timeout=PATIENCE)

    def decisions(self) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [record for record in records if record["event"] == "decision" and record["via"] != "dns"]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """In a home with a short name: the path of a socket has little room."""
    with tempfile.TemporaryDirectory(prefix="overseen-") as home:
        yield Launch(Path(home))


def test_a_home_with_a_long_name_has_no_socket_and_all_else(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 100)
    home.mkdir()
    answered, said = Launch(home).run("--ask", "--ask-timeout", "0.5")
    assert answered == "403"
    assert "warning: `egress watch` will only see the log" in said


@pytest.fixture
def free_port() -> Iterator[int]:
    """Below the ephemeral range, where nobody gets it by chance."""
    for port in range(20000 + os.getpid() % 5000, 32000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
        return


def test_observing_says_so_and_marks_what_it_lets_pass(launch: Launch) -> None:
    _, said = launch.run("--observe")
    assert "NOTHING is blocked" in said
    (decision,) = launch.decisions()
    assert (decision["verdict"], decision["reason"], decision["would_deny"]) == ("allow", "observed", "not_listed")


def test_a_question_that_nobody_answers_is_a_no(launch: Launch) -> None:
    answered, said = launch.run("--ask", "--ask-timeout", "0.5")
    assert answered == "403"
    assert "--ask: a connection to an unlisted host waits 0.5 s" in said
    assert launch.decisions()[0]["reason"] == "unanswered"


class Control(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("egress")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def _say_yes(folder: Path) -> bool:
    for path in folder.glob("*.sock"):
        with closing(Control(path)) as control:
            try:
                control.request("POST", "/api/answer", json.dumps({"id": 1, "choice": "session"}))
                return bool(json.loads(control.getresponse().read())["taken"])
            except ConnectionError:  # it is only just being opened
                return False
    return False


async def test_a_yes_lets_the_connection_that_waits_go_on(launch: Launch) -> None:
    running = launch.start("--ask")
    await eventually(lambda: _say_yes(launch.home / ".local/state/egress/run"))
    running.communicate(timeout=PATIENCE)
    decision = launch.decisions()[0]
    assert (decision["verdict"], decision["reason"], decision["host"]) == ("allow", "answered", "unlisted.test")


def test_the_page_has_a_link_and_the_numbers_a_place(launch: Launch, free_port: int) -> None:
    running = launch.start("--ui", "--metrics", f"127.0.0.1:{free_port}", command=f"{ASK_FOR}; cat")
    assert running.stderr is not None
    assert running.stdout is not None
    assert ".localhost:" in running.stderr.readline()
    assert running.stdout.read(3) == "403"
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=20) as numbers:
        text = numbers.read().decode()
    assert 'egress_decisions_total{persona="p",verdict="deny",reason="not_listed"} 1' in text
    assert "unlisted.test" not in text
    running.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(("which", "named"), [("refused", True), ("none", False)])
def test_a_refusal_names_its_program_if_it_is_wanted(launch: Launch, which: str, named: bool) -> None:
    launch.run("--attribute", which)
    (decision,) = launch.decisions()
    assert ("process" in decision) is named
    if named:
        assert decision["process"]["exe"].endswith("/curl")
