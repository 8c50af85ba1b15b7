"""What works on this machine, and the command that mends what does not.

Each check tries the real thing, in a process of its own: it may join namespaces, load filters or hang, and
the next check, and the time it may take, do not suffer from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, NoReturn

from launcher.checks import backends, containers, gate, machine, network, sandbox
from launcher.checks.model import Check, Finding, Status, fail

PATIENCE = 20.0  # seconds for one check
_AGAIN = "egress doctor # again, when the machine is less busy"
_OURS = "this is a mistake of ours: please report it with these words"

CHECKS = (
    Check("system", machine.system, needed=False),
    Check("bubblewrap", sandbox.installed),
    Check("user namespaces", sandbox.user_namespaces),
    Check("sandbox", sandbox.sandboxes),
    Check("seccomp", sandbox.system_calls),
    Check("network", network.handed_over),
    Check("capture", network.captured, needed=False),
    Check("limits", machine.limits, needed=False),
    Check("terminal", machine.terminal, needed=False),
    Check("landlock", backends.landlock, needed=False),
    Check("backends", backends.backends, needed=False),
    Check("podman", containers.podman, needed=False),
    Check("docker", containers.docker, needed=False),
    Check("attach", containers.attached, needed=False),
    Check("policy", gate.policy),
    Check("audit", gate.audit),
    Check("programs", machine.programs, needed=False),
)


class Result(NamedTuple):
    name: str
    needed: bool
    finding: Finding


def examine(checks: Iterable[Check] = CHECKS, patience: float = PATIENCE) -> Iterator[Result]:
    for check in checks:
        finding = _apart(check.examine, patience)
        if finding.status is Status.FAIL and not check.needed:
            finding = finding._replace(status=Status.WARN)
        yield Result(check.name, check.needed, finding)


def can_run(results: Iterable[Result]) -> bool:
    return all(result.finding.status is not Status.FAIL for result in results)


def _apart(act: Callable[[], Finding], patience: float) -> Finding:
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(act, tell)
    os.close(tell)
    try:
        words = _hear(told, time.monotonic() + patience)
    finally:
        os.close(told)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if words is None:
        return fail(f"no answer within {patience:g} seconds", _AGAIN)
    return _parse(words)


def _hear(told: int, deadline: float) -> bytes | None:
    """All that is said until the line is closed, which is also how a death sounds."""
    data = b""
    while select.select([told], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(told, 65536)
        if not piece:
            return data
        data += piece
    return None


def _parse(words: bytes) -> Finding:
    try:
        status, what, hint = json.loads(words)
    except ValueError:
        return fail("the check died of it", _OURS)
    return Finding(Status(status), what, hint)


def _answer(act: Callable[[], Finding], tell: int) -> NoReturn:
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        try:
            finding = act()
        except Exception as error:
            finding = fail(f"{type(error).__name__}: {error}", _OURS)
        os.write(tell, json.dumps(finding).encode())
    finally:
        os._exit(0)
