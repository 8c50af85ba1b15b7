"""What it takes to read a log of a million records: seconds and memory, for each way of asking.

Each is a process of its own, as it is for a person, started on a log that is written for it and removed.
Times are the best of several rounds: on a shared machine the best is the one least disturbed.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROUNDS = 3
WAYS = {
    "the table": (),
    "one session": ("--session", "s7"),
    "the newest session": ("--last",),
    "names below one": ("--host", "*.evil.example"),
    "records": ("--json",),
}


def records(count: int) -> Iterator[dict[str, Any]]:
    """A busy month: nine connections in ten are let through, 550 hosts, a session of every 5,000 connections."""
    number = written = 0
    while written < count:
        number += 1
        moment = f"2026-11-{1 + number // 50_000 % 28:02d}T12:{number // 60 % 60:02d}:{number % 60:02d}.000000Z"
        start = {"v": 1, "ts": moment, "session": f"s{number // 5000}", "persona": "reviewer", "id": number}
        yield start | _decision(number)
        written += 1
        if number % 10:
            end = {"event": "end", "ip": "192.0.2.1", "up": number % 5000, "down": number % 90_000, "ms": 210}
            yield start | end | {"outcome": "closed"}
            written += 1


def _decision(number: int) -> dict[str, Any]:
    if number % 10:
        host, verdict, reason, rule = f"host{number % 400}.example.com", "allow", "listed", "policies/groups.yaml:11 x"
    else:
        host, verdict, reason, rule = f"bad{number % 1500}.evil.example", "deny", "not_listed", None
    asked = {"event": "decision", "via": "capture", "host": host, "port": 443}
    return asked | {"verdict": verdict, "reason": reason, "rule": rule}


def write(path: Path, count: int) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in records(count))


def measure(log: Path, words: tuple[str, ...]) -> tuple[float, float]:
    """Seconds and megabytes."""
    command = [sys.executable, "-m", "egress.cli", "audit", "--audit", str(log), *words]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # it has been waited for
    return time.perf_counter() - begun, _megabytes(usage)


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / 1000


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as directory:
        plain, packed = Path(directory, "plain", "audit.jsonl"), Path(directory, "packed", "audit.jsonl.1.gz")
        for path in (plain, packed):
            path.parent.mkdir()
        write(plain, count)
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
        print(f"{count:,} records, {plain.stat().st_size / 1e6:.0f} MB, {packed.stat().st_size / 1e6:.0f} MB packed")
        asked = [(what, plain, words) for what, words in WAYS.items()] + [("the table, gzip", packed, ())]
        for what, log, words in asked:
            rounds = [measure(log, words) for _ in range(ROUNDS)]
            print(f"{what:<20} {min(s for s, _ in rounds):6.2f} s {max(mb for _, mb in rounds):6.0f} MB")


if __name__ == "__main__":
    main()
