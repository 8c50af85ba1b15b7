"""The options of `egress audit`, and what they ask for."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from egress import places
from egress.auditselect import Selection, parse_moment
from egress.commands.say import Failure
from egress.model import Verdict
from egress.rules import Pattern, parse_pattern

TOP = 30

T = TypeVar("T")


def add_options(parser: argparse.ArgumentParser) -> None:
    _add_choice(parser)
    _add_form(parser)
    parser.add_argument(
        "--audit",
        metavar="FILE|DIR",
        action="append",
        default=[],
        help="default $XDG_STATE_HOME/egress/audit.jsonl; repeatable",
    )


def selection_of(args: argparse.Namespace) -> Selection:
    """All but `--last`, for which the log must be read."""
    pattern, port = args.host or (None, None)
    return Selection(args.session, args.persona, args.since or "", args.until or "", pattern, port, args.verdict)


def paths_of(args: argparse.Namespace) -> list[str]:
    return args.audit or [places.audit_log(os.environ)]


def path_to_follow(args: argparse.Namespace) -> str:
    """The one log there is to follow."""
    if args.csv or args.top is not None or args.until:
        raise Failure("--follow shows records as they come", "leave out --csv, --top and --until")
    path, *more = paths_of(args)
    if more or os.path.isdir(path):
        raise Failure("--follow reads one log", "name it with --audit FILE")
    return path


def _add_choice(parser: argparse.ArgumentParser) -> None:
    verdict = parser.add_mutually_exclusive_group()
    verdict.add_argument(
        "--blocked", dest="verdict", action="store_const", const=Verdict.DENY, help="only what was refused"
    )
    verdict.add_argument(
        "--allowed", dest="verdict", action="store_const", const=Verdict.ALLOW, help="only what was let through"
    )
    session = parser.add_mutually_exclusive_group()
    session.add_argument("--session", metavar="ID", help="one run of the gate")
    session.add_argument("--last", action="store_true", help="the newest session")
    parser.add_argument("--persona", metavar="NAME", help="what this persona asked for")
    parser.add_argument(
        "--host", metavar="PATTERN", type=_typed(_pattern), help="example.com, '*.example.com' or example.com:22"
    )
    parser.add_argument("--since", metavar="WHEN", type=_typed(_moment), help="30m, 2h or 3d ago, or 2026-11-18T06:00")
    parser.add_argument("--until", metavar="WHEN", type=_typed(_moment), help="up to then")


def _add_form(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top", metavar="N", type=_typed(_number), help=f"so many rows of each kind, 0 for all (default {TOP})"
    )
    parser.add_argument("--follow", action="store_true", help="decisions as they happen, until Ctrl-C")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the records themselves, one JSON object per line")
    form.add_argument("--csv", action="store_true", help="the rows of the tables, for a spreadsheet")


def _typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """For argparse, which keeps the words of no other error."""

    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument


def _pattern(text: str) -> tuple[Pattern, int | None]:
    return parse_pattern(text)


def _moment(text: str) -> str:
    return parse_moment(text, datetime.now(UTC))


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(f"{text!r} is not a number of rows")
    return int(text)
