"""`egress users hash`: a line for the file that `egress proxy --users` takes."""

from __future__ import annotations

import argparse
import getpass
import sys

from egress.commands.say import Failure


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "users",
        help="make credentials for a shared gate",
        description="Print a line for `egress proxy --users FILE`. The password is asked for, or read from stdin.",
        epilog="example:\n  echo 'a long password' | egress users hash ci --persona reviewer >> users.txt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["hash"])
    parser.add_argument("name", help="the user's name")
    parser.add_argument("--persona", required=True, help="the persona that this user is")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from egress.users import UsersError, hash_password, parse_users

    password = getpass.getpass("password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise Failure("an empty password", "echo 'a long password' | egress users hash NAME --persona P")
    line = f"{args.name}:{args.persona}:{hash_password(password)}"
    try:
        parse_users(line, "the new line")
    except UsersError as error:
        raise Failure(str(error), "a name is letters, digits, dots, hyphens and underscores") from None
    print(line)
    return 0
