"""Whoever of a run is killed, and whenever: within seconds nothing of it is left on the host.

    victims    launcher ── helper, warden, [keeper ──] outer bwrap ── inner bwrap ── command
    phases     before     bwrap is about to start: a program in its place waits to become it
               held       bwrap waits before the command: the helper, stopped, never gets to say that it may go on
               released   the command runs and the launcher, stopped, has not got its gate ready
               running    a connection is open through the gate
               ending     the command has ended and the launcher, stopped, does not know

Whatever was stopped for the purpose goes on after the kill.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateprocess import Rules, until
from launchkit import PEOPLE, Person, Tty, children, kill, processes, somebody, tty

pytestmark = pytest.mark.scenario

# Each victim, with the exit code of the launcher, if it is not the victim itself. When the command runs
# already, what is killed beside it does not disturb it, and what is killed above it ends it.
MATRIX = {
    "before": {"launcher": None, "helper": 125, "warden": 0, "keeper": 125, "outer": 125},
    "held": {"launcher": None, "helper": 125, "warden": 0, "keeper": 125, "outer": 125, "inner": 125},
    "released": {
        "launcher": None, "helper": 0, "warden": 0, "keeper": 137, "outer": 137, "inner": 137, "command": 137,
    },
    "running": {
        "launcher": None, "helper": 0, "warden": 0, "keeper": 137, "outer": 137, "inner": 137, "command": 137,
    },
    "ending": {"launcher": None, "helper": 0, "warden": 0},
}  # fmt: skip
MADE = [(PEOPLE[0], False), (PEOPLE[-1], True)]  # with pipes, and on a terminal, which alone has a keeper
Case = tuple[tuple[str, bool], str, str, int | None]
CASES: list[Case] = [
    (made, phase, victim, code)
    for made in MADE
    for phase, victims in MATRIX.items()
    for victim, code in victims.items()
    if made[1] or victim != "keeper"
]


def name(case: Case) -> str:
    (person, on_tty), phase, victim, _ = case
    return f"{victim}-{phase}-{person}-{'terminal' if on_tty else 'pipes'}"


SCRIPT = ": > started; curl -sN http://local.test/ & while [ ! -e end ]; do sleep 0.02; done; exit 0"
LIMIT = 5.0


class Run:
    """A launcher, frozen in one of the phases."""

    def __init__(self, person: Person, terminal: Tty | None, server: socket.socket) -> None:
        self.token = f"token{os.urandom(6).hex()}"
        self._person, self._server = person, server
        self._gate = person.home / "gate"
        self._at_gate = person.home / "at-gate"
        self._frozen: list[int] = []
        self._connection: socket.socket | None = None
        os.mkfifo(self._gate)
        self._pass = os.open(self._gate, os.O_RDWR)
        person.own()
        path = f"{self._shadow()}:{person.env['PATH']}"
        how = {"env": person.env | {"PATH": path}}
        command = ("sh", "-c", SCRIPT, self.token)
        if terminal is not None:
            self.process = terminal.start(person, *command, **how)
        else:
            self.process = person.start(*command, **how, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def _shadow(self) -> Path:
        """A bwrap that waits, once, before it is one; it has no environment."""
        folder = self._person.home / "shadow"
        folder.mkdir()
        real = next(path for path in ("/usr/bin/bwrap", "/bin/bwrap") if os.access(path, os.X_OK))
        wait = f"[ -e {self._at_gate} ] || {{ echo $$ > {self._at_gate}; read line < {self._gate}; }}"
        text = f'#!/bin/sh\n{wait}\nexec {real} "$@"\n'
        (folder / "bwrap").write_text(text)
        (folder / "bwrap").chmod(0o755)
        return folder

    def reach(self, phase: str) -> dict[str, int]:
        """Who is there in that phase."""
        until(lambda: self._at_gate.exists() and self._at_gate.read_text().endswith("\n"))
        family = {"launcher": self.process.pid, "outer": int(self._at_gate.read_text())}
        family["helper"], family["warden"], third = children(self.process.pid)
        if third != family["outer"]:
            family["keeper"] = third
        if phase == "before":
            return family
        if phase == "held":
            self._freeze(family["helper"])
        self._open()
        family["inner"] = self._child(family["outer"])
        if phase == "held":
            until(lambda: "pipe" in Path(f"/proc/{family['inner']}/wchan").read_text())
            return family
        family["command"] = self._child(family["inner"])
        until((self._person.project / "started").exists)
        if phase != "released":
            self._connection = self._server.accept()[0]
        if phase != "running":
            self._freeze(family["launcher"])
        if phase == "ending":
            self.end_command()
            until(lambda: not os.path.exists(f"/proc/{family['inner']}"))
        return family

    def go_on(self) -> None:
        """As it would, had we not meddled."""
        for pid in self._frozen:
            kill(pid, signal.SIGCONT)
        self._open()

    def close(self) -> None:
        if self._connection:
            self._connection.close()
        os.close(self._pass)
        for pid in (self.process.pid, *processes(self.token)):
            kill(pid)
        self.process.wait()

    def left(self) -> list[object]:
        """What there is of it on the host."""
        home = str(self._person.home)
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if home in line]
        files = set(os.listdir(self._person.project)) - {"started", "end"}
        runtime = os.listdir(self._person.home / "runtime")
        return [*processes(self.token).items(), *mounts, *files, *runtime]

    def _child(self, pid: int) -> int:
        until(lambda: children(pid))
        return children(pid)[0]

    def _freeze(self, pid: int) -> None:
        self._frozen.append(pid)
        kill(pid, signal.SIGSTOP)

    def _open(self) -> None:
        os.write(self._pass, b"go on\n")

    def end_command(self) -> None:
        (self._person.project / "end").touch()


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Run, Tty | None]]:
    kind, on_tty = request.param
    with contextlib.ExitStack() as stack:
        person = stack.enter_context(somebody(kind))
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.settimeout(20)
        person.rules(Rules({"local.test": ""}, {"local.test": server.getsockname()[1]}))
        terminal = stack.enter_context(tty()) if on_tty else None
        run = Run(person, terminal, server)
        stack.callback(run.close)
        yield run, terminal


@pytest.mark.parametrize(("made", "phase", "victim", "code"), CASES, indirect=["made"], ids=map(name, CASES))
def test_nothing_is_left(made: tuple[Run, Tty | None], phase: str, victim: str, code: int | None) -> None:
    run, terminal = made
    before = terminal.mode() if terminal else None
    kill(run.reach(phase)[victim])
    deadline = time.monotonic() + LIMIT
    run.go_on()
    if code == 0:
        run.end_command()
    while (left := run.left()) and time.monotonic() < deadline:
        run.process.poll()
        time.sleep(0.01)
    assert not left, "\n".join(map(str, left))
    codes = [-signal.SIGKILL if code is None else code, 137 if code == 125 else code]
    assert run.process.wait() in codes  # bwrap's death may be noticed only when the command could have run
    assert not terminal or terminal.mode() == before
