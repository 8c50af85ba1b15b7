"""`egress doctor`: what works on this machine, and the command that mends what does not."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from egress.commands.say import say

if TYPE_CHECKING:
    from launcher.doctor import Result

WIDTH = 80
_INDENT = "    "


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="try what sandboxes need on this machine, and say how to mend what fails",
        description="Try what sandboxes need on this machine, and say how to mend what fails."
        " Exit status: 0 egress-launch can run here, 1 it cannot.",
        epilog="example:\n  egress doctor",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from launcher import doctor  # the one command about the other half of the house

    results = list(doctor.examine())
    is_well = doctor.can_run(results)
    print(_as_json(results, is_well) if args.json else "\n".join(as_text(results)))
    if not args.json:
        say("egress-launch can run here" if is_well else "egress-launch cannot run here")
    return 0 if is_well else 1


def as_text(results: Sequence[Result]) -> Iterator[str]:
    """A table, and below it the commands, which are not wrapped: they are for copying."""
    names = max(len(result.name) for result in results)
    margin = names + len("  warn  ")
    for name, _, finding in results:
        first, *more = textwrap.wrap(finding.what, WIDTH - margin, break_on_hyphens=False) or [""]
        yield f"{name:{names}}  {finding.status:4}  {first}".rstrip()
        yield from (f"{'':{margin}}{line}" for line in more)
    for hint, sufferers in _hints(results).items():
        yield f"\nto mend {', '.join(sufferers)}:"
        yield from (f"{_INDENT}{line}" for line in hint.splitlines())


def _hints(results: Sequence[Result]) -> dict[str, list[str]]:
    """One cure may mend many; each is told once."""
    cures: dict[str, list[str]] = {}
    for name, _, finding in results:
        if finding.hint:
            cures.setdefault(finding.hint, []).append(name)
    return cures


def _as_json(results: Sequence[Result], is_well: bool) -> str:
    checks = [{"name": name, "needed": needed, **finding._asdict()} for name, needed, finding in results]
    return json.dumps({"ok": is_well, "checks": checks}, ensure_ascii=False)
