"""A command that is asked for, checked; and whether it is one for the sandbox at all.

Who lists a program as excluded says that it is not to run inside: `docker` makes sandboxes of its own. It is
known by its bare name, as the first word. `./docker` is a file of the project's, so it is not that program, and
runs inside like any other; and where the program itself is looked for, no directory counts that a sandbox can
write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from launcher import hostwords as words
from launcher.mounts import is_within
from launcher.sandboxresults import CommandNotStarted, ExcludedCommand, SandboxError
from launcher.sandboxsettings import Path, Settings

OUTSIDE = "{name!r} ran outside of the sandbox: it is excluded, and that was allowed"


class Request(NamedTuple):
    argv: tuple[str, ...]
    start: words.Start


def request(
    argv: Sequence[str],
    directory: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Request:
    """`cwd` is a path inside, from the sandbox's own `directory` on."""
    if timeout is not None and timeout <= 0:
        raise SandboxError(f"a timeout of {timeout!r} s, expected more than 0", "leave it out to wait for ever", 2)
    where = os.path.join(directory, os.fspath(cwd) if cwd is not None else "")
    start = words.Start([_word(each) for each in checked(argv)], _word(where), _variables(env or {}), timeout)
    return Request(tuple(argv), start)


def checked(argv: Sequence[str]) -> Sequence[str]:
    if isinstance(argv, str | bytes):
        raise SandboxError(f"{argv!r} is text, expected a list of words", '["sh", "-c", text] runs it in a shell', 2)
    if not argv or not argv[0]:
        raise SandboxError("no command was given", '["git", "status"]', 2)
    return argv


def is_outside(argv: Sequence[str], settings: Settings) -> bool:
    """Whether it is to run outside; refused, if it is excluded and must not."""
    name = checked(argv)[0]
    if name not in settings.excluded:
        return False
    if not settings.allow_unsandboxed:
        raise ExcludedCommand(f"{name!r} is not for the sandbox", "allow_unsandboxed=True lets it run outside", 126)
    return True


def find_outside(name: str, settings: Settings) -> str:
    """The host's own program of this name."""
    if name.startswith("/"):
        return name
    written = [os.path.realpath(path) for path in (settings.project, *settings.write)]
    for directory in os.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(os.path.realpath(directory), name)
        if directory.startswith("/") and os.access(path, os.X_OK) and not any(is_within(path, top) for top in written):
            return path
    raise CommandNotStarted(f"{name!r} was not found on the host", "it must be on PATH, outside of the project", 127)


def _variables(env: Mapping[str, str]) -> dict[bytes, bytes]:
    for name in env:
        if not name or "=" in name:
            raise SandboxError(f"{name!r} is not the name of a variable", 'env={"NAME": "value"}', 2)
    return {_word(name): _word(value) for name, value in env.items()}


def _word(text: str) -> bytes:
    data = os.fsencode(text)
    if b"\0" in data:
        raise SandboxError(f"{text!r} has a NUL byte in it", "no word, path or variable can have one", 2)
    return data
