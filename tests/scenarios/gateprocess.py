"""The gate as people run it: its command line, in a process, a home and a working directory of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from programs import Done, environment, run

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0  # for what must happen; nothing waits as long as that unless it is broken
_OURS = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
COMMAND = (sys.executable, "-m", "egress.cli")
PLAIN = ("--persona", "p", "--listen", "127.0.0.1:0")


def until(holds: Callable[[], object]) -> None:
    """Look until it holds. It is an error if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.002)


class Rules(NamedTuple):
    """A policy for persona `p`, one rule a line: each name with the port of loopback where it leads."""

    allow: Mapping[str, str]  # names, and what their rules say beside host and private
    hosts: Mapping[str, int] = {}
    deny: Iterable[str] = ()

    @property
    def text(self) -> str:
        hosts = ", ".join(f"{name}: '127.0.0.1:{port}'" for name, port in self.hosts.items())
        lines = ["version: 1", f"hosts: {{{hosts}}}", "personas:", "  p:", "    allow:"]
        lines += [
            f'      - {{host: "{name}", private: true{", " if more else ""}{more}}}'
            for name, more in self.allow.items()
        ]
        return "\n".join([*lines, f"    deny: {json.dumps(list(self.deny))}", ""])

    def place(self, name: str) -> str:
        """The rule for a name, as the log has it."""
        return f"policy.yaml:{list(self.allow).index(name) + 6} {name}"


def our_environment(home: Path, **more: str) -> dict[str, str]:
    return environment(home, **_OURS, **more)


def egress(home: Path, *words: str | Path, text: str = "", **more: str) -> Done:
    """A command that ends by itself."""
    return run(home, *COMMAND, *words, text=text, env={**_OURS, **more})


class GateProcess:
    """`egress proxy` under a policy; it is up when this returns, and `facts` has what it said on stdout."""

    def __init__(
        self, home: Path, policy: Rules | str, *words: str | Path, default_audit: bool = False, **more: str
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.policy = home / "policy.yaml"
        self.policy.write_text(policy if isinstance(policy, str) else policy.text)
        self.audit = home / ("xdg_state_home/egress" if default_audit else "") / "audit.jsonl"
        self._mark = 0
        self._said = home / "stderr"
        audit = () if default_audit else ("--audit", self.audit.name)
        words = ("--policy", self.policy.name, *audit, *(words or PLAIN))
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*COMMAND, "proxy", *words],
                cwd=home,
                env=our_environment(home, **more),
                stdout=subprocess.PIPE,
                stderr=said,
            )
        entrances = sum(word in ("--listen", "--unix") for word in words)
        self.facts = self._first_lines(entrances or 1)

    @property
    def url(self) -> str:
        """Of the first entrance."""
        return self.facts[0].split()[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def said(self) -> list[str]:
        """What it wrote to stderr."""
        return self._said.read_text().splitlines()

    def records(self, **wanted: Any) -> list[dict[str, Any]]:
        lines = self.audit.read_bytes()[self._mark :].splitlines() if self.audit.exists() else []
        found = [json.loads(line) for line in lines]
        return [record for record in found if all(record.get(key) == value for key, value in wanted.items())]

    def forget(self) -> None:
        """What is on record up to now is none of the next test's business."""
        self._mark = self.audit.stat().st_size if self.audit.exists() else 0

    def decisions(self) -> list[str]:
        """Every decision in a few words, once whatever was allowed is over."""
        until(lambda: not self._unfinished())
        return [_in_words(record) for record in self.records(event="decision")]

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask it to go; it must do so in good order, and must have said nothing but what it says to people."""
        self.process.send_signal(number)
        self.ended()

    def ended(self, code: int = 0) -> None:
        assert self.process.stdout is not None
        try:
            rest, _ = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        assert (self.process.returncode, rest) == (code, b""), self.said
        assert [line for line in self.said if not line.startswith("egress: ")] == []

    def _unfinished(self) -> set[int]:
        allowed = {record["id"] for record in self.records(event="decision", verdict="allow")}
        ends = {record["id"] for record in self.records(event="end")}
        return allowed - ends - {record["id"] for record in self.records(event="decision", verdict="deny")}

    def _first_lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        data = b""
        deadline = time.monotonic() + PATIENCE
        while data.count(b"\n") < count:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not more:
                self.process.kill()
                self.process.communicate()
                raise AssertionError(f"it did not start: {self.said}")
            data += more
        return data.decode().splitlines()


def _in_words(record: Mapping[str, Any]) -> str:
    port = "" if record["port"] is None else f":{record['port']}"
    by = "" if record["rule"] is None else f" by {record['rule']}"
    return f"{record['via']} {record['host']}{port} {record['verdict']} {record['reason']}{by}"
