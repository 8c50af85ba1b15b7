"""`egress`: the command line. Each command is a module; only the one that runs is more than parsed."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from egress import __version__
from egress.commands.say import Failure, complain
from egress.problems import PolicyError

_COMMANDS = ("proxy", "check", "policy", "users")


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        args = _parser(words).parse_args(words)
        return int(args.run(args))
    except Failure as failure:
        return complain(failure)
    except PolicyError as error:
        return complain(Failure(str(error), "egress policy lint"))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141


def _parser(words: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="egress",
        description="Give a program exactly the internet its persona may use, and nothing else.",
        epilog="example:\n  egress check github.com --persona reviewer",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"egress {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in _needed(words):
        import_module(f"egress.commands.{name}").add(commands)
    return parser


def _needed(words: list[str]) -> tuple[str, ...]:
    """The command that was asked for, or all of them for help: importing one does not pay for the rest."""
    first = next((word for word in words if not word.startswith("-")), "")
    return (first,) if first in _COMMANDS else _COMMANDS


if __name__ == "__main__":
    sys.exit(main())
