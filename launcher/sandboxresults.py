"""What comes of a command in a sandbox, and what can go wrong with it."""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """The program that wanted a connection: its number inside, its file, the beginning of its command line."""

    pid: int
    exe: str
    command: str


class Blocked(NamedTuple):
    """A connection that was refused. `reason` is a word of the log's vocabulary, such as `not_listed`.

    `process` is None where it cannot be told; then it was somebody in the sandbox while the command ran.
    """

    host: str
    port: int | None
    reason: str
    process: Program | None = None


class Done(NamedTuple):
    """A command that has ended. `code` is its exit code, or minus the signal that killed it."""

    argv: tuple[str, ...]
    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    blocked: tuple[Blocked, ...] = ()
    timed_out: bool = False
    truncated: bool = False  # it wrote more than is kept
    sandboxed: bool = True
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.timed_out

    def check(self) -> Done:
        """Itself, if all is well."""
        if not self.ok:
            raise CommandFailed(self)
        return self


class Problem(NamedTuple):
    what: str
    hint: str


class Availability:
    """Whether sandboxes can be made here: true or false, and why not, with the command that mends it."""

    __slots__ = ("problems",)

    def __init__(self, problems: tuple[Problem, ...] = ()) -> None:
        self.problems = problems

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        return f"Availability({self.problems!r})"


class SandboxError(Exception):
    """`hint` is what would help, mostly a command."""

    def __init__(self, message: str, hint: str = "", status: int = 125) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status  # the exit code that egress-launch would have

    def __str__(self) -> str:
        return f"{self.args[0]} (hint: {self.hint})" if self.hint else str(self.args[0])


class SandboxEnded(SandboxError):
    """It is not there any more, and with it went all of its commands."""


class CommandNotStarted(SandboxError):
    """Its program, or its directory, is not there inside, or may not be used."""


class ExcludedCommand(SandboxError):
    """It is on the list of those that are not for the sandbox, and was not allowed outside of it."""


class CommandFailed(SandboxError):
    """For who asked to be told by an exception. `done` has everything else."""

    def __init__(self, done: Done) -> None:
        how = "was ended: its time was up" if done.timed_out else f"ended with {done.code}"
        super().__init__(f"{done.argv[0]!r} {how}", "see .done.stderr and .done.blocked", max(done.code, 1))
        self.done = done
