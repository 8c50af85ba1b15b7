"""podman and docker: which of them is here, what it can do, and how it is asked for things.

They are asked by their own command lines, with the user's own environment, since that is where the user has said
which storage, runtime or daemon is meant. What is true of a machine is found out from them, not guessed:

    joinable     whether the network of a container is ours to join: podman's always is, unless it is the client of
                 another machine; that of docker's daemon is root's, and that of a rootless daemon its user's
    limits       what the engine can hold a container to
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from launcher.backends.model import Backend, Fit, Lack, Unfit
from launcher.mounts import PlanError, is_within

_PATIENCE = 30.0  # for an answer
_INSTALL = {Backend.PODMAN: "sudo apt-get install podman", Backend.DOCKER: "sudo apt-get install docker.io"}
_START = {Backend.PODMAN: "podman info", Backend.DOCKER: "sudo systemctl start docker # or set DOCKER_HOST"}
_PODMAN_FACTS = "{{.Host.Security.Rootless}}|{{.Host.ServiceIsRemote}}|{{.Host.CgroupControllers}}"
_PODMAN_FACTS += "|{{.Host.CgroupsVersion}}"
_DOCKER_FACTS = "{{.SecurityOptions}}|{{.MemoryLimit}}|{{.CPUCfsQuota}}|{{.PidsLimit}}"
_INIT = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit", "/usr/lib/podman/catatonit", "/usr/local/bin/catatonit")


class EngineError(Exception):
    """What an engine said; `status` is its own exit code."""

    def __init__(self, said: str, status: int = 125) -> None:
        super().__init__(said)
        self.status = status


class Facts(NamedTuple):
    rootless: bool
    joinable: bool
    limits: frozenset[str]  # of memory, cpus and pids
    init: bool = True


class Engine(NamedTuple):
    backend: Backend
    program: str

    def ask(self, *words: str, patience: float = _PATIENCE) -> str:
        """What it answers."""
        try:
            done = subprocess.run(
                [self.program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"{self.backend} {words[0]} gave no answer") from None
        except OSError as error:
            raise EngineError(f"{self.program} cannot be run: {error.strerror}") from None
        if done.returncode:
            raise EngineError(_last_line(done.stderr) or f"{self.backend} {words[0]} failed", done.returncode)
        return done.stdout.decode(errors="replace").strip()

    def has_image(self, image: str) -> bool:
        try:
            self.ask("image", "inspect", "--format", "{{.Id}}", "--", image)
        except EngineError:
            return False
        return True

    def first_process(self, name: str) -> int:
        """Of a container, as this machine counts; zero if there is none yet."""
        answer = self.ask("inspect", "--format", "{{.State.Pid}}", name)
        return int(answer) if answer.isdigit() else 0

    def variable(self, name: str, wanted: str) -> str:
        """Of a container's environment."""
        lines = self.ask("inspect", "--format", "{{range .Config.Env}}{{println .}}{{end}}", name).splitlines()
        return next((line.partition("=")[2] for line in reversed(lines) if line.startswith(f"{wanted}=")), "")

    def remove(self, name: str) -> bool:
        """Whether there is no such container any more."""
        how = ("--time=0", "--ignore") if self.backend is Backend.PODMAN else ()
        try:
            self.ask("rm", "--force", "--volumes", *how, name)
        except EngineError as error:
            return "o such container" in str(error) or "already in progress" in str(error)
        return True

    def facts(self) -> Facts:
        return _facts(self)


@functools.cache
def _facts(engine: Engine) -> Facts:
    """Asked once: it takes a while."""
    return _podman(engine) if engine.backend is Backend.PODMAN else _docker(engine)


def _last_line(said: bytes) -> str:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ").removeprefix("Error response from daemon: ") if lines else ""


def find(backend: Backend, writable: Iterable[str] = ()) -> Engine:
    """From PATH, but never from where a sandbox can write: it would be run here, outside of all walls."""
    path = shutil.which(backend)
    if path is None or any(is_within(os.path.realpath(path), top) for top in writable):
        raise PlanError(f"{backend} is not installed", _INSTALL[backend])
    return Engine(backend, path)


def examine(backend: Backend) -> Fit | Unfit:
    try:
        facts = find(backend).facts()
    except PlanError as error:
        return Unfit(backend, str(error), error.hint)
    except EngineError as error:
        return Unfit(backend, str(error), _START[backend])
    return Fit(backend, () if facts.joinable else (Lack.CAPTURE,))


def _podman(engine: Engine) -> Facts:
    rootless, remote, controllers, version = engine.ask("info", "--format", _PODMAN_FACTS).split("|")
    given = set(controllers.strip("[]").split()) if (rootless, version) != ("true", "v1") else set()
    names = {"memory": "memory", "cpu": "cpus", "pids": "pids"}
    limits = frozenset(ours for theirs, ours in names.items() if theirs in given)
    return Facts(rootless == "true", remote != "true", limits, any(map(os.path.exists, _INIT)))


def _docker(engine: Engine) -> Facts:
    security, *limits = engine.ask("info", "--format", _DOCKER_FACTS).split("|")
    here = engine.ask("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").startswith("unix://")
    rootless = "rootless" in security
    held = (name for name, can in zip(("memory", "cpus", "pids"), limits, strict=True) if can == "true")
    return Facts(rootless, here and (rootless or os.geteuid() == 0), frozenset(held))
