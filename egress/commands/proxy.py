"""`egress proxy`: the gate by itself, for whoever is pointed at it."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from egress import app, policysources, signpost
from egress.attribution import attributing
from egress.commands import dns, entrances, foreground, supervision
from egress.commands.options import tell_of_remarks
from egress.commands.say import Failure, complain, say
from egress.filteredzone import Blocked
from egress.limits import LIMITS
from egress.nameserver import Nameserver
from egress.net.upstream import NO_UPSTREAM, Upstreams, always, from_environment, parse_upstream
from egress.policy import Policy
from egress.users import User, Users, UsersError, parse_users

_MOST_USERS = 1 << 20
_MAKE_USERS = "make a line for it with `egress users hash NAME --persona P`"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "proxy",
        help="run the gate as a filtering proxy",
        description="A forward proxy, HTTP, CONNECT and SOCKS5 on one port, that lets a persona reach its hosts only.",
        epilog="example:\n  egress proxy --persona reviewer --listen 127.0.0.1:3128\n"
        "  curl -x http://127.0.0.1:3128 https://github.com",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    foreground.add_options(parser)
    entrances.add_options(parser)
    parser.add_argument(
        "--dns", metavar="ADDR:PORT", action="append", default=[], help="also answer DNS there, filtered; repeatable"
    )
    dns.add_options(parser)
    supervision.add_options(parser)
    parser.add_argument("--users", metavar="FILE", help="names and passwords, each with its persona")
    parser.add_argument("--upstream", metavar="URL|env", help="reach the internet through another HTTP proxy")
    parser.add_argument(
        "--limit", metavar="NAME=VALUE", action="append", default=[], help="change a limit (`--limit help` lists them)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if "help" in args.limit:
        print("\n".join(f"{name}={value}" for name, value in LIMITS._asdict().items()))
        return 0
    return foreground.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    users = None if args.users is None else Users(_read_users(args.users))
    setup = foreground.setup(args)._replace(
        users=users,
        upstreams=_upstreams(args.upstream),
        limits=LIMITS._replace(**dict(map(_limit, args.limit))),
        log_queries=args.log_queries,
        wishes=supervision.wishes(args),
        attribution=attributing(args.attribute),
        authority=lambda: supervision.kept_authority(args),
    )
    stop = foreground.told_to_stop()
    opened = entrances.open_all(args, policysources.load(setup.sources), users)
    try:
        personas = frozenset(door.persona for _, door in opened if door.persona) | (users.personas if users else set())
        setup = setup._replace(personas=personas)
        policy = setup.load()
        supervision.tell_of_inspection(policy, personas)
        tell_of_remarks(policy, personas)
        async with foreground.gate(setup, policy, lambda: _reread_users(users, args.users)) as gate:
            nameserver = _nameserver(args, gate, setup, policy)
            for sock, door in opened:
                gate.open(sock, door)
                print(entrances.describe(sock, door), flush=True)
            await gate.start(personas)
            say(f"every decision goes to {setup.audit}")
            with _signpost(opened):
                await stop.wait()
            if nameserver is not None:
                await nameserver.close()
    finally:
        entrances.close_all(opened)  # those that no gate took over
    return 0


def _signpost(opened: entrances.Opened) -> AbstractContextManager[None]:
    """For `egress settings`; a gate works as well without."""
    try:
        return signpost.posted(entrances.addresses(opened), os.environ)
    except OSError as error:
        say(f"warning: `egress settings` will not find this gate: {error.filename}: {error.strerror}")
        return nullcontext()


def _nameserver(args: argparse.Namespace, gate: app.Gate, setup: app.Setup, policy: Policy) -> Nameserver | None:
    if not args.dns:
        return None
    return dns.serve(gate, setup, dns.persona(args, policy), Blocked(args.blocked), dns.open_all(args.dns))


def _upstreams(text: str | None) -> Upstreams:
    try:
        if text is None:
            return NO_UPSTREAM
        return from_environment(os.environ) if text == "env" else always(parse_upstream(text))
    except ValueError as error:
        raise Failure(str(error), "write it as --upstream http://proxy.example:3128, or env") from None


def _read_users(path: str) -> dict[str, User]:
    try:
        with open(path, encoding="utf-8", opener=_without_waiting) as file:
            return parse_users(file.read(_MOST_USERS), path)
    except OSError as error:
        raise Failure(f"{path}: cannot be read: {error.strerror}", _MAKE_USERS) from None
    except UnicodeDecodeError:
        raise Failure(f"{path}: not UTF-8", _MAKE_USERS) from None
    except UsersError as error:
        raise Failure(str(error), _MAKE_USERS) from None


def _without_waiting(path: str, flags: int) -> int:
    """For a FIFO in its place, which nobody may ever write to."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _reread_users(users: Users | None, path: str) -> None:
    """A bad edit keeps the users as they were."""
    if users is not None:
        try:
            users.replace(_read_users(path))
        except Failure as failure:
            complain(failure)


def _limit(setting: str) -> tuple[str, Any]:
    name, _, value = setting.partition("=")
    try:
        number = type(LIMITS._asdict()[name])(value)
        if not number > 0:
            raise ValueError(value)
    except (KeyError, ValueError):
        raise Failure(f"--limit {setting!r} is not NAME=NUMBER", "egress proxy --limit help") from None
    return name, number
