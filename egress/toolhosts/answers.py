"""Asking a tool, and remembering what it said.

A tool is run in `/`, with an environment of ours and for a limited time; what it says is one short line. An
answer holds as long as the program does, so it is kept under the user's cache directory by the program's path
and identity. It decides about hosts, so it is taken only from a regular file of our own that nobody else may
write; and a cache that cannot be written costs some time, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence

from egress.places import cache
from egress.toolhosts.machine import Machine, identity

PATIENCE = 10.0
_LONGEST = 2048


def run(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The one line that a program prints; None if it fails, takes too long or says more."""
    import subprocess  # only who asks pays for it

    try:
        done = subprocess.run(
            command,
            cwd="/",  # where no project is
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _line(done.stdout) if done.returncode == 0 else None


def remembered(machine: Machine, program: str, ask: Callable[[], str | None]) -> str | None:
    """What a program answered, from the cache if it is still the same program."""
    path = _place(machine, program)
    answer = _load(path) if path else None
    if answer is None:
        answer = ask()
        if answer is not None and path:
            _store(path, answer)
    return answer


def _line(data: bytes) -> str | None:
    """Some visible ASCII, in one line."""
    text = data[: _LONGEST + 1].strip().decode(errors="replace")
    return text if 0 < len(text) <= _LONGEST and text.isascii() and text.isprintable() else None


def _place(machine: Machine, program: str) -> str | None:
    if machine.home is None:
        return None
    real = os.path.realpath(program)
    name = hashlib.sha256(repr((program, real, identity(real))).encode()).hexdigest()
    return os.path.join(cache(machine.environ), "tools", name)


def _load(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _line(os.read(descriptor, _LONGEST + 1)) if _is_ours(os.fstat(descriptor)) else None
    finally:
        os.close(descriptor)


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _store(path: str, answer: str) -> None:
    """Whole or not at all."""
    unfinished = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            _write(unfinished, answer)
            os.rename(unfinished, path)
        except OSError:
            os.unlink(unfinished)
            raise


def _write(path: str, answer: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "w") as file:
        file.write(answer)
