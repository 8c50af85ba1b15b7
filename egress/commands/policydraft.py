"""`egress policy draft`: the persona that a session would have needed, from the records it left."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from egress import auditfiles, places
from egress.auditfiles import Logs, Unreadable
from egress.auditread import Entry
from egress.auditselect import Selection, newest_session
from egress.commands.paper import visible
from egress.commands.say import Failure, say
from egress.draft import draft
from egress.sightings import SeenRecords

_NAME = "draft"


def add(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "draft",
        help="a persona that may do what a session did, and nothing else",
        description="A policy with a persona that may do what a session was seen to do, and nothing else;"
        " each line with its reason. Run the session with --observe to see everything that it needs.",
        epilog="example:\n  egress policy draft --last > draft.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    session = parser.add_mutually_exclusive_group(required=True)
    session.add_argument("--session", metavar="ID", help="one run of the gate")
    session.add_argument("--last", action="store_true", help="the newest session")
    parser.add_argument("--persona", metavar="NAME", help="only what this persona did")
    parser.add_argument("--name", metavar="NAME", help=f"what the drafted persona is called (default {_NAME})")
    parser.add_argument(
        "--audit",
        metavar="FILE|DIR",
        action="append",
        default=[],
        help="default $XDG_STATE_HOME/egress/audit.jsonl; repeatable",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    name = args.name or _NAME
    paths = args.audit or [places.audit_log(os.environ)]
    try:
        text = _draft(_logs(args, paths), args, name)
    except Unreadable as error:
        raise Failure(str(error), error.hint) from None
    except ValueError as error:
        raise Failure(str(error), "--name reviewer-draft") from None
    print(text, end="")
    say(f"hint: read it, keep it as a file, and use it: egress-launch --policy FILE --persona {name} -- COMMAND")
    return 0


def _logs(args: argparse.Namespace, paths: list[str]) -> Logs:
    if not args.audit and auditfiles.is_missing(paths[0]):
        raise Failure(f"there is no audit log yet at {paths[0]}", "egress-launch --observe --persona NAME -- COMMAND")
    logs = Logs(paths)
    if not logs.can_be_read_twice:
        raise Failure("the log is read twice, and a pipe can be read once", "put it into a file first")
    return logs


def _draft(logs: Logs, args: argparse.Namespace, name: str) -> str:
    records = SeenRecords()
    selection = Selection(_session(logs, args, records), args.persona)
    text = draft(_entries(logs, selection, records), name)
    for damage in logs.damaged.values():  # a draft of half a session would block the other half
        raise damage
    return text


def _session(logs: Logs, args: argparse.Namespace, records: SeenRecords) -> str:
    """The one that was asked for, if it is there."""
    if args.last:
        found = newest_session(map(records.entries, logs.blocks()), args.persona)
    else:
        entries = (entry for block in logs.blocks() for entry in records.entries(block))
        found = next((entry.session for entry in entries if entry.session == args.session), None)
    if found is None:
        wanted = "no session" if args.last else f"no session {visible(args.session)}"
        raise Failure(f"{wanted} is on record in {', '.join(logs.paths)}", "egress audit --last")
    return found


def _entries(logs: Logs, selection: Selection, records: SeenRecords) -> Iterator[Entry]:
    for block in logs.blocks():
        yield from selection.sift(records.entries(block))
