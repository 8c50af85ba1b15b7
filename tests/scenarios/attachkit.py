"""`egress attach` as people run it."""

from __future__ import annotations

import os
import select
import subprocess

from gateprocess import PATIENCE
from launchkit import Person

started: list[subprocess.Popen[bytes]] = []


class Attached:
    """`egress attach`, up when this returns; `fact` is its line."""

    def __init__(self, person: Person, pid: int, *words: str) -> None:
        self.process = attaching(person, pid, *words)
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], PATIENCE)[0]
        self.fact = os.read(self.process.stdout.fileno(), 4096).decode()
        if not self.fact:
            raise AssertionError(self.process.communicate()[1].decode())

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it said to people."""
        try:
            _, said = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        return self.process.returncode, said.decode()


def attaching(person: Person, pid: int | str, *words: str) -> subprocess.Popen[bytes]:
    ours = ["attach", "--pid", str(pid), "--persona", "p", "--policy", str(person.policy), "--audit", str(person.audit)]
    process = subprocess.Popen(
        [person.installation.python, "-m", "egress.cli", *ours, *words],
        env=person.env,
        cwd=person.project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **person.identity,
    )
    started.append(process)
    return process
