"""Clients inside a sandbox, ours and sandbox-runtime's, by way of the proxy that HTTP_PROXY names there.

Both sandboxes are entered anew for every round; the load generator takes the time inside, after that and after a
few tunnels that nobody counts: what starts late, beside the command, has then started. Four tunnels at a time, not
64: the relay inside sandbox-runtime's has a short queue, and loses or delays connections when more arrive at once.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import gate as ours
from benchmarks import peers
from benchmarks.figures import OURS, Failed, Figure, Goal, Measure, compare
from benchmarks.generator import program, tunnels
from benchmarks.hosted import servers
from benchmarks.processes import family, first_line, megabytes, name_of, running
from benchmarks.scale import Scale

WIDTH = 4
_KEPT_OPEN = "cat"  # the command in a sandbox that is weighed; its own memory is not ours
_WARMED = """\
#!/bin/sh
"${0%/*}/tunnels" run connect:env "$1" "$2" 1 20 >/dev/null
shift 2
exec "${0%/*}/tunnels" "$@"
"""


class Room(NamedTuple):
    """A way in, and the name by which the servers of the host are reached from there."""

    words: tuple[str, ...]
    host: Callable[[str], str]


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    binary = str(shutil.copy2(program("tunnels"), work / "tunnels"))
    warmed = work / "warmed"
    warmed.write_text(_WARMED)
    warmed.chmod(0o755)
    with servers(scale.inside_bulk) as there:
        (work / "policy.yaml").write_text(ours.policy(there.by_name))
        rooms, missing = _rooms(work)

        def run(what: str, field: str, port: int, name: str, *words: object) -> dict[str, Measure]:
            def one(room: Room) -> Measure:
                asked = (room.host(ours.ECHO), there.echo, what, "connect:env", room.host(name), port, *words)
                return lambda: tunnels(*asked, inside=room.words, binary=str(warmed), cwd=work)[field]

            return {who: one(room) for who, room in rooms.items()}

        rounds, failed = compare(scale.rounds, run("bulk", "gb_per_second", there.source, ours.SOURCE))
        missing |= failed
        yield Figure("inside_bulk", "bulk from inside", "GB/s", True, rounds, (Goal("srt", 4),), missing)
        total = scale.inside_tunnels
        rounds, failed = compare(scale.rounds, run("run", "per_second", there.echo, ours.ECHO, WIDTH, total))
        what = f"tunnels from inside, {WIDTH} at a time"
        yield Figure("inside_tunnels", what, "/s", True, rounds, (Goal("srt", 8),), {**missing, **failed})
        rounds, failed = compare(scale.rounds, run("run", "p50_ms", there.echo, ours.ECHO, 1, total // 3))
        what = "one tunnel at a time from inside, p50"
        yield Figure("inside_one_by_one", what, "ms", False, rounds, (Goal("srt", 1 / 6),), {**missing, **failed})
        yield _memory(work, rooms, there.echo, binary, missing)


def _rooms(work: Path) -> tuple[dict[str, Room], dict[str, str]]:
    rooms = {OURS: Room(ours.sandbox(work), lambda name: name)}
    try:
        rooms["srt"] = Room(peers.srt(ours.srt_settings(work)), lambda _: "localhost")
    except Failed as failed:
        return rooms, {"srt": str(failed)}
    return rooms, {}


def _memory(work: Path, rooms: dict[str, Room], port: int, binary: str, missing: dict[str, str]) -> Figure:
    """Of all that keeps one sandbox going, once it has carried something."""
    weights = {}
    for who, room in rooms.items():
        use = f"{binary} run connect:env {room.host(ours.ECHO)} {port} 4 100 && {_KEPT_OPEN}"
        command = [*room.words, use] if room.words[-1] == "-c" else [*room.words, "sh", "-c", use]
        with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=work) as process:
            first_line(process)
            weights[who] = [megabytes(_host_side(process.pid))]
            with contextlib.suppress(OSError):
                process.communicate("", timeout=5)
    return Figure("memory", "memory of one sandbox's host side", "MB", False, weights, (Goal("", 40),), missing)


def _host_side(pid: int) -> list[int]:
    time.sleep(0.5)  # what starts late, after the command, has started
    return [each for each in family(pid) if name_of(each) not in (_KEPT_OPEN, "sh")]
