"""`egress-launch --help`, and what is wrong with its words: argparse, for when there is something to explain."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from egress import __version__
from launcher.mounts import PlanError
from launcher.options import GROUPS, Word


def parse(words: list[str]) -> dict[str, Any]:
    """As `options.read`; what it cannot read is explained, and ends here."""
    return vars(parser().parse_args(words))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        forgotten = "unrecognized arguments" in message and not message.partition(": ")[2].startswith("-")
        hint = "put -- before the command: egress-launch --persona NAME -- COMMAND [ARG]…"
        raise PlanError(message, hint if forgotten else "egress-launch --help", status=2)


def parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="egress-launch",
        usage="egress-launch --persona NAME [options] -- COMMAND [ARG]…",
        description="Run a command in a sandbox that can reach its persona's hosts, and nothing else.",
        epilog="example:\n  egress-launch --persona implementer -- claude",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"egress {__version__}")
    for title, words in GROUPS.items():
        group = made.add_argument_group(title)
        for word in words:
            _add(group, word)
    return made


def _add(group: argparse._ArgumentGroup, word: Word) -> None:
    if not word.metavar:
        group.add_argument(word.name, action="store_true", help=word.help)
    elif word.many:
        group.add_argument(
            word.name, metavar=word.metavar, action="append", default=[], help=f"{word.help}; repeatable"
        )
    elif word.choices:
        group.add_argument(word.name, choices=word.choices, default=word.default, help=word.help)
    else:
        group.add_argument(word.name, metavar=word.metavar, default=word.default, help=word.help)
