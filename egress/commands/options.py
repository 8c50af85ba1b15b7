"""The options that every command which obeys a policy has, and the sources that they name."""

from __future__ import annotations

import argparse

from egress import policysources
from egress.commands.say import Failure
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
