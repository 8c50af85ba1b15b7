"""`egress watch`: what a gate decides, as it happens, and the questions it has, answered with a key.

A terminal of its own, beside the one where the command runs. It watches the youngest gate that can be asked; where
there is none it follows the audit log, and goes over to the next gate when one comes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import closing

from egress import controlsocket, places
from egress.commands.fullscreen import Fullscreen
from egress.commands.paper import Paper, paper_of
from egress.commands.say import Failure
from egress.commands.watchboard import Board
from egress.commands.watchsource import Ended, Gate, Log
from egress.controlsocket import Running

_LOOK = 0.25  # seconds between two looks at a log, and at whether a question may be answered by now
_SEEK = 1.0  # and for another gate
_TAIL = 500
_CHOICES = {"y": "once", "s": "session", "a": "always", "n": "no"}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "watch",
        help="decisions as they happen, and questions to answer",
        description="A view of a running gate for a terminal of its own: its decisions as they happen, and the"
        " connections that --ask holds, to be answered with y (once), s (for this session), a (always) or n (no)."
        " Without a gate that can be asked it follows the audit log.",
        epilog="example:\n  egress watch",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--session", metavar="ID", help="of several gates, this one (default: the youngest)")
    parser.add_argument("--audit", metavar="FILE", help="the log to follow, default $XDG_STATE_HOME/egress/audit.jsonl")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("egress watch needs a terminal", "egress audit --follow")
    if args.session is not None and _find(args.session) is None:
        known = ", ".join(gate.session for gate in controlsocket.running(os.environ)) or "none"
        raise Failure(
            f"no gate of session {args.session!r} can be asked (there are: {known})",
            "a gate can be while it runs with --ui or --ask",
        )
    watch = Watch(args.session, args.audit or places.audit_log(os.environ), paper_of(sys.stdout))
    try:
        with Fullscreen() as screen, closing(watch):
            watch.run(screen)
    except KeyboardInterrupt:  # which is one of the ways it is meant to end
        pass
    return 0


class Watch:
    def __init__(self, session: str | None, log: str, paper: Paper) -> None:
        self._session, self._log, self._paper = session, log, paper
        self._board = Board()
        self._source: Gate | Log = self._open_log()
        self._sought = 0.0

    def run(self, screen: Fullscreen) -> None:
        while not screen.ended:
            self._seek()
            columns, rows = screen.size
            now = time.monotonic()
            screen.draw(self._board.lines(columns, rows, self._paper, now, time.time()))
            waited = self._source.fileno()
            keys = screen.wait(_LOOK, *(() if waited is None else (waited,)))
            if "q" in keys:
                return
            for key in keys:
                self._press(key, time.monotonic())
            self._read()

    def close(self) -> None:
        self._source.close()

    def _read(self) -> None:
        try:
            for news in self._source.read():
                self._board.take(news, time.monotonic())
        except Ended as ended:
            self._board.forget_gate()
            self._change(self._open_log())
            if str(ended):
                self._board.notice = f"egress watch  {ended}"

    def _seek(self) -> None:
        """While it is the log that is followed, look for a gate."""
        if isinstance(self._source, Gate) or time.monotonic() - self._sought < _SEEK:
            return
        self._sought = time.monotonic()
        if found := _find(self._session):
            try:
                gate = Gate(found, _TAIL)
            except OSError:
                return  # it ended just now
            self._change(gate)
            self._board.notice = f"egress watch  {gate.name}"

    def _change(self, source: Gate | Log) -> None:
        self._source.close()
        self._source = source

    def _open_log(self) -> Log:
        self._board.notice = f"egress watch  {self._log}"
        return Log(self._log)

    def _press(self, key: str, now: float) -> None:
        board = self._board
        question = board.armed(now)
        if key in _CHOICES and question is not None:
            self._source.answer(question.id, _CHOICES[key])
        elif key == "b":
            board.blocked_only = not board.blocked_only
        elif key == " ":
            board.hold()
        elif key == "\t":
            board.next_question(now)


def _find(session: str | None) -> Running | None:
    found = controlsocket.running(os.environ)
    return next((gate for gate in found if session in (None, gate.session)), None)
