"""Programs that a benchmark runs: started, waited for, weighed, and ended with all that they started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.figures import Failed

PATIENCE = 20.0


@contextlib.contextmanager
def running(command: list[str], port: int | None = None, **how: object) -> Iterator[subprocess.Popen[str]]:
    """A program in a process group of its own, ready once something listens on its port."""
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL, **how}
    process = subprocess.Popen(command, start_new_session=True, text=True, **how)  # type: ignore[call-overload]
    try:
        if port is not None:
            _wait_for(process, port)
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Its whole group; politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=3)
            return


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None  # noqa: S101  # it was started with a pipe
    line = process.stdout.readline()
    if not line:
        raise Failed(f"{_name(process)} said nothing")
    return line.rstrip("\n")


def free_port() -> int:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one in TIME_WAIT will do
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_for(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failed(f"{_name(process)} ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise Failed(f"{_name(process)} does not listen on port {port}")


def _name(process: subprocess.Popen[str]) -> str:
    return os.path.basename(str(process.args[0]))  # type: ignore[index]


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found, parents = [pid], _parents()
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def _parents() -> Mapping[int, int]:
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    return parents


def megabytes(pids: list[int], field: str = "Pss") -> float:
    """Memory of these; pages that several share are counted once among them (`Pss`), or in each (`Rss`)."""
    return sum(_kilobytes(pid, field) for pid in pids) / 1000


def _kilobytes(pid: int, field: str) -> int:
    with contextlib.suppress(OSError):
        found = re.search(rf"^{field}: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
