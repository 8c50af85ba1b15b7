"""How long a further command takes in a sandbox that is there, as programs have it by the Python interface.

Beside it stands the same command in a sandbox of its own, and on the host without any.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import gate as ours
from benchmarks.figures import OURS, Failed, Figure, Goal, compare
from benchmarks.scale import Scale

_COMMAND = ["true"]
_TURNS = 10  # commands per round, of which the median counts


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    from launcher import Sandbox, SandboxError

    (work / "policy.yaml").write_text(ours.policy({}))
    sandbox = Sandbox(persona="bench", policy=[work / "policy.yaml"], audit=work / "enter.jsonl", project=work)
    alone = [*ours.sandbox(work), *_COMMAND]
    try:
        with sandbox as box:
            contestants = {
                OURS: lambda: _timed(lambda: box.run(_COMMAND).code),
                "a new sandbox": lambda: _timed(lambda: _run(alone, work), turns=1),
                "no sandbox": lambda: _timed(lambda: _run(_COMMAND, work)),
            }
            for contestant in contestants.values():
                contestant()  # once for the caches
            rounds, missing = compare(scale.starts, contestants)
    except SandboxError as error:
        raise Failed(str(error)) from error
    goals = (Goal("", 15), Goal("a new sandbox", 1 / 2))
    yield Figure("enter", "a further command in a sandbox, to its end", "ms", False, rounds, goals, missing)


def _timed(act: Callable[[], int], turns: int = _TURNS) -> float:
    times = []
    for _ in range(turns):
        begun = time.monotonic()
        if act() != 0:
            raise Failed("the command failed")
        times.append((time.monotonic() - begun) * 1000)
    return sorted(times)[len(times) // 2]


def _run(words: list[str], work: Path) -> int:
    return subprocess.run(words, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode
