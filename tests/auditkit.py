"""Logs for the tests that read them, record by record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]

NOON = "2026-11-18T12:00:00.000000Z"


def decision(host: str = "evil.example", verdict: str = "deny", **fields: Any) -> Record:
    reason = "listed" if verdict == "allow" else "not_listed"
    rule = "policies/groups.yaml:11 *.github.com" if verdict == "allow" else None
    what = {"via": "connect", "host": host, "port": 443, "verdict": verdict, "reason": reason, "rule": rule}
    return _record("decision", 1) | what | fields


def end(number: int = 1, up: int = 10, down: int = 20, outcome: str = "closed", **fields: Any) -> Record:
    what = {"ip": "192.0.2.1", "up": up, "down": down, "ms": 5, "outcome": outcome}
    return _record("end", number) | what | fields


def gap(lost: int, **fields: Any) -> Record:
    return _record("gap", 9) | {"persona": "", "lost": lost} | fields


def passage(number: int, host: str = "github.com", **fields: Any) -> list[Record]:
    """A connection that was let through, from its first record to its last."""
    return [decision(host, "allow", id=number, **fields), end(number, **fields)]


def lines(records: Iterable[Record]) -> bytes:
    return b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)


def write(path: Path, *records: Record) -> Path:
    path.write_bytes(lines(records))
    return path


def _record(event: str, number: int) -> Record:
    return {"v": 1, "ts": NOON, "session": "k3f9", "persona": "reviewer", "id": number, "event": event}
