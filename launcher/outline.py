"""What must be known of a policy before the command starts, remembered from the last time.

Reading the files takes longer than starting the sandbox, and all that the start needs of them is that the
persona exists, its variables and its paths. So these are kept in the user's cache, for exactly the files as
they are: each one's identity, size and times, and our version. The gate reads the files themselves, once the
command runs; what it then finds is what it enforces.

The cache is hidden from the sandbox. It is data (marshal of words and tuples), and believed only if it is a
regular file of ours that nobody else can write.
"""

from __future__ import annotations

import marshal
import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from egress import __version__, places
from egress.policysources import Sources, fingerprint
from egress.record import TYPE_CHECKING, NamedTuple
from egress.surroundings import Filesystem, Walls

if TYPE_CHECKING:
    from typing import Any

_MOST = 1 << 20


class Outline(NamedTuple):
    env: tuple[str, ...]
    filesystem: Filesystem
    walls: Walls = Walls()
    inspected: tuple[str, ...] = ()  # the hosts that its session's certificate is for
    variables: tuple[tuple[str, str], ...] = ()  # placeholders for secrets, and what its tools are told
    secrets: tuple[tuple[str, bool], ...] = ()  # where they come from, and whether that was there
    remarks: tuple[str, ...] = ()  # what another tool's file says and does not hold here


def recall(sources: Sources, environ: Mapping[str, str]) -> Outline | None:
    """The outline of `sources.persona`, if it is known for these very files."""
    if sources.allow or sources.persona is None:  # rules to be checked, or a question to be answered
        return None
    try:
        known, env, filesystem, walls, *rest = marshal.loads(_read(_path(sources, environ)))  # noqa: S302  # data of our own
        outline = Outline(env, Filesystem(*filesystem), Walls(*walls), *rest)
    except (OSError, ValueError, EOFError, TypeError):
        return None
    still = all(is_there(place, environ) == was for place, was in outline.secrets)
    return outline if still and known == _key(sources) else None


def is_there(place: str, environ: Mapping[str, str]) -> bool:
    """Whether a secret has a source: `$NAME` or a path. What a command would say is not asked."""
    return bool(environ.get(place[1:], "").strip()) if place.startswith("$") else os.path.exists(place)


def remember(sources: Sources, outline: Outline, environ: Mapping[str, str]) -> None:
    """Best effort: a start without a cache is only slower."""
    path = _path(sources, environ)
    env, filesystem, walls, *rest = outline
    plain: list[Any] = [_key(sources), env, tuple(filesystem), tuple(walls), *rest]
    data = marshal.dumps(tuple(plain))
    draft = f"{path}.{os.getpid()}"
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
        os.rename(draft, path)


def _key(sources: Sources) -> Any:
    return __version__, sources.persona, fingerprint(sources)


def _path(sources: Sources, environ: Mapping[str, str]) -> str:
    return os.path.join(places.cache(environ), "outlines", f"{sources.persona}.{len(sources.files)}")


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise OSError("not a file of ours alone")
        return os.read(fd, _MOST)
    finally:
        os.close(fd)
