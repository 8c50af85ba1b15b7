"""A command on the host itself, from its plan to its end: `launcher.room.Room`'s part, without namespaces."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from launcher import interrupts, process
from launcher.backends import descendants, minder
from launcher.backends.minder import Errand
from launcher.backends.place import Entrance
from launcher.interrupts import Interrupted
from launcher.mounts import PlanError
from launcher.options import Resources

if TYPE_CHECKING:
    import asyncio

    from launcher.backends.jobwatch import JobWatch
    from launcher.confine import Confined
    from launcher.netns.handover import Handover
    from launcher.terminal import Terminal

_MOMENT_MS = 12


class HostRoom:
    """Made and held; `release` lets the command run, `close` leaves nothing behind."""

    connector = None  # it has no network of its own
    shares_keys = True  # what the terminal sends to our job, the command has been sent, too

    def __init__(
        self, errand: Errand, entrance: Entrance | None, resources: Resources, changed: Callable[[], list[str]]
    ) -> None:
        self.entrance = entrance
        self.handover: Handover | None = None
        self.changed = changed
        self.confined: Confined | None = None
        self._tidy = errand.tidy
        self._others = descendants.children()
        self._is_over = False
        self._heard: list[int | None] = []  # and not acted on
        self._trouble: str | None = None
        descendants.adopt_orphans()
        interrupts.leave_keys_to_the_user()
        self.minded = minder.start(errand)
        try:
            if trouble := minder.hold_until_ready(self.minded):
                raise PlanError(f"the command cannot be started: {trouble}", "egress doctor")
            self.confined = _confine(resources, self.minded.command)
        except BaseException:
            self.close()
            raise

    @property
    def sandbox(self) -> int:
        return self.minded.pid

    def release(self) -> None:
        """Ctrl-C until now has reached us alone, and none of it is for later."""
        waiting = signal.sigpending() & set(interrupts.FORWARDED)
        for number in sorted(waiting):
            if not interrupts.is_ignored(number):
                raise Interrupted(number)
        os.write(self.minded.go, b"\n")

    def at_once(self) -> int | None:
        waiting = select.poll()
        assert self.entrance is not None  # noqa: S101  # always
        for descriptor in (self.minded.events, self.entrance.sock.fileno()):
            waiting.register(descriptor, select.POLLIN)
        if {descriptor for descriptor, _ in waiting.poll(_MOMENT_MS)} != {self.minded.events}:
            return None
        status = self.hear()
        if status is None or os.WIFSTOPPED(status) or not self.has_run():
            self._heard.append(status)
            return None
        return process.exit_code(status)

    @property
    def has_news(self) -> bool:
        """Something was heard that nobody has acted on."""
        return bool(self._heard)

    def hear(self) -> int | None:
        """The next wait status: a stop, or the end."""
        status = self._heard.pop() if self._heard else minder.read_status(self.minded)
        self._is_over = status is None or not os.WIFSTOPPED(status)
        return status

    def has_started(self) -> bool:
        """Whether it has all that was let in."""
        return True

    def has_run(self) -> bool:
        """Whether the command did: for its end."""
        if self._trouble is None:
            self._trouble = minder.rest_of_word(self.minded)
            with suppress(OSError):  # nobody reads it
                os.write(2, f"egress: {self._trouble}\n".encode() if self._trouble else b"")
        return not self._trouble

    def watch(self, terminal: Terminal | None, loop: asyncio.AbstractEventLoop) -> JobWatch:
        from launcher.backends.jobwatch import JobWatch

        return JobWatch(self, loop)

    def send(self, number: int) -> None:
        if not self._is_over:
            with suppress(ProcessLookupError):
                os.kill(self.minded.command, number)

    def kill(self) -> None:
        """Everything that came of the command ends with it."""
        self.send(signal.SIGKILL)

    def close(self) -> None:
        for descriptor in (self.minded.orders, self.minded.go):
            with suppress(OSError):
                os.close(descriptor)
        os.waitpid(self.minded.pid, 0)
        descendants.end_all(but=self._others)  # whom a minder that was killed has left
        self._tidy()
        if self.confined is not None:
            self.confined.release()
        for descriptor in (self.minded.events, self.minded.word):
            os.close(descriptor)


def _confine(resources: Resources, command: int) -> Confined | None:
    if resources.memory is None and resources.cpus is None and resources.pids is None:
        return None
    from launcher import cgroup
    from launcher.confine import confine
    from launcher.limits import plan_limits

    return confine(plan_limits(resources, cgroup.look()._replace(own_users=False)), command)
