"""`egress check`: what the gate would answer, and which line of which file makes it so.

It asks the same functions as the gate and looks nothing up: a name's addresses are judged only where
the policy itself gives them, as a literal or under `hosts:`.
"""

from __future__ import annotations

import argparse
import json
from typing import NamedTuple

from egress import policysources
from egress.commands.advice import is_private
from egress.commands.options import add_policy_options, persona_of, sources_of
from egress.commands.ruletext import as_word, as_yaml, terms_of
from egress.commands.say import say
from egress.model import Candidate, Decision, Target, Verdict
from egress.names import Malformed, as_address
from egress.policy import Listeners, Persona, Policy, vet
from egress.policybook import Book
from egress.refusals import TABLE, Reason, Refused
from egress.rules import parse_target


class Answer(NamedTuple):
    asked: str  # the target, or what was typed where it is none
    target: Target | None
    decision: Decision
    detail: str = ""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="say whether a persona may reach a host, and why",
        description="Say whether a persona may reach a host, for what reason and by which rule."
        " Exit status: 0 allowed, 1 denied, 2 not answered.",
        epilog="example:\n  egress check github.com:443 --persona reviewer",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="HOST[:PORT]|URL", help="port 443 where none is given")
    add_policy_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    sources = sources_of(args)._replace(persona=None)  # an unknown one is told with the known ones
    book = policysources.read(sources)
    policy = book.policy(sources.allow)
    persona = persona_of(args, policy)
    answer = _judge(args.target, persona, policy)
    print(_as_json(answer, persona) if args.json else _as_text(answer, persona))
    if not answer.decision.allowed:
        _advise(answer, persona, book, sources)
    return 0 if answer.decision.allowed else 1


def _judge(text: str, persona: Persona, policy: Policy) -> Answer:
    try:
        target = parse_target(text)
    except Malformed as error:
        return Answer(text[:300], None, Decision(Verdict.DENY, Reason.MALFORMED_HOST), str(error))
    decision = persona.decide(target)
    known = _known_addresses(target, policy)
    try:
        if decision.allowed and decision.rule and known:
            vet(known, decision.rule, Listeners())
    except Refused as refused:
        decision = Decision(Verdict.DENY, refused.reason, decision.rule)
        return Answer(str(target), target, decision, refused.detail)
    return Answer(str(target), target, decision)


def _known_addresses(target: Target, policy: Policy) -> list[Candidate]:
    if fixed := policy.hosts.get(target.host):
        return [Candidate(fixed.ip, fixed.port or target.port)]
    return [Candidate(target.host, target.port)] if as_address(target.host) else []


def _sentence(answer: Answer, persona: Persona) -> str:
    return TABLE[answer.decision.reason].sentence.format(target=_visible(answer.asked), persona=persona.name)


def _visible(text: str) -> str:
    return text if text.isascii() and text.isprintable() else ascii(text)


def _as_text(answer: Answer, persona: Persona) -> str:
    decision = answer.decision
    lines = [
        f"{decision.verdict} {_visible(answer.asked)}",
        f"reason: {decision.reason}: {_sentence(answer, persona)}",
        f"rule: {decision.rule or 'none'}",
    ]
    if decision.allowed and decision.rule and (terms := terms_of(decision.rule)):
        lines.append(f"terms: {terms}")
    return "\n".join(lines)


def _as_json(answer: Answer, persona: Persona) -> str:
    target, decision = answer.target, answer.decision
    return json.dumps(
        {
            "persona": persona.name,
            "asked": answer.asked,
            "host": target and target.host,
            "port": target and target.port,
            "verdict": decision.verdict,
            "reason": decision.reason,
            "sentence": _sentence(answer, persona),
            "rule": decision.rule and str(decision.rule),
        }
    )


def _advise(answer: Answer, persona: Persona, book: Book, sources: policysources.Sources) -> None:
    """The line that would allow it, and its file."""
    if answer.detail:
        say(answer.detail)
    if answer.target is None or answer.decision.reason is Reason.METADATA_ADDRESS:
        return
    if answer.decision.reason is Reason.DENIED:
        say(f"hint: a denial always wins; to allow it, take this line away: {answer.decision.rule}")
        return
    private = is_private(answer.target, answer.decision.reason)
    if answer.decision.reason is Reason.RESOLVED_PRIVATE:
        say(f"hint: it needs a rule with private: true in place of {answer.decision.rule}")
    elif not private:
        say(f"hint: to allow it for one run, add --allow {as_word(answer.target)}")
    _advise_edit(as_yaml(answer.target, private), persona.name, book, sources)


def _advise_edit(entry: str, name: str, book: Book, sources: policysources.Sources) -> None:
    source = book.personas[name].source
    if not policysources.is_shipped(source, sources):
        say(f"hint: to allow it from now on, add this to allow: of persona {name} at {source}\n  - {entry}")
        return
    file = f"{sources.user}/{name}.yaml" if sources.user else "a file that you give with --policy"
    say(
        f"hint: to allow it from now on, put this into {file}\n"
        f"  version: 1\n  personas:\n    {name}:\n      extends: {name}\n      allow:\n        - {entry}"
    )
