"""Ten times the work costs at most eleven times as much: of tunnels, rules, log records and sandboxes.

What is compared is the time for the work alone, so what it takes to begin at all is measured with next to
nothing to do, and taken off.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import auditlog
from benchmarks import gate as ours
from benchmarks.figures import OURS, Failed, Figure, Goal
from benchmarks.generator import ROOT, origin, tunnels
from benchmarks.scale import Scale

ROUNDS = 5
TEN = 10
Cost = Callable[[int], float]


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    with origin("echo") as echo, ours.gate(work, ours.policy({ours.ECHO: echo})) as gate:
        words = ("run", f"connect:{gate.port}", ours.ECHO, echo, 64)
        yield _growth("tunnels", 2000, lambda count: tunnels(*words, count)["seconds"])
    yield _growth("rules", 20_000, lambda count: _load(work, count), base=10)
    yield _growth("log records", 50_000, lambda count: _read(work, count), base=10)
    yield _growth("sandboxes, one after the other", 5, lambda count: _sandboxes(work, count))


def _growth(what: str, few: int, cost: Cost, base: int = 0) -> Figure:
    idle = min(cost(base) for _ in range(ROUNDS)) if base else 0.0
    pairs = [(cost(few), cost(few * TEN)) for _ in range(ROUNDS)]
    less, more = ([cost - idle for cost in costs] for costs in zip(*pairs, strict=True))
    once = f"{few:,}"
    key = f"growth_{what.replace(',', '').split()[0]}"
    return Figure(key, f"{few * TEN:,} {what}", "s", False, {OURS: more, once: less}, (Goal(once, TEN + 1),))


def _load(work: Path, rules: int) -> float:
    """A policy read, checked and asked once."""
    (work / "policy.yaml").write_text(ours.policy({}, size=rules))
    return _timed(work, "egress", "check", "host1.example.com", "--persona", "bench", "--policy", "policy.yaml")


def _read(work: Path, records: int) -> float:
    log = work / f"{records}.jsonl"
    if not log.exists():
        auditlog.write(log, records)
        log.chmod(0o600)
    return _timed(work, "egress", "audit", "--audit", str(log))


def _sandboxes(work: Path, count: int) -> float:
    (work / "policy.yaml").write_text(ours.policy({}))
    begun = time.perf_counter()
    for _ in range(count):
        subprocess.run([*ours.sandbox(work), "true"], cwd=work, check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - begun


def _timed(work: Path, program: str, *words: str) -> float:
    command = [str(ROOT / "scripts" / program), *words]
    begun = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    done = subprocess.run(command, cwd=work, env=ours.environment(work), check=False, **quiet)
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}")
    return time.perf_counter() - begun
