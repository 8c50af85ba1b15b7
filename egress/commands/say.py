"""How the commands speak: facts to stdout, everything else to stderr with our name in front."""

from __future__ import annotations

import sys


class Failure(Exception):
    """What happened and why, and the command that helps. Caught once, in `cli.main`."""

    def __init__(self, message: str, hint: str, code: int = 2) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


def say(message: str) -> None:
    for line in message.splitlines():
        print(f"egress: {line}", file=sys.stderr, flush=True)  # this is where commands print


def complain(failure: Failure) -> int:
    say(f"error: {failure.message}")
    say(f"hint: {failure.hint}")
    return failure.code
