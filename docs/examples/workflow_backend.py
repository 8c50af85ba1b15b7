"""A backend for an engine that runs shell commands: `run(command, cwd, timeout)`, as `subprocess.run` would.

    python docs/examples/workflow_backend.py reviewer 'git log --oneline | head -3'

The engine chooses what it does without a sandbox. Here that is an error, with what is missing and what mends it;
there is no way on that nobody asked for.
"""

from __future__ import annotations

import subprocess
import sys

from launcher import Box, Sandbox, SandboxError, Settings


class SandboxBackend:
    """One sandbox for each directory that commands are run in, until `close`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._boxes: dict[str, Box] = {}

    @staticmethod
    def is_available() -> bool:
        return bool(Sandbox.available())

    def run(self, command: str, cwd: str, timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
        if cwd not in self._boxes:
            self._boxes[cwd] = Sandbox(self._settings, project=cwd).open()
        done = self._boxes[cwd].run(["sh", "-c", command], timeout=timeout)
        if done.timed_out:
            raise subprocess.TimeoutExpired(command, timeout, done.stdout, done.stderr)
        notes = "".join(f"blocked: {it.host}:{it.port} ({it.reason})\n" for it in done.blocked)
        return subprocess.CompletedProcess(command, done.code, done.stdout, done.stderr + notes.encode())

    def close(self) -> None:
        for box in self._boxes.values():
            box.close()
        self._boxes.clear()


def main(persona: str, command: str) -> int:
    backend = SandboxBackend(Settings(persona=persona))
    try:
        done = backend.run(command, ".")
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    finally:
        backend.close()
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
