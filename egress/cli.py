"""`egress`: the command line. Each command is a module; only the one that runs is more than parsed."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from importlib import import_module
from typing import NoReturn

from egress import __version__
from egress.commands.say import Failure, complain
from egress.problems import PolicyError, UnknownPersona

_COMMANDS = ("proxy", "dns", "check", "policy", "settings", "audit", "watch", "attach", "doctor", "users", "ca")


class _Parser(argparse.ArgumentParser):
    """Its commands are of the same kind, and complain as all else does."""

    def error(self, message: str) -> NoReturn:
        raise Failure(message, f"{self.prog} --help")


def main(argv: list[str] | None = None) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # until here it ended us without a word
    try:
        return _obey(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the rest goes when we exit
        return 141


def _obey(words: list[str]) -> int:
    try:
        return _run(_parser(words).parse_args(words))
    except Failure as failure:
        return complain(failure)
    finally:
        if sys.stdout is not None:  # as it is for whoever started us with it closed
            sys.stdout.flush()  # at exit it would be too late to say how that went


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except PolicyError as error:
        raise Failure(str(error), _what_helps(error, args)) from None


def _what_helps(error: PolicyError, args: argparse.Namespace) -> str:
    if isinstance(error, UnknownPersona):
        return "egress policy show"
    if error.problems[0].source.file == "--allow":
        return "write it as --allow host.example or --allow host.example:8443"
    return shlex.join(["egress", "policy", "lint", *getattr(args, "policy", [])])


def _parser(words: list[str]) -> argparse.ArgumentParser:
    parser = _Parser(
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
