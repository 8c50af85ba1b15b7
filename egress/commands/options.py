"""The options that every command which obeys a policy has, and the sources that they name."""

from __future__ import annotations

import argparse
from collections.abc import Container

from egress import policysources
from egress.commands.say import Failure, say
from egress.policy import Persona, Policy
from egress.policybook import choose
from egress.problems import UnknownPersona


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--persona", metavar="NAME", help="whose rules apply (`egress policy show` lists them)")
    parser.add_argument(
        "--policy",
        metavar="FILE",
        action="append",
        default=[],
        help="a further policy file, over all others; repeatable",
    )
    parser.add_argument(
        "--allow", metavar="HOST[:PORT]", action="append", default=[], help="one more rule for this run; repeatable"
    )


def sources_of(args: argparse.Namespace) -> policysources.Sources:
    return policysources.locate(args.policy, args.allow, args.persona)


def persona_of(args: argparse.Namespace, policy: Policy) -> Persona:
    """The persona that was asked for; a command that needs one says which there are."""
    if args.persona is None:
        raise Failure("no persona given", f"add --persona NAME, one of: {', '.join(policy.personas)}")
    try:
        return choose(policy, args.persona)
    except UnknownPersona as error:
        raise Failure(error.problems[0].message, "egress policy show") from None


def meant_persona_of(args: argparse.Namespace, policy: Policy) -> Persona:
    """The same, for who only asks: without a name, the only persona that the named files have, and that is said."""
    if args.persona is None and (name := policysources.implied(sources_of(args))):
        say(f"persona {name}, the only one in {' '.join(args.policy)}")
        args.persona = name
    return persona_of(args, policy)


def tell_of_remarks(policy: Policy, personas: Container[str]) -> None:
    """What another tool's file says and does not hold here."""
    for line in policy.warnings(personas):
        say(f"warning: {line}")
