"""`egress audit`: the log as a person reads it, or its records for a program."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from datetime import UTC, datetime

from egress import auditfiles
from egress.advice import words_for
from egress.auditfiles import Logs, Unreadable
from egress.auditread import Records
from egress.auditselect import Selection, newest_session
from egress.auditsummary import Row, Summary
from egress.commands import auditcsv
from egress.commands.auditfeed import Feed, follow
from egress.commands.auditoptions import TOP, add_options, path_to_follow, paths_of, selection_of
from egress.commands.audittable import allowed_section, blocked_section
from egress.commands.paper import paper_of, visible
from egress.commands.say import Failure, say
from egress.model import Verdict

_PAUSE = 0.2  # seconds between two looks at a log that is followed


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "audit",
        help="show what was blocked and what was allowed",
        description="What was blocked, why, and the line that would allow it; then what was allowed."
        " Rotated and compressed logs are read with the one they come from.",
        epilog="example:\n  egress audit --blocked --since 2h",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        return _follow(args) if args.follow else _read(args)
    except Unreadable as error:
        raise Failure(str(error), error.hint) from None


def _follow(args: argparse.Namespace) -> int:
    path, selection = path_to_follow(args), selection_of(args)
    if args.last and not auditfiles.is_missing(path):
        selection = _of_newest(selection, Logs([path]))
    try:
        follow(path, selection, args.json, lambda: time.sleep(_PAUSE))
    except KeyboardInterrupt:  # which is how it is meant to end
        pass
    except BrokenPipeError:
        raise
    except OSError as error:
        raise auditfiles.unreadable(path, error) from None
    return 0


def _read(args: argparse.Namespace) -> int:
    paths = paths_of(args)
    if not args.audit and auditfiles.is_missing(paths[0]):
        say(f"there is no audit log yet at {paths[0]}")
        say("hint: the gate begins one when it runs, as in: egress-launch --persona reviewer -- COMMAND")
        return 0
    logs = Logs(paths)
    selection = _of_newest(selection_of(args), logs) if args.last else selection_of(args)
    found = _show_records(logs, selection) if args.json else _show_summary(args, logs, selection)
    if not found and not logs.damaged:
        everything = selection == Selection()
        say(f"{'nothing is on record' if everything else 'no record matches'} in {', '.join(paths)}")
    return _status(logs)


def _of_newest(selection: Selection, logs: Logs) -> Selection:
    if not logs.can_be_read_twice:
        raise Failure("--last reads the log twice, and a pipe can be read once", "put it into a file first")
    newest = newest_session(map(Records().entries, logs.blocks()), selection.persona)
    return selection._replace(session=newest)


def _show_records(logs: Logs, selection: Selection) -> bool:
    feed = Feed(selection, as_json=True)
    for block in logs.blocks():
        feed.show(block)
    _warn(feed.records.torn, lost=0)
    return feed.count > 0


def _show_summary(args: argparse.Namespace, logs: Logs, selection: Selection) -> bool:
    summary, records = Summary(), Records()
    for block in logs.blocks():
        summary.add(selection.sift(records.entries(block)))
    blocked = [] if args.verdict is Verdict.ALLOW else summary.blocked
    allowed = [] if args.verdict is Verdict.DENY else summary.allowed
    if args.csv:
        auditcsv.write(blocked[: args.top or None], allowed[: args.top or None], sys.stdout)
    elif blocked or allowed:
        _print_table(args, selection, blocked, allowed)
        _tell_weaker(summary)
    _warn(records.torn, summary.lost)
    return bool(blocked or allowed)


def _print_table(args: argparse.Namespace, selection: Selection, blocked: list[Row], allowed: list[Row]) -> None:
    paper, now = paper_of(sys.stdout), datetime.now(UTC)
    top = TOP if args.top is None else args.top
    parts = [f"session {visible(selection.session)}"] if selection.session is not None else []
    if args.verdict is not Verdict.ALLOW:
        parts.append("\n".join(blocked_section(blocked, top, paper, now)))
    if args.verdict is not Verdict.DENY:
        parts.append("\n".join(allowed_section(allowed, top, paper, now)))
    print("\n\n".join(parts))
    _hint(blocked)


def _tell_weaker(summary: Summary) -> None:
    """What is not in the log may have gone another way, where the walls were not whole."""
    for backend, lacks in summary.weaker:
        say(f"warning: of these, some are by backend {visible(backend)}, without {visible(', '.join(lacks))}")


def _hint(blocked: list[Row]) -> None:
    """How to allow the first of those for good that a word would allow."""
    for row in blocked:
        words = [] if row.is_many or not row.persona else words_for(row.host, row.ports, row.reason)
        if words:
            asked = shlex.join(["egress", "check", words[0], "--persona", visible(row.persona)])
            say(f"hint: --allow is for one run; `{asked}` shows the line to keep, and its file")
            return


def _warn(torn: int, lost: int) -> None:
    """What is missing from the answer."""
    if torn:
        say(f"warning: left out {torn:,} {'line that is' if torn == 1 else 'lines that are'} no whole record")
    if lost:
        say(f"warning: {lost:,} records were lost while the gate could not write its log")


def _status(logs: Logs) -> int:
    for damage in logs.damaged.values():
        say(f"error: {damage}")
        say(f"hint: {damage.hint}")
    return 2 if logs.damaged else 0
