"""What was refused to which command, as the log says it while they run.

The log names the program behind a refusal where it was found; its family is the command's. What belongs to
nobody that is known (the program had ended by then, or has left its family) goes to all commands that run at
the time, without a program: it was in their sandbox, and maybe theirs.
"""

from __future__ import annotations

from msgspec import UNSET

from egress.auditrecords import DecisionRecord, Process, Record
from egress.model import Verdict, Via
from egress.processes import Sandbox
from launcher import hostfamily
from launcher.hostwords import Denial, Program

_MOST = 100  # of one command: they go into one packet


class Denials:
    def __init__(self, sandbox: int, entered: set[int]) -> None:
        """`entered` has the commands that run, and is kept here."""
        self.inside = Sandbox(sandbox, entered)
        self._sandbox, self._entered = sandbox, entered
        self._found: dict[int, list[Denial]] = {}

    def follow(self, pid: int) -> None:
        self._entered.add(pid)
        self._found[pid] = []

    def leave(self, pid: int) -> list[Denial]:
        self._entered.discard(pid)
        return self._found.pop(pid, [])

    def inside_is_ending(self) -> bool:
        """Whether commands end because their sandbox does."""
        return hostfamily.is_exiting(self._sandbox)

    def read(self, record: Record) -> None:
        """For the log's subscription. A name that was refused is followed by its connection, which counts."""
        if not isinstance(record, DecisionRecord) or record.verdict is not Verdict.DENY or record.via is Via.DNS:
            return
        process = None if record.process is UNSET else record.process
        owners = self._owners(process)
        whose = owners or self._found.keys()
        program = _program(process) if owners and process else None
        for pid in whose:
            if len(self._found[pid]) < _MOST:
                self._found[pid].append(Denial(record.host, record.port, record.reason, program))

    def _owners(self, process: Process | None) -> set[int]:
        if process is None or not self._found:
            return set()
        return self._found.keys() & hostfamily.owners(process.pid, self.inside)


def _program(process: Process) -> Program:
    return Program(process.pid, process.exe or "", process.command or "")
