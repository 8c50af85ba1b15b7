"""`egress check`: what the gate would answer, and which line of which file makes it so.

It asks the same functions as the gate and looks nothing up: a name's addresses are judged only where
the policy itself gives them, as a literal or under `hosts:`. Of a secret it wants to know only whether
there is one: a value is never read.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from egress import policysources, vault
from egress.advice import is_private
from egress.commands.options import add_policy_options, persona_of, sources_of
from egress.commands.question import OVER_TLS, PLAIN, Question, read_question
from egress.commands.requestadvice import BY_REQUEST, entry_for, hints
from egress.commands.say import say
from egress.credentials import Known, exchange, has_placeholder
from egress.model import Candidate, Decision, Target, Verdict
from egress.names import Malformed, as_address
from egress.policy import Listeners, Persona, Policy, vet
from egress.policybook import Book
from egress.refusals import TABLE, Reason, Refused
from egress.requestpolicy import Asked, decide_request, secrets_of
from egress.rules import Requests, Rule, parse_target
from egress.ruletext import as_json, as_word, as_yaml, requests_of, terms_of
from egress.urlpath import Ambiguous, canonical


class Answer(NamedTuple):
    asked: str  # the target or request, or what was typed where it is none
    target: Target | None
    decision: Decision
    detail: str = ""
    request: Asked | None = None  # where it was the request that was judged
    rules: tuple[Rule, ...] = ()  # that look at requests to the target, the first of them speaks for the connection


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
    question = read_question(filter(None, (args.target, args.url)), args.header)
    sources = sources_of(args)._replace(persona=None)  # an unknown one is told with the known ones
    book = policysources.read(sources)
    policy = book.policy(sources.allow)
    persona = _as_it_would_run(persona_of(args, policy), policy)
    answer = _judge(question, persona, policy)
    print(_as_json(answer, persona) if args.json else _as_text(answer, persona))
    if not answer.decision.allowed:
        _advise(answer, persona, book, sources)
    return 0 if answer.decision.allowed else 1


def _as_it_would_run(persona: Persona, policy: Policy) -> Persona:
    """Without the optional secrets that this machine does not have."""
    secrets = secrets_of(persona.allow)
    absent = [secret for secret in secrets if secret.optional and not vault.is_there(secret, os.environ)]
    return vault.without(Policy({persona.name: persona}, policy.hosts), absent).personas[persona.name]


def _judge(question: Question, persona: Persona, policy: Policy) -> Answer:
    try:
        target = parse_target(question.place)
    except Malformed as error:
        return Answer(question.place[:300], None, Decision(Verdict.DENY, Reason.MALFORMED_HOST), str(error))
    rules = persona.request_rules(target)
    request = question.request if question.explicit or rules else None
    answer = Answer(_asked(question, target, request), target, persona.decide(target), "", request, rules)
    try:
        _check_connection(answer, question.scheme, policy)
        return answer if request is None or not rules else _check_request(answer, request, question.scheme)
    except Refused as refused:
        decision = Decision(Verdict.DENY, refused.reason, answer.decision.rule)
        return answer._replace(decision=decision, detail=refused.detail)


def _asked(question: Question, target: Target, request: Asked | None) -> str:
    if request is None:
        return str(target)
    place = question.place if question.scheme else f"https://{question.place}"
    return f"{request.method} {place}{request.path}"


def _check_connection(answer: Answer, scheme: str, policy: Policy) -> None:
    """What the gate finds out once a name and port are allowed."""
    rule, target = answer.decision.rule, answer.target
    if not answer.decision.allowed or rule is None or target is None:
        return
    if known := _known_addresses(target, policy):
        vet(known, rule, Listeners())
    tls = rule.expects_tls(target.port)
    if tls and scheme in PLAIN:
        raise Refused(Reason.NOT_TLS, f"TLS is expected on port {target.port}, and {scheme} is in the clear")
    if answer.rules and not tls and scheme in OVER_TLS:
        raise Refused(Reason.NOT_HTTP, f"TLS is not expected on port {target.port}, where requests are looked at")


def _check_request(answer: Answer, request: Asked, scheme: str) -> Answer:
    decision = decide_request(answer.rules, request)
    if decision.allowed and decision.rule is not None:
        known = [Known(secret, secret.placeholder) for secret in secrets_of(answer.rules)]
        if scheme in PLAIN and decision.rule.tls is not False and has_placeholder(known, request.fields):
            raise Refused(Reason.NOT_TLS, "a secret is not put into a request that goes out in the clear")
        exchange(known, request.fields)
    detail = _why_ambiguous(request) if decision.reason is Reason.AMBIGUOUS_PATH else ""
    return answer._replace(decision=decision, detail=detail)


def _why_ambiguous(request: Asked) -> str:
    try:
        canonical(request.path)
    except Ambiguous as error:
        return f"the path {error}"
    return "a header gives the path a second time"


def _known_addresses(target: Target, policy: Policy) -> list[Candidate]:
    if fixed := policy.hosts.get(target.host):
        return [Candidate(fixed.ip, fixed.port or target.port)]
    return [Candidate(target.host, target.port)] if as_address(target.host) else []


def _sentence(answer: Answer, persona: Persona) -> str:
    target = str(answer.target) if answer.target else _visible(answer.asked)
    return TABLE[answer.decision.reason].sentence.format(target=target, persona=persona.name)


def _visible(text: str) -> str:
    return text if text.isascii() and text.isprintable() else ascii(text)


def _as_text(answer: Answer, persona: Persona) -> str:
    decision = answer.decision
    lines = [
        f"{decision.verdict} {_visible(answer.asked)}",
        f"reason: {decision.reason}: {_sentence(answer, persona)}",
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
        "sentence": _sentence(answer, persona),
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
        _advise_request(answer, answer.target, persona, book, sources)
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


def _advise_request(
    answer: Answer, target: Target, persona: Persona, book: Book, sources: policysources.Sources
) -> None:
    for line in hints(answer.decision):
        say(line)
    entry = answer.request and entry_for(answer.request, target, answer.decision, answer.rules[0])
    if entry:
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
