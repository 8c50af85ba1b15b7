"""Ports across the wall, each asked for by name: servers inside for the host, services of the host for inside."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gateprocess import until

pytestmark = pytest.mark.scenario
ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = "import http.server as s; s.test(HandlerClass=s.SimpleHTTPRequestHandler, port={}, bind='127.0.0.1')"
POLICY = "version: 1\npersonas: {p: {}}\n"


@pytest.fixture
def launch(tmp_path: Path) -> list[str]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "project").mkdir()
    words = ["--persona", "p", "--policy", str(tmp_path / "policy.yaml"), "--audit", str(tmp_path / "audit.jsonl")]
    return [sys.executable, "-m", "launcher.cli", *words, "--project", str(tmp_path / "project")]


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return sock.recv(12).startswith(b"HTTP/1.0 200")
    except OSError:
        return False


def test_a_server_inside_is_reached_at_its_port_of_the_host(launch: list[str], tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    command = [*launch, "--publish", f"{inside}:{outside}", "--", "python3", "-c", SERVER.format(inside)]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=tmp_path / "project", env=environment(tmp_path), **quiet) as process:
        try:
            until(lambda: answers(outside))
            with ThreadPoolExecutor(16) as pool:
                assert all(pool.map(lambda _: answers(outside), range(64)))
        finally:
            process.terminate()
    assert not answers(outside)


def test_a_service_of_the_host_is_reached_inside_and_on_record(launch: list[str], tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        get = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/').status)"
        command = [*launch, "--host-port", str(port), "--", "python3", "-c", get]
        done = subprocess.run(
            command, cwd=tmp_path / "project", env=environment(tmp_path), capture_output=True, text=True, check=False
        )
        server.shutdown()
    assert (done.returncode, done.stdout) == (0, "200\n")
    records = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(r["host"], r["port"], r["rule"]) for r in records if r["event"] == "decision"] == [
        ("127.0.0.1", port, "--host-port 127.0.0.1")
    ]
