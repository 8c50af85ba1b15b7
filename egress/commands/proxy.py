"""`egress proxy`: the gate by itself, for whoever is pointed at it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from egress import app
from egress.attribution import attributing
from egress.commands import dns, entrances, foreground, service, supervision, workforce
from egress.commands.say import Failure, complain, say
from egress.limits import LIMITS
from egress.net.upstream import NO_UPSTREAM, Upstreams, always, from_environment, parse_upstream
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
    workforce.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if "help" in args.limit:
        print("\n".join(f"{name}={value}" for name, value in LIMITS._asdict().items()))
        return 0
    many, users = workforce.count(args.workers), None if args.users is None else Users(_read_users(args.users))
    setup, reread = _setup(args, users), partial(_reread_users, users, args.users)
    if many > 1:
        return workforce.run(many, partial(service.opened, args, setup, users), setup, reread)
    return foreground.run(_serve(partial(service.opened, args, setup, users), setup, reread))


def _setup(args: argparse.Namespace, users: Users | None) -> app.Setup:
    return foreground.setup(args)._replace(
        users=users,
        upstreams=_upstreams(args.upstream),
        limits=LIMITS._replace(**dict(map(_limit, args.limit))),
        log_queries=args.log_queries,
        wishes=supervision.wishes(args),
        attribution=attributing(args.attribute),
        authority=lambda: supervision.kept_authority(args),
    )


async def _serve(opened: service.Opened, setup: app.Setup, reread: workforce.Reread) -> int:
    stop = foreground.told_to_stop()
    with opened() as place:
        await service.serve(
            place,
            stop,
            partial(reread, complain),
            lambda: print("\n".join(place.facts()), flush=True),
            lambda _: say(f"every decision goes to {setup.audit}"),
        )
    return 0


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


def _reread_users(users: Users | None, path: str, object_to: Callable[[Failure], object]) -> None:
    """A bad edit keeps the users as they were."""
    if users is not None:
        try:
            users.replace(_read_users(path))
        except Failure as failure:
            object_to(failure)


def _limit(setting: str) -> tuple[str, Any]:
    name, _, value = setting.partition("=")
    try:
        number = type(LIMITS._asdict()[name])(value)
        if not number > 0:
            raise ValueError(value)
    except (KeyError, ValueError):
        raise Failure(f"--limit {setting!r} is not NAME=NUMBER", "egress proxy --limit help") from None
    return name, number
