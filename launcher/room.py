"""A sandbox from its plan to the moment its command may run.

    Joiner      the helper that will join its network, forked first: it gets ready while bwrap does
    hold        placeholders, and the process that takes them away whatever happens
    bwrap       started, told by --block-fd to wait before the command
    join        listening sockets made inside, and proved, and handed to us
    release     the command runs; what it connects to waits in the kernel until the gate is there

Nothing heavy is imported before the release, and no thread exists: three forks happen here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress

from egress.record import TYPE_CHECKING
from launcher import bwrap, process, seccomp
from launcher.descriptors import binds_descriptors, carry, memory
from launcher.interrupts import interruptible
from launcher.mounts import Kind, PlanError, is_within
from launcher.netns.handover import Handover, Joiner
from launcher.netns.model import HandoverError, Wanted
from launcher.options import Options, Resources
from launcher.placeholders import Held, hold
from launcher.plan import Plan
from launcher.process import Child

if TYPE_CHECKING:
    import asyncio
    from typing import NoReturn

    from launcher.backends.place import Entrance
    from launcher.confine import Confined
    from launcher.netns.connector import Connector
    from launcher.terminal import Terminal
    from launcher.watch import Watch

_NO_LIMITS = Resources()


class Room:
    """Made and held; `release` lets the command run, `close` leaves nothing behind."""

    def __init__(
        self,
        plan: Plan,
        wanted: Wanted | None,
        terminal: Terminal | None,
        filters: seccomp.Filter,
        resources: Resources = _NO_LIMITS,
        given: Mapping[str, int] | None = None,
    ) -> None:
        self.bwrap = find_bwrap([mount.path for mount in plan.mounts if mount.kind is Kind.WRITE])
        self.joiner = _joiner(wanted)
        self._held: Held | None = None
        self._status = -1
        self.child: Child | None = None
        self.handover: Handover | None = None
        self.entrance: Entrance | None = None  # its network is its own
        self.confined: Confined | None = None
        try:
            self._held = hold(plan.placeholders)
            self.child = self._start(plan, terminal, filters, given or {})
            with interruptible():
                self.handover = self.joiner.join()
            self._held.follow(self.sandbox)
            self.confined = _confine(resources, self.sandbox)
        except HandoverError as error:
            self.close()
            raise _cause(self.bwrap, error) from None
        except BaseException:
            self.close()
            raise

    @property
    def sandbox(self) -> int:
        """Its first process, as the host counts."""
        return self.joiner.sandbox

    @property
    def connector(self) -> Connector | None:
        return self.joiner.connector

    def release(self) -> None:
        if self.child is not None and self.child.events >= 0:
            from launcher import keeper

            keeper.wait_until_held(self.child)
        self.joiner.release()

    def at_once(self) -> int | None:
        from launcher import brief

        return brief.exit_code(self)

    def watch(self, terminal: Terminal | None, loop: asyncio.AbstractEventLoop) -> Watch:
        from launcher.watch import Watch

        return Watch(self, terminal, loop)

    def changed(self) -> list[str]:
        """What is protected is held by mounts."""
        return []

    def has_run(self) -> bool:
        """Whether the command did: for the end, when bwrap has said what it had to say."""
        return b"exit-code" in os.pread(self._status, 4096, 0)

    def reap(self) -> int:
        """The child's wait status. Its number may be another's from now on, so it is forgotten."""
        assert self.child is not None  # noqa: S101  # once
        _, status = os.waitpid(self.child.pid, 0)
        self.child = None
        self.joiner.end()
        return status

    def close(self) -> None:
        """To be called when the sandbox has ended, or to end it."""
        if self.child is not None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.child.pid, signal.SIGKILL)
                os.waitpid(self.child.pid, 0)
        self.joiner.end()
        self.joiner.close()
        if self.confined is not None:
            self.confined.release()
        if self._held is not None:
            self._held.release()

    def _start(self, plan: Plan, terminal: Terminal | None, filters: seccomp.Filter, given: Mapping[str, int]) -> Child:
        fds = carry(plan, binds_descriptors(self.bwrap), given)
        mine = (*fds.all, *(programs := tuple(map(memory, filters.programs))))
        self._status = memory(b"")  # not a pipe: bwrap would die of writing to it when we are gone
        fds = fds._replace(info=self.joiner.info, block=self.joiner.block, status=self._status, seccomp=programs)
        arguments = memory(bwrap.packed(bwrap.arguments(plan, fds)))
        line = bwrap.command_line(self.bwrap, arguments, plan)

        def run() -> NoReturn:
            os.execve(self.bwrap, line, {})  # noqa: S606  # its own environment can be read inside, as that of pid 1

        needed = (*fds.all, arguments)
        try:
            if terminal is None:
                return process.start(run, (0, 1, 2), needed)
            from launcher import keeper

            return keeper.start(run, terminal.stage(), needed)
        finally:
            for descriptor in (*mine, arguments):
                os.close(descriptor)


def find_bwrap(writable: Iterable[str] = ()) -> str:
    """From PATH, but never from where a sandbox can write: it would be run here, outside of all walls."""
    for directory in os.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(os.path.realpath(directory), "bwrap")
        if directory.startswith("/") and os.access(path, os.X_OK) and not any(is_within(path, top) for top in writable):
            return path
    raise PlanError("bubblewrap is not installed", "apt-get install bubblewrap")


def load_filters(options: Options) -> seccomp.Filter:
    machine = os.uname().machine
    try:
        chosen = seccomp.load(options.seccomp, machine)
        if not options.deny_calls and options.allow_calls is None:
            return chosen
        from launcher.seccomp_lists import narrowed  # it compiles, unless it did before

        return narrowed(chosen, options.deny_calls, options.allow_calls, machine)
    except seccomp.SeccompError as error:
        raise PlanError(str(error), error.hint) from None


def _confine(resources: Resources, sandbox: int) -> Confined | None:
    if resources.memory is None and resources.cpus is None and resources.pids is None:
        return None
    from launcher import cgroup  # only who asks for limits pays for them
    from launcher.confine import confine
    from launcher.limits import plan_limits

    return confine(plan_limits(resources, cgroup.look()), sandbox)


def _cause(program: str, error: HandoverError) -> PlanError:
    """What is wrong with this machine, if a sandbox as simple as can be does not start either."""
    from launcher.checks.sandbox import ailment

    found = ailment(program)
    if found is not None:
        return PlanError(found.what, found.hint)
    return PlanError(f"the sandbox could not be made: {error.what}", error.hint)


def _joiner(wanted: Wanted | None) -> Joiner:
    try:
        return Joiner(wanted)
    except HandoverError as error:
        raise PlanError(error.what, error.hint, status=2) from None
