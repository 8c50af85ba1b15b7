"""Things that stand on the host where nothing is, so that the sandbox can have a mount there; and go again.

A mount needs something to be on (`launcher.protect`). bwrap would make an empty file and leave it; here it
is made before bwrap starts and taken away when the sandbox has ended, whoever is killed in between:

    launcher    makes them, and takes them away at the end
    sweeper     a process on the host, forked before the first is made. It waits for the launcher to end,
                then for the sandbox's processes, and takes away what is left. It ignores what kills jobs
    next run    if both were killed at once: a placeholder is known by its mode, so the next sandbox in
                this project takes it over as its own

Taking one away under another sandbox would take its mount away too, in its namespace. So every sandbox
holds a shared lock on each directory that it has placeholders in, and they go with the one that gets the
lock alone. It is a flock on the directory itself: no file for it, nothing stale, and the kernel gives it
up with the last process that holds it.

Directories are opened part by part without following links, and kept open: whatever a run renames or
plants, these descriptors stay in the directories that were looked at.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import stat
import time
from collections.abc import Iterable, Iterator

from launcher.mounts import PlanError
from launcher.plan import Placeholder
from launcher.protect import DIRECTORY_MODE, FILE_MODE, SOCKET_MODE, is_placeholder

_DONE = b"done"
_LOCK_WAIT = 1.0
_LOCK_POLL = 0.002
_END_WAIT = 3.0  # for the sandbox's processes, when bwrap or the launcher is gone
_GRACE = 0.1  # the same, where it was killed before it could say which they are
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Held:
    """Placeholders of one sandbox, and the process that looks after them."""

    __slots__ = ("_line", "_places", "_sandbox", "_sweeper")

    def __init__(self, places: dict[int, list[Placeholder]], sweeper: int, line: int) -> None:
        self._places = places
        self._sweeper = sweeper
        self._line = line
        self._sandbox = -1

    def follow(self, pid: int) -> None:
        """The sandbox's pid 1, as the host counts: when it is gone, so are all processes inside."""
        if self._places:
            self._sandbox = _watch(pid)
            self._say(b"%d" % pid)

    def release(self) -> None:
        """Take them away when no process is left inside: bwrap itself ends a little earlier than these."""
        if not self._places:
            return
        _wait(self._sandbox)
        _sweep(self._places)
        self._say(_DONE)
        for fd in (*self._places, self._line, *([self._sandbox] if self._sandbox >= 0 else [])):
            os.close(fd)
        self._places = {}
        os.waitpid(self._sweeper, 0)

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the sweeper was killed: then only we are left
            os.write(self._line, word + b"\n")


def hold(wanted: Iterable[Placeholder]) -> Held:
    """Make placeholders. It forks: no thread or event loop may exist yet."""
    places: dict[int, list[Placeholder]] = {}
    try:
        for (root, directory), group in _by_directory(wanted).items():
            fd = open_beneath(root, directory)
            places[fd] = group
            _lock(fd, f"{root}/{directory}")
        if not places:
            return Held({}, -1, -1)
        held = _with_sweeper(places)
    except BaseException:
        for fd in places:
            os.close(fd)
        raise
    try:
        for fd, group in places.items():
            for place in group:
                _make(fd, place)
    except BaseException:
        held.release()
        raise
    return held


def open_beneath(root: str, path: str, flags: int = _DIRECTORY) -> int:
    """Open what is at a path below a directory, with no link followed on the way or at the end."""
    fd = os.open(root, _DIRECTORY)
    parts = [part for part in path.split("/") if part]
    for place, part in enumerate(parts, 1):
        try:
            inner = os.open(part, flags if place == len(parts) else _DIRECTORY, dir_fd=fd)
        except OSError as error:
            raise PlanError(f"{path!r} in {root!r} cannot be opened: {error.strerror}") from None
        finally:
            os.close(fd)
        fd = inner
    return fd


def _by_directory(wanted: Iterable[Placeholder]) -> dict[tuple[str, str], list[Placeholder]]:
    groups: dict[tuple[str, str], list[Placeholder]] = {}
    for place in wanted:
        groups.setdefault((place.root, os.path.dirname(place.path)), []).append(place)
    return groups


def _lock(fd: int, name: str) -> None:
    """Share the directory. Only a sandbox that is leaving has it alone, and for a moment."""
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise PlanError(f"the directory {name!r} is locked by another program") from None
            time.sleep(_LOCK_POLL)
        except OSError:  # a file system without locks: sandboxes there do not know of each other
            return
        else:
            return


def _make(fd: int, place: Placeholder) -> None:
    name = os.path.basename(place.path)
    try:
        if place.is_dir:
            os.mkdir(name, DIRECTORY_MODE, dir_fd=fd)
        elif place.text:
            _write(fd, name, place.text)
        else:
            os.mknod(name, stat.S_IFSOCK | SOCKET_MODE, dir_fd=fd)
    except FileExistsError:
        if not is_placeholder(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise PlanError(f"{place.root}/{place.path} appeared while the sandbox was starting", "try again") from None


def _write(fd: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE, dir_fd=fd)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _sweep(places: dict[int, list[Placeholder]]) -> None:
    for fd, group in places.items():
        if _is_alone(fd):
            for place in group:
                with contextlib.suppress(OSError):  # gone already; and the others still have to go
                    _remove(fd, place)


def _is_alone(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here
        return True
    return True


def _remove(fd: int, place: Placeholder) -> None:
    """Only what is a placeholder still. A directory that the host has put something in becomes an ordinary one."""
    name = os.path.basename(place.path)
    mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    if not is_placeholder(mode):
        return
    if not stat.S_ISDIR(mode):
        os.unlink(name, dir_fd=fd)
        return
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        os.chmod(name, stat.S_IMODE(mode) & ~stat.S_ISVTX, dir_fd=fd)


def _with_sweeper(places: dict[int, list[Placeholder]]) -> Held:
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read)
        return Held(places, pid, write)
    try:
        _detach({read, *places})
        _wait_for_end(read)
        _sweep(places)
    finally:
        os._exit(0)


def _detach(kept: set[int]) -> None:
    """Leave the launcher's terminal, descriptors and directory; what stops a job shall not stop this."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for fd in _open_descriptors():
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(fd)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("egress-sweeper")


def _open_descriptors() -> Iterator[int]:
    return map(int, os.listdir("/proc/self/fd"))


def _wait_for_end(line: int) -> None:
    """Until the launcher is gone, and then the sandbox."""
    sandbox = -1
    while said := os.read(line, 64).split():
        if _DONE in said:
            return
        sandbox = _watch(int(said[0]))
    if sandbox < 0:
        time.sleep(_GRACE)
    _wait(sandbox)


def _watch(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # it is gone already
        return -1


def _wait(sandbox: int) -> None:
    if sandbox >= 0:
        select.select([sandbox], [], [], _END_WAIT)
