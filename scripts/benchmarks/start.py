"""How long a sandbox takes to start, beside the tools people would use instead.

Two moments count: when the command runs (`date` tells its own time), and when all is over and cleaned up.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import gate as ours
from benchmarks import peers
from benchmarks.figures import OURS, Failed, Figure, Goal, compare
from benchmarks.scale import Scale

_WORDS = ("date", "+%s%N")


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    (work / "policy.yaml").write_text(ours.policy({}))
    there, missing = _tools(work)
    for command in there.values():
        _start(command, work)  # once for the caches
    begun: dict[str, list[float]] = {name: [] for name in there}

    def one(name: str) -> float:
        to_command, in_all = _start(there[name], work)
        begun[name].append(to_command)
        return in_all

    contestants = {name: (lambda name=name: one(name)) for name in there}
    rounds, failed = compare(scale.starts, contestants)
    missing |= failed
    goals = (Goal("", 80), Goal("srt", 1 / 3))
    yield Figure("start", "a sandbox, from start to end", "ms", False, rounds, goals, missing)
    begun = {name: values for name, values in begun.items() if name in rounds}
    yield Figure("start_command", "until the command runs", "ms", False, begun, (Goal("", 40),), missing)


def _tools(work: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The words that stand before a command, of each that is here."""
    ways = {
        OURS: lambda: ours.sandbox(work),
        "bare bwrap": lambda: (
            *(peers.find("bwrap"), "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        ),
        "firejail": lambda: (peers.find("firejail"), "--quiet", "--noprofile", "--net=none"),
        "srt": lambda: peers.srt(ours.srt_settings(work)),
    }
    there: dict[str, tuple[str, ...]] = {}
    missing: dict[str, str] = {}
    for name, way in ways.items():
        try:
            there[name] = way()
        except Failed as failed:
            missing[name] = str(failed)
    return there, missing


def _start(command: tuple[str, ...], work: Path) -> tuple[float, float]:
    """Milliseconds to the command's own start, and to the end of it all."""
    full = [*command, " ".join(_WORDS)] if command[-1] == "-c" else [*command, *_WORDS]
    begun = time.time_ns()
    done = subprocess.run(full, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    ended = time.time_ns()
    if done.returncode or not done.stdout.strip().isdigit():
        raise Failed(f"it ended with {done.returncode}")
    return (int(done.stdout) - begun) / 1e6, (ended - begun) / 1e6
