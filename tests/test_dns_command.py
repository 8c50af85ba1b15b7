"""`egress dns` as a program: what it prints, obeys and leaves."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dnskit import query, read

from egress.commands import dns
from egress.commands.say import Failure

POLICY = """
version: 1
hosts: {{good.test: 9.9.9.9, more.test: 9.9.9.10}}
personas:
  p:
    allow: [{}]
  other: {{allow: [good.test]}}
"""
ROOT = Path(dns.__file__).parent.parent.parent


@contextlib.contextmanager
def running(tmp_path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "policy.yaml").write_text(POLICY.format("good.test"))
    options = ["--policy", str(tmp_path / "policy.yaml"), "--audit", str(tmp_path / "audit.jsonl"), *words]
    command = [sys.executable, "-m", "egress.cli", "dns", *options]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def address(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("dns://127.0.0.1:"), process.stderr and process.stderr.read()
    assert line.endswith(" p\n")
    return "127.0.0.1", int(line.split()[0].rpartition(":")[2])


def ask(where: tuple[str, int], name: str) -> list[str]:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(15)
        sock.connect(where)
        sock.send(query(name))
        return read(sock.recv(4096)).addresses


def ask_over_tcp(where: tuple[str, int], name: str) -> list[str]:
    packet = query(name)
    with socket.create_connection(where, 15) as sock, sock.makefile("rb") as file:
        sock.sendall(len(packet).to_bytes(2, "big") + packet)
        return read(file.read(int.from_bytes(file.read(2), "big"))).addresses


def test_it_says_where_it_listens_answers_both_ways_and_ends_when_told(tmp_path: Path) -> None:
    with running(tmp_path, "--persona", "p", "--listen", "127.0.0.1:0", "--blocked", "sinkhole") as process:
        where = address(process)
        assert ask(where, "good.test") == ask_over_tcp(where, "good.test") == ["9.9.9.9"]
        assert ask(where, "evil.test") == ["0.0.0.0"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    records = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(record["event"], record["host"], record["verdict"]) for record in records] == [
        ("decision", "evil.test", "deny")
    ]


def test_an_edited_policy_holds_at_once(tmp_path: Path) -> None:
    with running(tmp_path, "--persona", "p", "--listen", "127.0.0.1:0") as process:
        where = address(process)
        assert ask(where, "more.test") == []
        (tmp_path / "policy.yaml").write_text(POLICY.format("more.test"))
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        for line in process.stderr:
            if "reloaded" in line:
                break
        assert ask(where, "more.test") == ["9.9.9.10"]
        assert ask(where, "good.test") == []


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([], "no persona given", "add --persona NAME, one of: "),
        (["--persona", "p", "--dns-server", "dns.test"], "is a name", "write it as --dns-server"),
        (["--persona", "p", "--listen", "0.0.0.0:0"], "is every address", "write it as 127.0.0.1:5353"),
        (["--persona", "p", "--listen", "localhost:53"], "is not ADDRESS:PORT", "write it as 127.0.0.1:5353"),
        (["--persona", "p", "--listen", "203.0.113.1:0"], "cannot listen on 203.0.113.1:0", "choose another"),
        (["--persona", "p", "--listen", "127.0.0.1:0", "--audit", "/"], "the audit log cannot be written", "--audit"),
    ],
)
def test_what_is_wrong_is_told_with_what_would_do(tmp_path: Path, words: list[str], message: str, hint: str) -> None:
    with running(tmp_path, *words) as process:
        out, err = process.communicate(timeout=15)
    assert (process.returncode, out) == (2, "")
    assert message in err.splitlines()[0]
    assert hint in err.splitlines()[1]


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:+53", "127.0.0.1:053", "127.0.0.1:x", "[::]:53"]
)
def test_an_address_is_an_address_and_a_port(text: str) -> None:
    with pytest.raises(Failure):
        dns.open_all([text])


def test_if_one_address_cannot_be_had_none_is_kept() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Failure, match="cannot listen"):
            dns.open_all(["127.0.0.1:0", f"127.0.0.1:{taken.getsockname()[1]}"])


def test_both_families_can_be_listened_on() -> None:
    opened = dns.open_all(["127.0.0.1:0", "[::1]:0"])
    assert [str(each).rpartition(":")[0] for each in opened] == ["dns://127.0.0.1", "dns://[::1]"]
    for each in opened:
        assert each.udp.getsockname()[:2] == each.tcp.getsockname()[:2]
        each.close()


def test_help_shows_an_example() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    dns.add(commands)
    assert "dig @127.0.0.1" in commands.choices["dns"].format_help()
