"""The authority that a user keeps, for a gate that stands alone (`egress proxy`).

There the programs are the user's own, and have to be told whom to trust once, not for every run. So this one
is on disk, valid for a year, and without name constraints: policies change, and it would have to be trusted
anew for each host. That makes its key worth as much as all that the user trusts, and it is kept like one:

    authority.pem    the key and the certificate, for the owner alone; put in place whole, so the two agree
    ca.pem           the certificate, for programs to be pointed at; made from the other

What stands there is believed only if it is a file of the user's that nobody else can read. The state directory
is hidden from sandboxes.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from egress import places
from egress.inspection.authority import DAY, Authority

_LIFETIME = 365 * DAY
_BOTH, _CERTIFICATE = "authority.pem", "ca.pem"
_MOST = 1 << 16
_BEGIN = b"-----BEGIN CERTIFICATE-----"


class KeptError(Exception):
    """What is wrong with what is kept, and the command that helps."""

    def __init__(self, message: str, hint: str = "egress ca --renew") -> None:
        super().__init__(message)
        self.hint = hint


class Kept(NamedTuple):
    authority: Authority
    path: str  # of the certificate


def kept(environ: Mapping[str, str]) -> Authority | None:
    """The authority that is kept, or None if there never was one."""
    where = places.authority(environ)
    try:
        with _directory(where) as directory:
            return _valid(_load(directory, where), where)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(where, error) from None


def keep(environ: Mapping[str, str], renew: bool = False) -> Kept:
    """The authority that is kept, made now if there is none or if another is wanted."""
    where = places.authority(environ)
    try:
        os.makedirs(where, mode=0o700, exist_ok=True)
        with _directory(where) as directory:
            if renew or not _is_there(directory):
                _put(directory, _BOTH, _new(), 0o600, over=renew)
            authority = _valid(_load(directory, where), where)
            _put(directory, _CERTIFICATE, authority.certificate_pem, 0o644, over=True)
    except OSError as error:
        raise _unusable(where, error) from None
    return Kept(authority, os.path.join(where, _CERTIFICATE))


def _new() -> bytes:
    made = Authority.make(None, _LIFETIME, "egress CA of a user")
    return made.key_pem + made.certificate_pem


def _load(directory: int, where: str) -> Authority:
    key, begin, certificate = _read(directory, where).partition(_BEGIN)
    try:
        return Authority.load(key, begin + certificate)
    except (ValueError, TypeError):  # the latter where the key has a password
        raise KeptError(f"{where}/{_BOTH} is not a key and its certificate") from None


def _valid(authority: Authority, where: str) -> Authority:
    if authority.until <= time.time():
        day = time.strftime("%Y-%m-%d", time.gmtime(authority.until))
        raise KeptError(f"the authority in {where} has expired on {day}")
    return authority


def _unusable(where: str, error: OSError) -> KeptError:
    return KeptError(f"the authority in {where} cannot be used: {error.strerror}", f"ls -la {where}")


# ---- files


@contextmanager
def _directory(where: str) -> Iterator[int]:
    fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(os.fstat(fd), where, f"chmod 700 {where}")
        yield fd
    finally:
        os.close(fd)


def _read(directory: int, where: str) -> bytes:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)

    with open(_BOTH, "rb", opener=opener) as file:
        status = os.fstat(file.fileno())
        _check(status, f"{where}/{_BOTH}", f"chmod 600 {where}/{_BOTH}")
        if not stat.S_ISREG(status.st_mode):
            raise KeptError(f"{where}/{_BOTH} is not a file")
        return file.read(_MOST)


def _check(status: os.stat_result, path: str, hint: str) -> None:
    if status.st_uid != os.geteuid():
        raise KeptError(f"{path} belongs to another user", "egress ca, as the user who runs the gate")
    if status.st_mode & 0o077:
        raise KeptError(f"{path} can be used by others", hint)


def _is_there(directory: int) -> bool:
    with suppress(FileNotFoundError):
        os.stat(_BOTH, dir_fd=directory, follow_symlinks=False)
        return True
    return False


def _put(directory: int, name: str, content: bytes, mode: int, over: bool) -> None:
    """A whole file or none. Without `over`, one that another process was first to make stays."""
    draft = f"{name}.{os.urandom(8).hex()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        if over:
            os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        with suppress(FileExistsError):
            os.link(draft, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)
