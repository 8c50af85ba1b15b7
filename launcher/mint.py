"""The session's certificate, made while the sandbox is.

Where some hosts are inspected, the command must find an authority that its programs trust in place. Its making
takes as long as the making of the sandbox, most of it for the library that signs. So a fork of the launcher
does it at the same time: it writes what programs trust into pipes that bwrap mounts the contents of, hands the
key to the launcher, and ends. The engine that uses the key is started when the command runs already, and with
it comes mitmproxy.

A mint that failed has closed its pipes, on files that are not whole: programs trust nobody then. Who asks it for
what it made is told, and ends the sandbox.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import signal
import time
from contextlib import suppress

from egress.enginestart import Config
from egress.record import TYPE_CHECKING, NamedTuple
from launcher import trust
from launcher.mounts import Kind, Mount, PlanError

if TYPE_CHECKING:
    from typing import NoReturn

_WHOLE = 1 << 20  # what a pipe may hold without an administrator's leave; a bundle is a quarter of it
_PIECE = 1 << 16


class Mint(NamedTuple):
    """`made` is where its key and certificate come from, `given` by path where bwrap reads the files from."""

    config: Config  # as far as it is known before
    pid: int
    made: int
    given: dict[str, int]


def mounts() -> tuple[Mount, ...]:
    """What is put into the sandbox; bwrap reads them in this order."""
    files = (Mount(Kind.GIVEN, file.path, file.why) for file in trust.given())
    return (Mount(Kind.EMPTY, trust.DIRECTORY, "what vouches for inspected hosts"), *files)


def start(names: tuple[str, ...], upstream_roots: tuple[str, ...], files: tuple[trust.Given, ...]) -> Mint:
    made, *pipes = (_pipe() for _ in range(len(files) + 1))
    writes = [write for _, write in pipes]
    pid = os.fork()
    if pid == 0:
        _work(names, made[1], {write: file.content for write, file in zip(writes, files, strict=True)})
    for write in (made[1], *writes):
        os.close(write)
    given = {file.path: read for file, (read, _) in zip(files, pipes, strict=True)}
    return Mint(Config(names=names, upstream_roots=upstream_roots), pid, made[0], given)


def config(mint: Mint) -> Config:
    """What the engine is to be made with; once."""
    data = _read(mint.made)
    end(mint)
    try:
        key, certificate = marshal.loads(data)  # noqa: S302  # from our own child
    except (EOFError, ValueError, TypeError):
        raise PlanError("the certificate for inspected hosts could not be made", "egress doctor") from None
    return mint.config._replace(key=key, certificate=certificate)


def end(mint: Mint) -> None:
    """For a command that was over before anyone asked; otherwise it has ended by itself."""
    with suppress(ChildProcessError):  # it is waited for once; then its number may be another's
        if os.waitpid(mint.pid, os.WNOHANG) == (0, 0):
            os.kill(mint.pid, signal.SIGKILL)
            os.waitpid(mint.pid, 0)
        os.close(mint.made)


def _work(names: tuple[str, ...], made: int, files: dict[int, trust.Content]) -> NoReturn:
    """In the fork. Ctrl-C is for the command: an end without the files would be taken for a failure."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        _make(names, made, files)
    finally:
        os._exit(0)  # what it could not make is missed by who waits for it


def _make(names: tuple[str, ...], made: int, files: dict[int, trust.Content]) -> None:
    from egress.inspection.authority import Authority

    authority = Authority.make(names)
    contents = _contents(authority.certificate_pem)
    for descriptor, content in files.items():
        _write(descriptor, contents[content])
        os.close(descriptor)
    _write(made, marshal.dumps((authority.key_pem, authority.certificate_pem)))


def _contents(ours: bytes) -> dict[trust.Content, bytes]:
    from egress.inspection import bundle
    from egress.inspection.keystore import keystore

    roots, (own,) = bundle.roots(os.environ), bundle.certificates(ours)
    return {
        trust.Content.BUNDLE: bundle.bundle(roots, ours),
        trust.Content.AUTHORITY: ours,
        trust.Content.STORE: keystore(roots, own, time.time()),
    }


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _read(descriptor: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, _PIECE):
        pieces.append(piece)
    return b"".join(pieces)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    with suppress(OSError):  # then it takes turns with bwrap, which reads in the same order
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _WHOLE)
    return read, write
