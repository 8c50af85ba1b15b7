"""What a person allows for good goes into the user's own policy file, which the gate then reads like any edit.

The file is in the user's configuration directory and nowhere else: never one that `--policy` named, which may
stand where the sandboxed program can write. A persona that such a file defines whole cannot be added to from
below, and that is said rather than written in vain.

The new text was read before it is put in place, and it comes there by a rename: whoever reads the file, reads
the old one or the new one. If somebody else has written it in between, theirs stays.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from egress import policysources
from egress.model import Source, Target
from egress.policybook import Book
from egress.policyedit import EMPTY, CannotEdit, add_rule
from egress.policysources import Sources
from egress.problems import PolicyError
from egress.refusals import Reason

MAX_BYTES = 1024 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotKept(Exception):
    """Why nothing was written."""


class Keeper:
    """Writes one rule after another, off the path of the connections that wait for none of it."""

    def __init__(self, sources: Sources, loop: asyncio.AbstractEventLoop, report: Callable[[str], None]) -> None:
        self._sources, self._loop, self._report = sources, loop, report
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, persona: str, target: Target) -> None:
        task = self._loop.create_task(self._keep(persona, target))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """What was promised is written first."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, persona: str, target: Target) -> None:
        async with self._turn:
            try:
                path = await asyncio.to_thread(write_rule, self._sources, persona, target, _today())
            except NotKept as error:
                self._report(
                    f"error: {target} is allowed for this session only: {error}\n"
                    f"hint: egress check {target} --persona {persona} shows the line to add, and where"
                )
            else:
                self._report(f"{target} is allowed for persona {persona} from now on, by {path}")


def write_rule(sources: Sources, persona: str, target: Target, today: str) -> str:
    """Allow it in the user's own file; where that is. NotKept, if it cannot be written or would not help."""
    try:
        book = policysources.read(sources)
        path = _file_for(book, sources, persona)
        _refuse_if_settled(book, persona, target)
        _put(path, persona, target, f"allowed from the question, {today}")
    except PolicyError as error:
        raise NotKept(str(error.problems[0])) from None
    except CannotEdit as error:
        raise NotKept(str(error)) from None
    return path


def _put(path: str, persona: str, target: Target, note: str) -> None:
    try:
        old = _Old.read(path)
        old.replace(add_rule(old.text, path, persona, target, note))
    except OSError as error:
        words = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise NotKept(f"{path}: {words or error}") from None


def _file_for(book: Book, sources: Sources, persona: str) -> str:
    """Where the user defines the persona, or would, so that it counts."""
    if sources.user is None:
        raise NotKept("there is no home directory to keep it in")
    family = (
        [profile for profile in book.lineage(persona) if profile.name == persona] if persona in book.personas else []
    )
    for profile in family:
        if _is_users(profile.source, sources):
            return profile.source.file
        if policysources.is_shipped(profile.source, sources):
            return os.path.join(sources.user, f"{persona}.yaml")
    where = f"defined by {family[0].source}, which your own files cannot add to" if family else "no longer defined"
    raise NotKept(f"persona {persona} is {where}")


def _is_users(source: Source, sources: Sources) -> bool:
    return os.path.dirname(source.file) == sources.user and all(source.file != file.shown for file in sources.files)


def _refuse_if_settled(book: Book, persona: str, target: Target) -> None:
    """Somebody may have edited the files since the question was asked."""
    decision = book.persona(persona).decide(target)
    if decision.allowed:
        raise NotKept(f"{decision.rule} allows it already")
    if decision.reason is Reason.DENIED:
        raise NotKept(f"{decision.rule} denies it, and a denial always wins")


class _Old(NamedTuple):
    """A file as it was read: what it said, and how to know that it is still the same one."""

    path: str
    text: str = EMPTY
    mode: int = 0o600
    identity: tuple[int, ...] | None = None

    @classmethod
    def read(cls, path: str) -> _Old:
        try:
            descriptor = os.open(path, _READ)
        except FileNotFoundError:
            return cls(path)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _check_ours(path, status)
            text = file.read(MAX_BYTES).decode()  # the gate has read it, so it is UTF-8
        return cls(path, text, stat.S_IMODE(status.st_mode), _identity(status))

    def replace(self, text: str) -> None:
        directory, name = os.path.split(self.path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        new = os.path.join(directory, f".{name}.{secrets.token_hex(8)}")  # no name that is read as policy
        try:
            _write_out(new, text.encode(), self.mode)
            if self.identity != _present(self.path):
                raise NotKept(f"{self.path} was changed by somebody else just now")
            os.rename(new, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise


def _check_ours(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        raise NotKept(f"{path} is not a plain file of yours")
    if status.st_size >= MAX_BYTES:
        raise NotKept(f"{path} is larger than {MAX_BYTES} bytes")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _present(path: str) -> tuple[int, ...] | None:
    try:
        return _identity(os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _write_out(path: str, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, _CREATE, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def _today() -> str:
    return time.strftime("%Y-%m-%d")
