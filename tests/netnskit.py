"""Sandboxes and bare networks for tests: who starts them, and how to look inside."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from launcher.netns.handover import Handover, Joiner
from launcher.netns.joining import join
from launcher.netns.model import Sandbox, Wanted

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
USER = "61234"  # an ordinary user needs no entry in /etc/passwd
PLAIN = ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
NESTED = ["--unshare-all", "--unshare-user", "--disable-userns"]
# Who starts bwrap, with which flags: as root the network may belong to our own user namespace.
STARTS = {"root": PLAIN, "root-nested": NESTED, "user": NESTED} if os.geteuid() == 0 else {"self": NESTED}
VIEW = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
PYTHON = "/usr/bin/python3"  # one that every user may run


@contextlib.contextmanager
def readable_copy() -> Iterator[Path]:
    """The sources where an ordinary user can read them."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        for package in ("egress", "launcher"):
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("netnsinside.py", "netnsstory.py"):
            shutil.copy(ROOT / "tests" / name, folder)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


class Teller:
    """Runs netnsstory.py as one of those in `STARTS`."""

    def __init__(self, who: str, copy: Path) -> None:
        self.flags = [*STARTS[who], *VIEW]
        self._copy = copy
        as_user = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"] if who == "user" else []
        self._words = [*as_user, PYTHON if who == "user" else sys.executable, str(copy / "netnsstory.py")]

    def __call__(self, *actions: tuple[Any, ...], extra: list[str] | None = None, **wanted: Any) -> dict[str, Any]:
        inside = [PYTHON, str(self._copy / "netnsinside.py"), json.dumps(actions)]
        return self.run(inside, extra, **wanted)

    def run(self, command: list[str], extra: list[str] | None = None, **wanted: Any) -> dict[str, Any]:
        request = {"bwrap": [*self.flags, *(extra or [])], "wanted": wanted, "command": command}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self._copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [*self._words, json.dumps(request)], env=environment, cwd="/", stdout=subprocess.PIPE, check=True
        )
        return json.loads(done.stdout)


@contextlib.contextmanager
def bare_network(setup: str = "ip link set lo up") -> Iterator[Sandbox]:
    """A network namespace of its own, held by a process that waits."""
    words = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", f"{setup}; echo ready; cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"ready\n"
        yield Sandbox(holder.pid)


@contextlib.contextmanager
def handed_over(network: Sandbox, wanted: Wanted) -> Iterator[tuple[Joiner, Handover]]:
    """The hand-over of a network that bwrap did not make; it lasts as long as this."""
    with Joiner(wanted) as joiner:
        told = {"child-pid": network.pid, "net-namespace": network.network}
        os.write(joiner.info, json.dumps(told).encode())
        handover = joiner.join()
        try:
            yield joiner, handover
        finally:
            for listener in handover.listeners:
                listener.sock.close()


def inside(network: Sandbox, act: Callable[[], T]) -> T:
    """What `act` returns, or raises, in a process that has joined that network."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            join(network)
            result: Any = (act(), None)
        except BaseException as error:
            result = (None, error)
        os.write(writing, pickle.dumps(result))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    value, error = pickle.loads(data)
    if error is not None:
        raise error
    return value
