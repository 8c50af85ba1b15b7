"""Our side: the gate and the sandbox as people run them, with a policy of 200 rules and the audit on."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.generator import ROOT
from benchmarks.processes import first_line, running

RULES = 200
ECHO, NAMED, SOURCE, PAGES = "echo.bench.example", "named.bench.example", "source.bench.example", "pages.bench.example"
_PLAIN = "private: true"
MANNERS = {  # what the rules of our own hosts say beside host and port
    ECHO: _PLAIN,
    NAMED: f"{_PLAIN}, tls: true",
    SOURCE: _PLAIN,
    PAGES: _PLAIN,
}


class Gate(NamedTuple):
    port: int
    pid: int


def policy(ports: Mapping[str, int], manners: Mapping[str, str] = MANNERS, size: int = RULES) -> str:
    """For persona `bench`: so many rules, the last of which lead to our own servers."""
    hosts = [f"  {host}: 127.0.0.1:{port}" for host, port in ports.items()] or ["  {}"]
    rules = [f"      - host{number}.example.com" for number in range(size - len(ports))]
    rules += [f"      - {{host: {host}, ports: [{port}], {manners[host]}}}" for host, port in ports.items()]
    return "\n".join(["version: 1", "hosts:", *hosts, "personas:", "  bench:", "    allow:", *rules, ""])


def environment(work: Path) -> dict[str, str]:
    """Nothing is read from, or left in, the home of whoever runs this."""
    own = {f"XDG_{kind}_HOME": str(work / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
    return {**os.environ, **own}


def options(work: Path, name: str = "policy") -> list[str]:
    return ["--persona", "bench", "--policy", str(work / f"{name}.yaml"), "--audit", str(work / f"{name}.jsonl")]


@contextlib.contextmanager
def gate(work: Path, text: str, *more: str, name: str = "policy") -> Iterator[Gate]:
    """`egress proxy`, running."""
    (work / f"{name}.yaml").write_text(text)
    command = [str(ROOT / "scripts" / "egress"), "proxy", *options(work, name), "--listen", "127.0.0.1:0", *more]
    with running(command, stdout=subprocess.PIPE, cwd=work, env=environment(work)) as process:
        url = first_line(process).split()[0]
        yield Gate(int(url.rpartition(":")[2]), process.pid)


def sandbox(work: Path, *more: str) -> tuple[str, ...]:
    """The words before a command that put it into our sandbox."""
    return (str(ROOT / "scripts" / "egress-launch"), *options(work), "--quiet", *more, "--")


def srt_settings(work: Path) -> str:
    path = work / "srt.json"
    path.write_text(json.dumps({
        "network": {"allowedDomains": ["localhost"], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    }))  # fmt: skip
    return str(path)
