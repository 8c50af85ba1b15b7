"""`egress check`: what the gate would answer, and which line of which file makes it so.

The judging is in `explain`; here is how it is asked for and told. Of a secret it wants to know only whether there
is one: a value is never read.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import Any

from egress import policysources, vault
from egress.advice import is_private
from egress.commands.options import add_policy_options, meant_persona_of, sources_of, tell_of_remarks
from egress.commands.say import Failure, say
from egress.explain import Answer, judge, sentence, visible
from egress.inquiry import Inquiry, NoInquiry, read_inquiry
from egress.model import Decision, Target
from egress.policy import Persona, Policy
from egress.policybook import Book
from egress.refusals import Reason
from egress.requestadvice import BY_REQUEST, entry_for, hints
from egress.requestpolicy import secrets_of
from egress.rules import Requests, Rule
from egress.ruletext import as_json, as_word, as_yaml, requests_of, terms_of

_HINT = "egress check 'POST https://example.com/path' --persona NAME"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="say whether a persona may reach a host or make a request, and why",
        description="Say whether a persona may reach a host or make a request, for what reason and by which rule."
        " A URL without a method is asked for with GET. Exit status: 0 allowed, 1 denied, 2 not answered.",
        epilog="example:\n  egress check github.com:443 --persona reviewer\n"
        "  egress check 'POST https://github.com/acme/x/git-upload-pack' --persona reviewer",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="HOST[:PORT]|URL", help="port 443 where none is given; or 'METHOD URL'")
    parser.add_argument("url", metavar="URL", nargs="?", help="where METHOD is a word by itself")
    add_policy_options(parser)
    parser.add_argument(
        "--header", metavar="'NAME: VALUE'", action="append", default=[], help="a header of the request; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    inquiry = _inquiry(args)
    sources = sources_of(args)._replace(persona=None)  # an unknown one is told with the known ones
    with policysources.Undisturbed():
        book = policysources.read(sources)
        policy = book.policy(sources.allow)
        persona = _as_it_would_run(meant_persona_of(args, policy), policy)
    tell_of_remarks(policy, (persona.name,))
    answer = judge(inquiry, persona, policy)
    print(_as_json(answer, persona) if args.json else _as_text(answer, persona))
    if not answer.decision.allowed:
        _advise(answer, persona, book, sources)
    return 0 if answer.decision.allowed else 1


def _inquiry(args: argparse.Namespace) -> Inquiry:
    try:
        return read_inquiry(filter(None, (args.target, args.url)), args.header)
    except NoInquiry as error:
        raise Failure(str(error), _HINT) from None


def _as_it_would_run(persona: Persona, policy: Policy) -> Persona:
    """Without the optional secrets that this machine does not have."""
    secrets = secrets_of(persona.allow)
    absent = [secret for secret in secrets if secret.optional and not vault.is_there(secret, os.environ)]
    return vault.without(policy, absent, [persona.name]).personas[persona.name]


def _as_text(answer: Answer, persona: Persona) -> str:
    decision = answer.decision
    lines = [
        f"{decision.verdict} {visible(answer.asked)}",
        f"reason: {decision.reason}: {sentence(answer, persona)}",
        f"rule: {decision.rule or 'none'}",
    ]
    if decision.allowed and decision.rule:
        lines += _terms(decision.rule) if answer.request or not answer.rules else _allowed_requests(answer.rules)
    return "\n".join(lines)


def _terms(rule: Rule) -> Iterator[str]:
    if terms := terms_of(rule):
        yield f"terms: {terms}"


def _allowed_requests(rules: tuple[Rule, ...]) -> Iterator[str]:
    """What may be asked of a host, a line for each rule in their order."""
    yield from _terms(rules[0]._replace(requests=Requests(inspect=True)))
    judges = [rule for rule in rules if rule.requests and not rule.requests.only_brings_a_secret]
    for rule in judges or rules[:1]:
        yield f"requests: {requests_of(rule)} ({rule.source})"
    for secret in secrets_of(rules):
        yield f"secret: {secret.header} from {secret.source}"


def _as_json(answer: Answer, persona: Persona) -> str:
    target, decision, request = answer.target, answer.decision, answer.request
    told: dict[str, Any] = {
        "persona": persona.name,
        "asked": answer.asked,
        "host": target and target.host,
        "port": target and target.port,
        "verdict": decision.verdict,
        "reason": decision.reason,
        "sentence": sentence(answer, persona),
        "rule": decision.rule and str(decision.rule),
    }
    if request:
        told |= {"method": request.method, "path": request.path}
    elif answer.rules:
        told["requests"] = [as_json(rule) for rule in answer.rules]
    return json.dumps(told)


def _advise(answer: Answer, persona: Persona, book: Book, sources: policysources.Sources) -> None:
    """The line that would allow it, and its file."""
    if answer.detail:
        say(answer.detail)
    if answer.target is None or answer.decision.reason is Reason.METADATA_ADDRESS:
        return
    if answer.decision.reason is Reason.DENIED:
        say(f"hint: a denial always wins; to allow it, take this line away: {answer.decision.rule}")
    elif answer.decision.reason in BY_REQUEST:
        _advise_request(answer, persona, book, sources)
    else:
        _advise_connection(answer.target, answer.decision, persona, book, sources)


def _advise_connection(
    target: Target, decision: Decision, persona: Persona, book: Book, sources: policysources.Sources
) -> None:
    private = is_private(target, decision.reason)
    if decision.reason is Reason.RESOLVED_PRIVATE:
        say(f"hint: it needs a rule with private: true in place of {decision.rule}")
    elif not private:
        say(f"hint: to allow it for one run, add --allow {as_word(target)}")
    _advise_edit(as_yaml(target, private), persona.name, book, sources)


def _advise_request(answer: Answer, persona: Persona, book: Book, sources: policysources.Sources) -> None:
    for line in hints(answer.decision):
        say(line)
    if entry := entry_for(answer):
        _advise_edit(entry, persona.name, book, sources)


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
