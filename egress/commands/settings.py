"""`egress settings`: a persona written down for Claude Code's own sandbox and permission rules.

All files are read and thought through before the first is written. What a person wrote in them stays; see
`egress.agentsettings.merging`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from egress import policysources, projectfile, signpost
from egress.agentsettings import document, memory
from egress.agentsettings.merging import Merged, Misfit, Record, Tree, merge, own
from egress.agentsettings.reach import reach_of
from egress.agentsettings.wanted import (
    AUTO_ALLOW,
    INSISTED,
    LOOSE,
    WIDENING,
    Place,
    leaves_out,
    runs_any_command,
    wanted,
    widens,
)
from egress.commands.options import add_policy_options, persona_of, sources_of
from egress.commands.say import Failure, say
from egress.policy import Persona
from egress.projectfile import ProjectFile, Unusable

_SHARED, _LOCAL, _MEMORY = ".claude/settings.json", ".claude/settings.local.json", "CLAUDE.md"


class Change(NamedTuple):
    """A file as it is, and the text that it should have; None: it should go."""

    file: ProjectFile
    text: str | None

    @property
    def is_one(self) -> bool:
        return self.text != self.file.text

    def make(self) -> None:
        if self.text is not None:
            self.file.replace(self.text)
        else:
            self.file.remove()


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "settings",
        help="write a persona down for Claude Code's own sandbox",
        description="Write a persona into .claude/settings.json and CLAUDE.md: its hosts, files and tools, for Claude"
        " Code's own sandbox and permission rules. What else is in them stays, and --remove takes our part out again."
        " Exit status: 0 done, 1 with --check if something would change.",
        epilog="example:\n  egress settings --persona implementer --dry-run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_policy_options(parser)
    parser.add_argument("--out", metavar="DIR", default=".", help="the project (default: the working directory)")
    parser.add_argument(
        "--local", action="store_true", help="into .claude/settings.local.json, which git is not told of"
    )
    parser.add_argument(
        "--proxy-port", metavar="N", type=_port, help="of a gate on this machine (default: one that runs)"
    )
    parser.add_argument(
        "--exact-hosts", action="store_true", help="without a gate, leave out hosts that rules narrow to some requests"
    )
    parser.add_argument("--inside", action="store_true", help="for an agent that egress-launch runs: tools alone")
    parser.add_argument("--remove", action="store_true", help="take our part out of all the files")
    parser.add_argument("--dry-run", action="store_true", help="print what would change, and change nothing")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if something would")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not os.path.isdir(args.out):
        raise Failure(f"--out {args.out!r} is not a directory", f"mkdir {shlex.quote(args.out)}")
    changes = [change for change in _changes(args) if change.is_one]
    if args.dry_run:
        print("".join(line for change in changes for line in _diff(change)), end="")
    if args.check:
        for change in changes:
            say(f"would change: {change.file.path}")
    elif not args.dry_run:
        for change in changes:
            _guarded(change.make)
            print(change.file.path)
    if not changes:
        say("nothing to change")
    return 1 if changes and args.check else 0


def _changes(args: argparse.Namespace) -> list[Change]:
    if args.remove:
        _refuse_others(args)
        return [*_guarded(lambda: [*_removal(args.out)])]
    persona = persona_of(args, policysources.read(sources_of(args)._replace(persona=None)).policy(args.allow))
    place = _place(args, persona.name)
    _tell_of_place(persona, place)
    return [*_guarded(lambda: [*_writing(args, persona, place)])]


def _guarded(do: Callable[[], Any]) -> Any:
    """Whatever stands in the way is told the same way; nothing was written by then, or one file after another."""
    try:
        return do()
    except Unusable as error:
        raise Failure(
            str(error), "end what works in the project (a sandbox holds these files), and look at it"
        ) from None
    except document.NotJson as error:
        raise Failure(str(error), "mend it by hand; nothing was changed") from None


def _writing(args: argparse.Namespace, persona: Persona, place: Place) -> Iterator[Change]:
    file = projectfile.read(args.out, _LOCAL if args.local else _SHARED)
    other = projectfile.read(args.out, _SHARED if args.local else _LOCAL)
    _tell_of_other(other, persona.name)
    settings = document.parse(file.text or "", file.path)
    values = wanted(persona, place)
    merged = _merged(file, settings, values, persona.name)
    if not place.inside and not runs_any_command(persona) and _at(settings, AUTO_ALLOW) is None:
        _tell_of_commands(file)
    _tell_of_replaced(file, merged)
    _tell_of_own(file, merged.settings, values)
    yield _settled(file, settings, merged.settings)
    told = projectfile.read(args.out, _MEMORY)
    yield Change(told, _remembered(told, lambda text: memory.put(text, memory.part_of(persona))))


def _removal(top: str) -> Iterator[Change]:
    for name in (_SHARED, _LOCAL):
        file = projectfile.read(top, name)
        settings = document.parse(file.text or "", file.path)
        merged = _merged(file, settings, {}, "").settings
        gone = not merged and _record(file, settings).created
        yield Change(file, None) if gone else _settled(file, settings, merged)
    told = projectfile.read(top, _MEMORY)
    rest = _remembered(told, memory.take_out)
    yield Change(told, told.text if rest == (told.text or "") else rest or None)


def _merged(file: ProjectFile, settings: Tree, values: Tree, persona: str) -> Merged:
    try:
        return merge(settings, values, persona, INSISTED, created=file.text is None)
    except Misfit as error:
        raise document.NotJson(f"{file.path}: {error}") from None


def _record(file: ProjectFile, settings: Tree) -> Record:
    try:
        return Record.of(settings)
    except Misfit as error:
        raise document.NotJson(f"{file.path}: {error}") from None


def _settled(file: ProjectFile, before: Tree, after: Tree) -> Change:
    return Change(file, document.render(after, file.text or "") if document.changed(after, before) else file.text)


def _remembered(file: ProjectFile, edit: Callable[[str], str]) -> str:
    try:
        return edit(file.text or "")
    except memory.BadMarks as error:
        raise Unusable(f"{file.path}: {error}") from None


def _place(args: argparse.Namespace, persona: str) -> Place:
    if args.inside and (args.proxy_port or args.exact_hosts):
        raise Failure("--inside has no use for --proxy-port or --exact-hosts", "egress settings --help")
    port = args.proxy_port or (None if args.inside else _running(persona))
    return Place(_protected(), port, args.inside, args.exact_hosts)


def _running(persona: str) -> int | None:
    """The port of a gate for this persona."""
    found = signpost.standing(os.environ)
    return next((one.port for one in found if one.persona == persona and one.is_local), None)


def _protected() -> tuple[str, ...]:
    from launcher import protect  # the one list of them; a table, and nothing is launched

    return (*(guard.path for guard in protect.PROJECT), *(f".git/{guard.path}" for guard in protect.GIT))


def _tell_of_place(persona: Persona, place: Place) -> None:
    if place.inside or place.port is not None:
        return
    say(f"no gate of persona {persona.name} runs here, so httpProxyPort and socksProxyPort are left out")
    say(f"hint: egress proxy --persona {persona.name} --listen 127.0.0.1:3128, and then this again")
    narrowed = ", ".join(map(str, reach_of(persona).narrowed))
    if narrowed and leaves_out(place):
        say(f"left out, since only a gate can tell their requests apart: {narrowed}")
    elif narrowed and widens(place):
        say(f"warning: allowed with all requests, since only a gate can tell them apart: {narrowed}")
        say("hint: --exact-hosts leaves them out")


def _tell_of_commands(file: ProjectFile) -> None:
    say("note: commands in the sandbox run without asking, whatever the rules for Bash say")
    say(f"hint: write false for {'.'.join(AUTO_ALLOW)} in {file.path} to be asked; it stays")


def _tell_of_replaced(file: ProjectFile, merged: Merged) -> None:
    for path, theirs, ours in merged.replaced:
        words = f"{'.'.join(path)} was {json.dumps(theirs)}, which {INSISTED[path]}"
        say(f"warning: {file.path}: {words}; it is {json.dumps(ours)} until `egress settings --remove`")


def _tell_of_own(file: ProjectFile, settings: Tree, values: Tree) -> None:
    for places in WIDENING:
        if more := [str(entry) for entry in own(settings, places) if entry not in (_at(values, places) or ())]:
            say(f"note: {file.path}: {'.'.join(places)} also has, from you: {', '.join(more)}")
    for path, words in LOOSE.items():
        if _at(settings, path):
            say(f"warning: {file.path}: {'.'.join(path)} is yours and stays, but {words}")


def _tell_of_other(file: ProjectFile, persona: str) -> None:
    """Claude Code reads both files, and adds their lists up."""
    theirs = _record(file, document.parse(file.text or "", file.path)).persona
    if theirs and theirs != persona:
        say(f"warning: {file.path} has persona {theirs}, and what either allows is allowed")
        say("hint: egress settings --remove takes both out")


def _at(settings: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def _refuse_others(args: argparse.Namespace) -> None:
    given = vars(args)
    others = ("persona", "policy", "allow", "local", "proxy_port", "exact_hosts", "inside")
    if words := [f"--{name.replace('_', '-')}" for name in others if given[name]]:
        raise Failure(
            f"--remove takes everything out, and has no use for {', '.join(words)}", "egress settings --remove"
        )


def _diff(change: Change) -> Iterator[str]:
    name = change.file.path
    before, after = (text.splitlines(keepends=True) for text in (change.file.text or "", change.text or ""))
    for line in difflib.unified_diff(before, after, name, name if change.text is not None else os.devnull):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected a number such as 3128")
    return int(text)
