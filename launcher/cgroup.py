"""Cgroups of version 2: where one may be made, making it, and that it goes again.

A cgroup of ours is two, one in the other:

    egress-1234-9f3c/         has the limits, and all its controllers switched on for what is below it
    egress-1234-9f3c/room/    has the processes

A controller that is on below cannot be switched off above. So nobody who tidies up the parent, as systemd
does, can take the limits away while they are needed.

The launcher holds a lock on the outer directory. At the end it removes both; if it is killed, a guardian
does; and if that is killed too, a later run finds a cgroup whose lock is free. Controllers that had to be
switched on in the parent stay on: others may rely on them by then.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from launcher.guardian import Guardian
from launcher.limits import CONTROLLERS, Facts, Group, Kind

PREFIX = "egress-"
_ROOM = "room"
_END_WAIT = 3.0  # for processes that were killed
_SETTLED = 10.0  # a cgroup that is younger may be one whose launcher has yet to lock it
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Where the tree can be seen, and the cgroup that is at its top."""

    path: str
    root: str


class Seen(NamedTuple):
    """A cgroup as its files have it."""

    path: str
    may_write: bool
    is_free: bool  # its controllers can be switched on: it has no processes, or is the root of all
    controllers: frozenset[str]
    enabled: frozenset[str]


def parse_mount(mountinfo: str) -> Mount | None:
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            root, path = (_OCTAL.sub(lambda match: chr(int(match[1], 8)), it) for it in fields.split()[3:5])
            return Mount(path, root)
    return None


def parse_membership(text: str) -> str | None:
    """The cgroup of a process, from its /proc/PID/cgroup."""
    return next((line[3:] for line in text.splitlines() if line.startswith("0::")), None)


def directory(mount: Mount, group: str) -> str | None:
    """Where a cgroup is to be seen; nowhere, if it is outside of what is mounted."""
    below = group[len(mount.root.rstrip("/")) :]
    if not f"{group}/".startswith(f"{mount.root.rstrip('/')}/") or group.startswith("/.."):
        return None
    return mount.path + below.rstrip("/")


def usable(seen: Iterable[Seen]) -> Iterator[Group]:
    """Those in which a cgroup of ours would have anything. Moving a process needs the right to write at both ends'
    common ancestor: these are our own ancestors, so that is each itself."""
    for group in seen:
        controllers = group.controllers if group.is_free else group.enabled
        if group.may_write and controllers & {*CONTROLLERS.values()}:
            yield Group(group.path, controllers)


def look() -> Facts:
    """What this machine and this user have for limits."""
    mount = mounted()
    own = of_process("self", mount)
    release = os.uname().release.split(".")
    return Facts(
        kernel=(int(release[0]), int(re.sub(r"\D.*", "", release[1]))),
        is_root=os.geteuid() == 0 and _read("/proc/self/uid_map").split()[:2] == ["0", "0"],
        processors=tuple(sorted(os.sched_getaffinity(0))),
        manager=_manager() if mount else None,
        groups=tuple(usable(map(_see, _upwards(own, mount.path)))) if mount and own else (),
    )


def of_process(pid: int | str, mount: Mount | None) -> str | None:
    group = parse_membership(_read(f"/proc/{pid}/cgroup"))
    return directory(mount, group) if mount and group else None


def mounted() -> Mount | None:
    return parse_mount(_read("/proc/self/mountinfo"))


def _manager() -> str | None:
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    path = f"{'/run' if os.geteuid() == 0 else runtime}/systemd/private"
    return path if os.access(path, os.W_OK) else None


def _upwards(path: str, top: str) -> Iterator[str]:
    while path != top:
        yield path
        path = os.path.dirname(path)
    yield top


def _see(path: str) -> Seen:
    may_write = os.access(path, os.W_OK) and os.access(f"{path}/cgroup.procs", os.W_OK)
    is_root = not os.path.exists(f"{path}/cgroup.type")
    return Seen(
        path,
        may_write,
        os.access(f"{path}/cgroup.subtree_control", os.W_OK) and (is_root or not _read(f"{path}/cgroup.procs")),
        frozenset(_read(f"{path}/cgroup.controllers").split()),
        frozenset(_read(f"{path}/cgroup.subtree_control").split()),
    )


class Made:
    """A cgroup of ours, until `remove`."""

    __slots__ = ("_guardian", "_lock", "path")

    def __init__(self, group: Group, settings: Mapping[Kind, Mapping[str, str]]) -> None:
        sweep(group.path)
        self.path = f"{group.path}/{PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        self._lock = -1
        self._guardian = Guardian(lambda: _remove(self.path))
        try:
            os.mkdir(self.path, 0o755)
            self._lock = _lock(self.path)
            _furnish(group, self.path, settings)
        except BaseException:
            self.remove()
            raise

    def add(self, pid: int) -> None:
        _write(f"{self.path}/{_ROOM}/cgroup.procs", str(pid))

    @property
    def guardian(self) -> int:
        return self._guardian.pid

    def remove(self) -> None:
        """Whatever is in it ends."""
        _remove(self.path)
        self._guardian.dismiss()
        if self._lock >= 0:
            os.close(self._lock)


def values(path: str, names: Iterable[str]) -> dict[str, str]:
    """What the files of a cgroup say, of those that are there."""
    found = ((name, _read(f"{path}/{name}").strip()) for name in names)
    return {name: value for name, value in found if value}


def sweep(parent: str) -> None:
    """Take away what runs have left that were killed together with their guardians."""
    for name in os.listdir(parent):
        path = f"{parent}/{name}"
        with contextlib.suppress(OSError):  # in use, or gone already
            if name.startswith(PREFIX) and time.time() - os.stat(path).st_ctime > _SETTLED:
                os.close(_lock(path))
                _remove(path)


def _lock(path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _furnish(group: Group, path: str, settings: Mapping[Kind, Mapping[str, str]]) -> None:
    """What the kernel refuses of it is missing when it is read back, which is what counts."""
    for kind in settings.keys() & {kind for kind in Kind if CONTROLLERS[kind] in group.controllers}:
        for top in (group.path, path):
            with contextlib.suppress(OSError):
                _write(f"{top}/cgroup.subtree_control", f"+{CONTROLLERS[kind]}")
        for name, value in settings[kind].items():
            with contextlib.suppress(OSError):
                _write(f"{path}/{name}", value)
    os.mkdir(f"{path}/{_ROOM}", 0o755)


def _remove(path: str) -> None:
    if not os.path.isdir(path):
        return
    with contextlib.suppress(OSError):  # kernels before 5.14 have no such file
        _write(f"{path}/cgroup.kill", "1")
    _await_end(path)
    for it in (f"{path}/{_ROOM}", path):
        with contextlib.suppress(OSError):  # not there; or somebody is in it still, and the next run will see
            os.rmdir(it)


def _await_end(path: str) -> None:
    """The kernel tells of a change in this file by POLLPRI."""
    deadline = time.monotonic() + _END_WAIT
    with contextlib.suppress(OSError), open(f"{path}/cgroup.events", encoding="ascii") as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while "populated 1" in events.read() and (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1000)
            events.seek(0)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(path: str) -> str:
    """What is in a file of the kernel's; nothing, if it is not for us."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
