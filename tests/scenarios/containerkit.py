"""Container engines for tests: an image that is made here, storage of the test's own, and why there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gateprocess import until
from launchkit import IS_ROOT, Person, somebody

IMAGE = "egress-scenario:1"
APPLETS = "sh cat echo ls id sleep wget ip env kill touch mkdir mount nslookup nc ps head dd stat rm mv tty stty trap"
RUNTIMES = ("crun", "runc")
CASES = [("podman", "root"), ("podman", "ordinary"), ("docker", "root")] if IS_ROOT else [("podman", "ordinary")]
_LIMITS = 'default_ulimits = ["nofile=1000:1000", "nproc=2000:2000"]'  # not every root may raise them


class Unusable(Exception):
    """Why this engine cannot be tried here, in its own words."""


class Case(NamedTuple):
    backend: str
    person: Person

    def options(self, *more: str) -> tuple[str, ...]:
        return ("--backend", self.backend, "--image", IMAGE, *more)

    def run(self, *command: str, options: tuple[str, ...] = (), **how: Any) -> subprocess.CompletedProcess[bytes]:
        return self.person.run(*command, options=self.options(*options), **how)

    def shell(self, script: str, *options: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
        return self.run("sh", "-c", script, options=options, **how)

    def engine(self, *words: str) -> str:
        done = subprocess.run(
            [self.backend, *words],
            env=self.person.env,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            **self.person.identity,
        )
        if done.returncode:
            raise Unusable(f"{self.backend} {words[0]}: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout.strip()

    def containers(self) -> str:
        return self.engine("ps", "--all", "--quiet")


@contextlib.contextmanager
def engine_for(backend: str, kind: str) -> Iterator[Case]:
    with somebody(kind) as person:
        made = _podman(person) if backend == "podman" else _docker(person)
        with made as case, _image() as image:
            shutil.copy(image, person.home / "image.tar")
            person.own()
            case.engine("import", str(person.home / "image.tar"), IMAGE)
            yield case


@contextlib.contextmanager
def _image() -> Iterator[Path]:
    """A root with nothing but busybox in it."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise Unusable("busybox is not installed: apt-get install busybox-static")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        for name in ("bin", "proc", "sys", "dev", "etc", "tmp", "run", "root"):
            (root / name).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        for name in ("lib", "lib64"):  # where a /usr is mounted, its programs find their libraries
            (root / name).symlink_to(f"usr/{name}")
        shutil.copy(busybox, root / "bin")
        for name in APPLETS.split():
            (root / "bin" / name).symlink_to("busybox")
        with tarfile.open(root.parent / "image.tar", "w") as archive:
            archive.add(root, ".")
        yield root.parent / "image.tar"


@contextlib.contextmanager
def _podman(person: Person) -> Iterator[Case]:
    if shutil.which("podman") is None:
        raise Unusable("podman is not installed: apt-get install podman")
    (person.home / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{person.home}/graph"\nrunroot = "{person.home}/runroot"\n'
    )
    person.env |= {"CONTAINERS_STORAGE_CONF": f"{person.home}/storage.conf", "CONTAINERS_CONF": f"{person.home}/conf"}
    case = Case("podman", person)
    try:
        _choose_runtime(case)
        yield case
    finally:
        _end_pause(person)


def _choose_runtime(case: Case) -> None:
    """Whichever can run a container here at all."""
    refusals = []
    for runtime in filter(shutil.which, RUNTIMES):
        (case.person.home / "conf").write_text(f'[containers]\n{_LIMITS}\n[engine]\nruntime = "{runtime}"\n')
        case.person.own()
        try:
            with _image() as image:
                shutil.copy(image, case.person.home / "trial.tar")
            case.person.own()
            case.engine("import", str(case.person.home / "trial.tar"), "trial:1")
            case.engine("run", "--rm", "--network=none", "--read-only", "trial:1", "/bin/echo")
        except Unusable as error:
            refusals.append(f"{runtime}: {error}")
        else:
            return
    raise Unusable("; ".join(refusals) or f"none of {RUNTIMES} is installed")


def _end_pause(person: Person) -> None:
    """What rootless podman leaves running for its user."""
    for path in person.home.glob("runtime/libpod/tmp/pause.pid"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            pid = int(path.read_text())
            os.kill(pid, signal.SIGKILL)
            until(partial(_is_gone, pid))


def _is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


@contextlib.contextmanager
def _docker(person: Person) -> Iterator[Case]:
    """A daemon of the test's own."""
    if shutil.which("dockerd") is None or shutil.which("docker") is None:
        raise Unusable("dockerd is not installed: apt-get install docker.io")
    socket = f"unix://{person.home}/docker.sock"
    person.env |= {"DOCKER_HOST": socket, "DOCKER_CONFIG": f"{person.home}/docker"}
    ulimits = [f"--default-ulimit={limit}" for limit in ("nofile=1000:1000", "nproc=2000:2000")]
    places = [f"--{name}={person.home}/docker-{name}" for name in ("data-root", "exec-root", "pidfile")]
    log = (person.home / "dockerd.log").open("wb")
    words = ["dockerd", *places, *ulimits, "--host", socket, "--iptables=false", "--ip6tables=false", "--bridge=none"]
    daemon = subprocess.Popen([*words, "--storage-driver=vfs"], stdout=log, stderr=log, env=person.env)
    case = Case("docker", person)
    try:
        until(lambda: daemon.poll() is not None or _answers(case))
        if daemon.poll() is not None:
            raise Unusable(f"dockerd: {(person.home / 'dockerd.log').read_text().strip().splitlines()[-1:]}")
        yield case
    finally:
        daemon.terminate()
        daemon.wait()
        log.close()


def _answers(case: Case) -> bool:
    try:
        return bool(case.engine("version", "--format", "{{.Server.Version}}"))
    except Unusable:
        return False
