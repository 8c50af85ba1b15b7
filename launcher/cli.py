"""`egress-launch`: the command line. What it imports is paid before every command: keep it short."""

from __future__ import annotations

import gc
import signal
import sys

from egress.record import TYPE_CHECKING
from launcher import options
from launcher.interrupts import Interrupted, end_with
from launcher.mounts import PlanError
from launcher.process import fill_standard_streams, on_terminal

if TYPE_CHECKING:
    from typing import Any

_FAILED = 125


def main(argv: list[str] | None = None) -> int:
    gc.disable()  # until the command runs: what is imported stays, and looking through it takes milliseconds
    fill_standard_streams()
    words = sys.argv[1:] if argv is None else argv
    ours, command = _split(words)
    from launcher.run import launch

    try:
        values = _values(ours)
        if not command:
            raise PlanError("no command was given", "egress-launch --persona NAME -- COMMAND [ARG]…", status=2)
        code = launch(options.options(values, command))
        return end_with(code) if on_terminal() else code
    except PlanError as error:
        return _complain(str(error), error.hint, error.status)
    except Interrupted as signalled:
        return signalled.code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        return _complain(str(error), "egress doctor", _FAILED)


def _values(words: list[str]) -> dict[str, Any]:
    """argparse takes 6 ms to load, so it is for those who need it: for help, and for mistakes."""
    values = options.read(words)
    if values is not None:
        return values
    from launcher import usage

    return usage.parse(words)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Ours before the first `--`, the command's after it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _complain(message: str, hint: str, status: int) -> int:
    for line in message.splitlines():
        print(f"egress: error: {line}", file=sys.stderr)
    print(f"egress: hint: {hint or 'egress-launch --help'}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
