"""Backend `landlock`: walls that a process puts around itself, for where user namespaces are closed.

    Landlock       the files that the plan shows, and no others; no TCP port but the gate's; signals stay within
    seccomp        the profile, and `socketfilter`: few kinds of socket
    the usher      every connect: to the gate, or to a socket that was let in
    no privileges  for ever (no_new_privs), and no capabilities

What only a namespace can do is missing: connections of programs that ignore the proxy end in an error instead of at
the gate, the host's processes can be seen, and protected files in writable directories cannot be held.

/tmp and the home directory are the host's, so neither is shown; both have a stand-in of the run's own, by TMPDIR and
HOME. The home's has links to what was let in of the real one.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from launcher import landlock
from launcher.backends import landwalls, usher
from launcher.backends.hosted import Hosted
from launcher.backends.landrules import closed_to_new, devices, rules, sight
from launcher.backends.model import Backend, Fit, Lack, Unfit
from launcher.backends.protected import Protected
from launcher.backends.socketfilter import MACHINES, program
from launcher.backends.usher import Goals
from launcher.landlock import READ, READING, TERMINAL, WRITE, WRITING, Rule
from launcher.mounts import Kind

if TYPE_CHECKING:
    from launcher.backends.minder import Errand
    from launcher.options import Options
    from launcher.plan import Plan
    from launcher.request import Request
    from launcher.seccomp import Filter

LACKS = (Lack.CAPTURE, Lack.PROTECT, Lack.PROCESSES, Lack.SURVIVORS)
_BOOT = "cat /sys/kernel/security/lsm # boot with lsm=landlock,… before these"
_MOST_ENTRIES = 8192  # of one directory that is given entry by entry
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"


def examine() -> Fit | Unfit:
    version = landwalls.version()
    if not version:
        return Unfit(Backend.LANDLOCK, "this kernel has no Landlock, or it is switched off", _BOOT)
    if os.uname().machine not in MACHINES:
        why = f"no filter for machine {os.uname().machine!r}, only for {' and '.join(MACHINES)}"
        return Unfit(Backend.LANDLOCK, why, "--backend bwrap")
    if refused := landwalls.can_ask():
        return Unfit(Backend.LANDLOCK, f"seccomp cannot ask about system calls here: {refused}", "egress doctor")
    if os.geteuid() and _yama() >= 2:
        return Unfit(
            Backend.LANDLOCK,
            "no process may look into another (ptrace_scope)",
            "sudo sysctl kernel.yama.ptrace_scope=1",
        )
    return Fit(Backend.LANDLOCK, (*LACKS, *landlock.missing(version)))


def _yama() -> int:
    try:
        with open(_YAMA, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def site(fit: Fit, options: Options) -> Landlocked:
    return Landlocked(fit, options)


class Landlocked(Hosted):
    def __init__(self, fit: Fit, options: Options) -> None:
        super().__init__(fit, options)
        self._ours, self._theirs = socket.socketpair()

    def arrange(self, request: Request, trusting: bool) -> Request:
        arranged = super().arrange(request, trusting)
        return arranged._replace(variables={**arranged.variables, **self._stand_ins()})

    def _stand_ins(self) -> dict[str, str]:
        return {"HOME": f"{self.directory}/home", "TMPDIR": f"{self.directory}/tmp"}  # noqa: S108  # private

    def rules(self, plan: Plan) -> list[str]:
        lines = ["files, and all that is below them"]
        lines += [f"  {_NAMES.get(rule.rights, 'device')}  {rule.path}" for rule in self._rules(plan)]
        for path in closed_to_new(sight(plan.mounts, _stands)):
            lines.append(f"  nothing can be made in {path}, for what is hidden there")
        return lines

    def _rules(self, plan: Plan) -> Iterator[Rule]:
        yield from rules(sight(plan.mounts, _stands), _entries)
        yield from devices()
        yield from (Rule(f"{self.directory}/{name}", WRITE) for name in ("home", "tmp"))
        yield Rule(f"{self.directory}/trust", READ)

    def prepare(self, plan: Plan, filters: Filter) -> Callable[[], Callable[[], None]]:
        assert self.entrance is not None  # noqa: S101  # it is to be run
        assert self.private is not None  # noqa: S101  # its paths are in the plan
        self.private.furnish(_real_home(), [mount.path for mount in plan.mounts if mount.shows_host])
        port = self.entrance.sock.getsockname()[1]

        def make_ready() -> Callable[[], None]:
            ruleset = self._ruleset(plan, port)
            return lambda: self._raise_walls(ruleset, filters)

        return make_ready

    def errand(self, plan: Plan, filters: Filter) -> Errand:
        assert self.entrance is not None  # noqa: S101  # it is to be run
        let_in = frozenset(mount.path for mount in plan.mounts if mount.kind is Kind.READ and _is_socket(mount.path))
        writable = [mount.path for mount in plan.mounts if mount.kind is Kind.WRITE]
        goals = Goals(self.entrance.sock.getsockname()[1], let_in, (self.directory, *writable))
        return (
            super()
            .errand(plan, filters)
            ._replace(
                attend=lambda: usher.attend(self._ours, goals),
                keep=(self._ours.fileno(),),
                keep_inside=(self._theirs.fileno(),),
            )
        )

    def changed(self, plan: Plan) -> Callable[[], list[str]]:
        return Protected(plan).changed

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()
        super().close()

    def _ruleset(self, plan: Plan, port: int) -> int:
        version = landwalls.version()
        handled, ruleset = landlock.handled(version), landwalls.ruleset(version)
        for rule in self._rules(plan):
            landwalls.give(ruleset, handled, rule)
        for stream in (0, 1, 2):
            landwalls.give_descriptor(ruleset, handled, stream, _rights_of(stream))
        landwalls.give_port(ruleset, handled, port)
        return ruleset

    def _raise_walls(self, ruleset: int, filters: Filter) -> None:
        landwalls.drop_capabilities()
        landwalls.restrict(ruleset)
        landwalls.load(filters.programs)
        asking = landwalls.load_asking(program(os.uname().machine))
        socket.send_fds(self._theirs, [b"\0"], [asking])


_NAMES = {int(READ): "read  ", int(WRITE): "write "}


def _rights_of(stream: int) -> int:
    """A stream can be opened again, as /dev/stdin and the like: with what it has now. Pipes need no rule."""
    mode = os.fstat(stream).st_mode
    if stat.S_ISCHR(mode):
        return TERMINAL
    if not stat.S_ISREG(mode):
        return 0
    way = fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE
    return {os.O_RDONLY: READING, os.O_WRONLY: WRITING}.get(way, READING | WRITING)


def _real_home() -> str:
    return os.path.realpath(os.environ.get("HOME") or os.path.expanduser("~"))


def _stands(path: str) -> bool:
    """A socket is connected to, which the usher sees to, not opened."""
    return os.path.lexists(path) and not _is_socket(path)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _entries(path: str) -> list[str]:
    """What a link leads to has its own path. A file has nothing below it."""
    try:
        with os.scandir(path) as found:
            names = [entry.name for entry in found if not entry.is_symlink()]
    except OSError:
        return []
    return [f"{path.rstrip('/')}/{name}" for name in sorted(names)[:_MOST_ENTRIES]]
