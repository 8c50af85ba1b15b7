"""`egress policy`: the rules in force, and what is wrong or doubtful in the files they come from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence

from egress import policysources
from egress.commands import policydraft, policyimport
from egress.commands.options import add_policy_options, persona_of, sources_of, tell_of_remarks
from egress.commands.say import say
from egress.foreign.translation import Severity
from egress.lint import lint
from egress.model import Host, Source, Target
from egress.policy import Fixed, Persona
from egress.policybook import Book
from egress.problems import PolicyError, Problem
from egress.rules import Rule
from egress.ruletext import as_json, denial_as_json, ports_of, terms_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "policy",
        help="show the rules in force, or look for mistakes in them",
        description="Show the rules in force, or look for mistakes in them.",
        epilog="example:\n  egress policy show --persona reviewer",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_show(actions)
    _add_lint(actions)
    policydraft.add(actions)
    policyimport.add(actions)


def _add_show(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "show",
        help="what a persona may reach, each line with its place",
        description="What a persona may reach, each line with its place; without --persona, which personas there are.",
        epilog="example:\n  egress policy show --persona reviewer",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_policy_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON value")
    parser.set_defaults(run=run_show)


def _add_lint(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "lint",
        help="errors and doubtful lines, as a compiler tells them",
        description="Errors and doubtful lines of the given files, read over the others, or of everything in force."
        " Exit status: 0 no errors, 1 errors (with --strict, or warnings).",
        epilog="example:\n  egress policy lint --strict",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="*")
    parser.add_argument("--strict", action="store_true", help="take warnings for errors")
    parser.set_defaults(run=run_lint)


def run_lint(args: argparse.Namespace) -> int:
    try:
        book = policysources.read(policysources.locate(args.files))
        warnings = lint(book, args.files or None)
    except PolicyError as error:
        _report(error.problems, "error")
        return 1
    for remark in book.remarks:
        if remark.severity is Severity.NOTE and (not args.files or remark.source.file in args.files):
            print(f"{remark.source}: note: {remark.message}")
    _report(warnings, "warning")
    return 1 if warnings and args.strict else 0


def run_show(args: argparse.Namespace) -> int:
    sources = sources_of(args)._replace(persona=None)  # an unknown one is told with the known ones
    book = policysources.read(sources)
    policy = book.policy(sources.allow)
    if args.persona is None:
        print(_personas_as_json(book) if args.json else _personas_as_text(book))
        return 0
    persona = persona_of(args, policy)
    tell_of_remarks(policy, (persona.name,))
    print(_as_json(persona, book) if args.json else _as_text(persona, book))
    return 0


def _report(problems: Sequence[Problem], noun: str) -> None:
    for problem in problems:
        print(f"{problem.source}: {noun}: {problem.message}")
    say(f"{len(problems) or 'no'} {noun}{'' if len(problems) == 1 else 's'}")


def _descriptions(book: Book) -> dict[str, str]:
    """Without putting the personas together: there may be many, of many rules."""
    return {
        name: next((profile.description for profile in book.lineage(name) if profile.description), "")
        for name in book.personas
    }


def _personas_as_text(book: Book) -> str:
    return _table((name, words) for name, words in _descriptions(book).items())


def _personas_as_json(book: Book) -> str:
    return json.dumps(
        [
            {"persona": name, "description": words, "source": str(book.personas[name].source)}
            for name, words in _descriptions(book).items()
        ]
    )


def _as_text(persona: Persona, book: Book) -> str:
    rows = [
        *(("host", host, _address(fixed), str(source), "") for host, (fixed, source) in book.hosts.items()),
        *(("allow", *_row(rule, ports_of(rule))) for rule in persona.allow),
        *(("deny", *_row(rule, "any" if rule.all_ports else ports_of(rule))) for rule in persona.deny),
    ]
    head = [f"{persona.name}: {persona.description}", f"env: {' '.join(persona.env) or 'none'}", *_room(persona)]
    return "\n".join([*head, _table(rows) or "allow  nothing"])


def _room(persona: Persona) -> Iterator[str]:
    """What it says of its files, its tools and its walls, a line each."""
    said = {
        **{f"filesystem {name}": paths for name, paths in persona.filesystem._asdict().items()},
        **{f"tools {name}": rules for name, rules in persona.tools._asdict().items()},
        **{f"sandbox {name}": value for name, value in persona.walls._asdict().items()},
    }
    return (f"{name}: {value if isinstance(value, str) else ', '.join(value)}" for name, value in said.items() if value)


def _row(rule: Rule, ports: str) -> tuple[str, ...]:
    return str(rule.pattern), ports, str(rule.source), terms_of(rule)


def _address(fixed: Fixed) -> str:
    return fixed.ip if fixed.port is None else str(Target(Host(fixed.ip), fixed.port))


def _as_json(persona: Persona, book: Book) -> str:
    return json.dumps(
        {
            "persona": persona.name,
            "description": persona.description,
            "env": persona.env,
            "filesystem": persona.filesystem._asdict(),
            "tools": persona.tools._asdict(),
            "sandbox": persona.walls._asdict(),
            "hosts": [_host(host, fixed, source) for host, (fixed, source) in book.hosts.items()],
            "allow": [as_json(rule) for rule in persona.allow],
            "deny": [denial_as_json(rule) for rule in persona.deny],
        }
    )


def _host(host: str, fixed: Fixed, source: Source) -> dict[str, str | int | None]:
    return {"host": host, "ip": fixed.ip, "port": fixed.port, "source": str(source)}


def _table(rows: Iterable[Sequence[str]]) -> str:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
