"""Records of the log one by one: as they were stored, or as a line each, at once or as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime

from egress.auditfiles import Logs, Unreadable
from egress.auditfollow import Tail
from egress.auditread import Entry, Records
from egress.auditselect import Selection, Sieve
from egress.commands.paper import Ink, Paper, paper_of, visible
from egress.commands.say import Failure, say
from egress.model import Host, Target, Verdict
from egress.refusals import Reason


class Feed:
    """Writes the records that are wanted, whichever blocks they come in."""

    def __init__(self, selection: Selection, as_json: bool) -> None:
        self.records = Records()
        self.count = 0
        self._sieve = Sieve(selection)
        self._write = _write_as_stored if as_json else _write_decision
        self._paper = paper_of(sys.stdout)

    def show(self, block: bytes) -> None:
        for line, entry in self.records.pairs(block):
            if self._sieve.takes(entry):
                self._write(line, entry, self._paper)
                self.count += 1


def follow(path: str, selection: Selection, as_json: bool, pause: Callable[[], object]) -> None:
    """Until Ctrl-C. What there was before is shown from `since` on, where that is given."""
    feed = Feed(selection, as_json)
    tail = Tail(path, from_start=bool(selection.since))
    try:
        if tail.is_waiting:
            say(f"waiting for {path}")
        if selection.since:
            _show_rotated(path, feed)
        while True:
            while block := tail.read():
                feed.show(block)
            sys.stdout.flush()
            pause()
    finally:
        tail.close()


def line_of(entry: Entry, paper: Paper) -> str:
    """`06:00:00 blocked evil.example:443 (reviewer, connect, /usr/bin/curl): not_listed`"""
    allowed = entry.verdict == Verdict.ALLOW
    verdict = paper.paint("allowed", Ink.GREEN) if allowed else paper.paint("blocked", Ink.RED)
    program = entry.process and (entry.process.exe or entry.process.command)
    who = ", ".join(visible(word) for word in (entry.persona, entry.via, program) if word)
    why = entry.rule if allowed and entry.rule and entry.reason == Reason.LISTED else entry.reason
    return f"{_clock(entry.ts)} {verdict} {visible(_target(entry))} ({who}): {visible(why)}"


def _target(entry: Entry) -> str:
    return entry.host or "-" if entry.port is None else str(Target(Host(entry.host), entry.port))


def _clock(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError):
        return visible(moment)


def _show_rotated(path: str, feed: Feed) -> None:
    try:
        logs = Logs([path])
    except Unreadable:  # there is none yet, or the tail has said so
        return
    logs.paths = [each for each in logs.paths if each != path]
    for block in logs.blocks():
        feed.show(block)
    for damage in logs.damaged.values():
        raise Failure(str(damage), damage.hint)


def _write_decision(_: bytes, entry: Entry, paper: Paper) -> None:
    if entry.event == "decision":
        print(line_of(entry, paper))


def _write_as_stored(line: bytes, _: Entry, paper: Paper) -> None:
    sys.stdout.buffer.write((line if paper.width is None else _for_terminal(line)) + b"\n")


def _for_terminal(line: bytes) -> bytes:
    """The same value, where the line as it is would act on the terminal that it is shown on."""
    if line.isascii() and line.decode().isprintable():
        return line
    try:
        return json.dumps(json.loads(line), separators=(",", ":")).replace("\x7f", r"\u007f").encode()
    except (ValueError, RecursionError):  # a part of it that is not decoded here is not sound
        return visible(line.decode("ascii", "backslashreplace")).encode()
