"""A container from its plan to the moment its command may run, and to its end.

    guardian    a process that outlives us, and then removes the container
    create      the container is described; nothing of it runs
    podman      `init` makes its namespaces, and holds it there; `start` lets the command run
    docker      has no such step: `start` runs a shell of the image's that waits for a line from a pipe
    visit       its network is joined, furnished and proved, as that of any process is
    release     the command runs, as the child of the engine, with the engine's client on our terminal

The client is minded as a command on the host is: it ends with us, and it is stopped and continued as a job. It hands
signals on, and ends as the command does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from launcher import interrupts
from launcher.backends import imagefiles
from launcher.backends.container import Setting, command, create
from launcher.backends.engines import Engine, EngineError
from launcher.backends.hostroom import HostRoom
from launcher.backends.minder import Errand
from launcher.backends.model import Backend
from launcher.confine import Confined
from launcher.guardian import Guardian
from launcher.limits import Enforced
from launcher.mounts import PlanError
from launcher.netns.model import HandoverError, Wanted
from launcher.netns.visit import Visit
from launcher.options import Resources
from launcher.placeholders import Held, hold
from launcher.plan import Plan

if TYPE_CHECKING:
    from launcher.netns.connector import Connector

_PATIENCE = 20.0  # for a container to start
_SOON = 0.01
_ATTEMPTS, _BETWEEN = 5, 0.5  # to remove what may be being made
_SEE = "see what {backend} says: {backend} info; egress doctor"


class ContainerRoom(HostRoom):
    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        setting: Setting,
        wanted: Wanted | None,
        missing: tuple[str, ...],
        tidy: Callable[[], None],
    ) -> None:
        self._engine, self._setting, self._wanted = engine, setting, wanted
        # Whether what the terminal sends to our job reaches the command by the client's hand.
        self.shares_keys = engine.backend is Backend.PODMAN or setting.terminal
        self._visit: Visit | None = None
        self._held: Held | None = None
        self._first = 0
        self._is_closed = False
        self._pipe = os.open(setting.hold, os.O_RDWR | os.O_CLOEXEC) if setting.hold else -1
        self._guardian = Guardian(partial(_clear, engine, setting.name, tidy))
        try:
            self._held = hold(plan.placeholders)
            with interrupts.interruptible():  # what we hold for now would be blocked inside, and for ever
                self._make(plan)
            errand = Errand(_client(engine, setting), "/", os.environ, lambda: self._take_place, tidy)
            super().__init__(errand, None, Resources(), list)
            with interrupts.interruptible():
                self._enter(plan)
            if self._first:
                self._held.follow(self._first)
        except (EngineError, HandoverError) as error:
            self.close()
            raise self._trouble_with(error) from None
        except BaseException:
            self.close()
            raise
        self.confined = Confined(Enforced(missing=missing)) if missing else None

    def _take_place(self) -> None:
        """docker's client ends of what podman's hands on; so it is in no job that a terminal sends to."""
        if not self.shares_keys:
            os.setpgid(0, 0)

    def send(self, number: int) -> None:
        if self._engine.backend is Backend.PODMAN:
            super().send(number)
        elif not self._is_over:
            with suppress(EngineError):
                self._engine.ask("kill", f"--signal={number}", self._setting.name)

    @property
    def sandbox(self) -> int:
        return self._first

    @property
    def connector(self) -> Connector | None:  # type: ignore[override]  # a host's room has none
        return self._visit.connector if self._visit else None

    def release(self) -> None:
        if self._pipe < 0:
            super().release()
        else:
            os.write(self._pipe, b"\n")

    def has_started(self) -> bool:
        """podman has made the mounts before; docker makes them when it starts."""
        with suppress(EngineError):
            return bool(self._first or self._engine.first_process(self._setting.name))
        return False

    def at_once(self) -> int | None:
        return None  # a container takes longer to start than the gate

    def kill(self) -> None:
        with suppress(EngineError):
            self._engine.ask("kill", "--signal=KILL", self._setting.name)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._engine.remove(self._setting.name)
        if self._visit is not None:
            with suppress(HandoverError):  # its network has gone with it
                self._visit.leave()
        if hasattr(self, "minded"):
            super().close()
        if self._held is not None:
            self._held.release()
        self._guardian.dismiss()
        if self._pipe >= 0:
            os.close(self._pipe)

    def _make(self, plan: Plan) -> None:
        self._engine.ask(*create(plan, self._setting))
        if self._engine.backend is Backend.PODMAN:
            self._engine.ask("init", self._setting.name)

    def _enter(self, plan: Plan) -> None:
        if self._setting.hold:
            super().release()  # the engine starts, and the command waits
        if self._engine.backend is Backend.DOCKER and not self._setting.hold:
            return  # through a relay: nobody can be joined, and nothing is to be waited for
        self._first = self._await_first()
        if self._engine.backend is Backend.PODMAN:
            self._look_for(plan)
        if self._wanted is not None:
            self._visit = Visit(self._first, self._wanted)
            self.handover = self._visit.join()

    def _look_for(self, plan: Plan) -> None:
        """docker's first process, and its shell, say it well enough by themselves."""
        word = command(plan, self._setting)[0]
        path = self._engine.variable(self._setting.name, "PATH")
        if status := imagefiles.trouble(self._first, word, plan.directory, path):
            how = "was not found" if status == imagefiles.NOT_FOUND else "cannot be executed"
            hint = "the relay is a Python program" if self._setting.relay else "choose another with --image"
            raise PlanError(f"{word!r} {how} in the image", hint, status)

    def _await_first(self) -> int:
        deadline = time.monotonic() + _PATIENCE
        while not (pid := self._engine.first_process(self._setting.name)) or not self._is_it(pid):
            if time.monotonic() > deadline or self._has_ended():
                raise EngineError("the container did not start, as is said above; it needs a /bin/sh")
            time.sleep(_SOON)
        return pid

    def _is_it(self, pid: int) -> bool:
        """A daemon elsewhere, in a virtual machine perhaps, counts its own processes: that number is another's here."""
        if not self._setting.hold:
            return True
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as line:
            return self._setting.hold.encode() in line.read()
        return False

    def _has_ended(self) -> bool:
        import select

        return bool(select.select([self.minded.events], [], [], 0)[0])

    def _trouble_with(self, error: EngineError | HandoverError) -> PlanError:
        backend = self._engine.backend
        if isinstance(error, HandoverError):
            return PlanError(f"the container's network could not be made: {error.what}", error.hint)
        status = error.status if error.status in (126, 127) else 125
        return PlanError(f"{backend}: {error}", _SEE.format(backend=backend), status)


def _client(engine: Engine, setting: Setting) -> tuple[str, ...]:
    return (engine.program, "start", "--attach", "--interactive", setting.name)


def _clear(engine: Engine, name: str, tidy: Callable[[], None]) -> None:
    """When we are gone. What was being made just then may come to be a little later."""
    for _ in range(_ATTEMPTS):
        engine.remove(name)
        time.sleep(_BETWEEN)
    tidy()


def files_of(plan: Plan, directory: str, given: Mapping[str, str]) -> dict[str, str]:
    """Texts of ours, written; by the path that they are mounted at."""
    from launcher.mounts import Kind

    made = dict(given)
    for place, mount in enumerate(mount for mount in plan.mounts if mount.kind is Kind.TEXT):
        made[mount.path] = f"{directory}/text{place}"
        with open(made[mount.path], "x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(mount.text)
        os.chmod(made[mount.path], 0o444)
    return made
