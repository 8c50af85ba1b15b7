"""Where a running gate listens, and for whom, so that a client on this machine can be set up for it.

A file per gate, beside the control sockets, in a directory that no sandbox shows. The gate holds a lock on it, which
the kernel takes away from whoever ends, in whatever way: a file that nobody holds was left by a gate that was killed,
and whoever looks next removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

from egress import controlsocket

_SUFFIX = ".gate"
_LONGEST = 64 * 1024
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Entrance(NamedTuple):
    persona: str
    address: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether `localhost` leads there."""
        return self.address in ("127.0.0.1", "::1", "0.0.0.0", "::")


def posted(entrances: Iterable[Entrance], environ: Mapping[str, str]) -> AbstractContextManager[None]:
    """Put up now, and until the end of the block, whoever looks finds these."""
    return _until_done(_post(json.dumps([*entrances]), environ))


def standing(environ: Mapping[str, str]) -> list[Entrance]:
    """The entrances of all gates that run, the youngest gate's first."""
    folder = controlsocket.directory(environ)
    with suppress(OSError):
        posts = [entry for entry in os.scandir(folder) if entry.name.endswith(_SUFFIX) and entry.name[0] != "."]
        newest = sorted(posts, key=_age)
        return [entrance for entry in newest for entrance in _read(entry.path)]
    return []


class _Post(NamedTuple):
    name: str
    descriptor: int


@contextmanager
def _until_done(post: _Post) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(post.name)
        os.close(post.descriptor)


def _post(text: str, environ: Mapping[str, str]) -> _Post:
    """Under its name only when it is complete and held."""
    folder = controlsocket.directory(environ)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = f"{secrets.token_hex(8)}{_SUFFIX}"
    draft = os.path.join(folder, f".{name}")
    descriptor = os.open(draft, _CREATE, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, text.encode())
    final = os.path.join(folder, name)
    os.rename(draft, final)
    return _Post(final, descriptor)


def _read(path: str) -> list[Entrance]:
    """What a gate says; nothing, where it is gone."""
    try:
        with open(path, "rb", opener=_without_following) as file:
            if _is_held(file.fileno()):
                return [Entrance(*each) for each in json.loads(file.read(_LONGEST))]
        os.unlink(path)
    except (OSError, ValueError, TypeError):
        pass  # it went away meanwhile
    return []


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _without_following(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _age(entry: os.DirEntry[str]) -> int:
    with suppress(OSError):
        return -entry.stat(follow_symlinks=False).st_mtime_ns
    return 0
