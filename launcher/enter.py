"""Commands for a sandbox that runs already, as the host's process asks for them.

    with Usher(room, filters) as usher:    forked while bwrap still holds the first command
        …                                  the room is released; its first command runs, so all mounts are made
        usher.join()
        usher.run(7, command, …)           and packets come back, see `enterusher`

What limits the sandbox limits these, too. A cgroup is joined by the usher itself, so that its forks are born
into it; what is set per process is handed to each.
"""

from __future__ import annotations

import os
import resource
import socket
from types import TracebackType

from launcher import cgroup, entercalls, enterusher
from launcher.descriptors import memory
from launcher.enterchild import Command, Walls, pack
from launcher.mounts import PlanError
from launcher.netns.connector import receive, send
from launcher.room import Room
from launcher.seccomp import Filter

_PATIENCE = 15.0
_BOUNDED = (resource.RLIMIT_DATA, resource.RLIMIT_NPROC)  # what `confine` sets, for want of a cgroup
_AGAIN = "try again, or ask egress doctor what this machine allows"


class Usher:
    """It forks: no thread or event loop may exist yet."""

    def __init__(self, room: Room, filters: Filter) -> None:
        walls = Walls(entercalls.filters(filters.programs), _limits(room.sandbox))
        life = _life(room)
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(_PATIENCE)
        self.pid = os.fork()
        if self.pid == 0:
            enterusher.serve(theirs, life, walls)
        theirs.close()
        os.close(life)
        try:
            _share_bounds(self.pid, room.sandbox)
        except BaseException:
            self.close()
            raise

    def join(self) -> None:
        """To be called when the first command runs."""
        self.channel.send(b"J")
        error = int(self.channel.recv(enterusher.PACKET)[2:] or -1)
        if error:
            why = "the process that should ended" if error < 0 else os.strerror(error)
            raise PlanError(f"the sandbox cannot be entered: {why}", _AGAIN)

    def run(self, number: int, command: Command, streams: tuple[int, int, int], report: int) -> None:
        what = memory(pack(command))
        try:
            send(self.channel, b"R %d" % number, what, *streams, report)
        finally:
            os.close(what)

    def signal(self, number: int, what: int) -> None:
        self.channel.send(b"S %d %d" % (number, what))

    def hear(self) -> tuple[bytes, list[int]]:
        """The next word and its numbers; an empty word is the end."""
        data, _ = receive(self.channel, enterusher.PACKET, 0)
        return data[:1], [int(number) for number in data[1:].split()]

    def close(self) -> None:
        """The sandbox ends with it."""
        self.channel.close()
        if self.pid:
            os.waitpid(self.pid, 0)
            self.pid = 0

    def __enter__(self) -> Usher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _life(room: Room) -> int:
    """A pidfd of the sandbox's first process, which is known by its network: numbers can pass to others."""
    life = os.pidfd_open(room.sandbox)
    network = room.handover.network if room.handover else 0
    if not network or os.stat(f"/proc/{room.sandbox}/ns/net").st_ino != network:
        os.close(life)
        raise PlanError("the sandbox ended while it was made", _AGAIN)
    return life


def _limits(sandbox: int) -> tuple[tuple[int, tuple[int, int]], ...]:
    """Those of its first process that are not ours anyway."""
    found = ((what, resource.prlimit(sandbox, what)) for what in _BOUNDED)
    return tuple((what, most) for what, most in found if most != resource.getrlimit(what))


def _share_bounds(pid: int, sandbox: int) -> None:
    os.sched_setaffinity(pid, os.sched_getaffinity(sandbox))
    mount = cgroup.mounted()
    group = cgroup.of_process(sandbox, mount)
    if group is None or group == cgroup.of_process(pid, mount):
        return
    try:
        with open(f"{group}/cgroup.procs", "w", encoding="ascii") as members:
            members.write(str(pid))
    except OSError as error:
        _ask_manager(pid, group, error)


def _ask_manager(pid: int, group: str, error: OSError) -> None:
    """A cgroup of a systemd's is joined by asking it."""
    from launcher import scope

    manager = cgroup.look().manager
    try:
        if manager is None:
            raise error
        scope.attach(manager, os.path.basename(group), pid)
    except (OSError, scope.ScopeError) as refused:
        raise PlanError(
            f"further commands cannot be put under the sandbox's limits: {refused}", "leave out memory, cpus and pids"
        ) from None
