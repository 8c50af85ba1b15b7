"""`egress proxy`: the gate by itself, for whoever is pointed at it."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import Any

from egress import app, enforce
from egress.commands import entrances
from egress.commands.options import add_policy_options, sources_of
from egress.commands.say import Failure, say
from egress.limits import LIMITS, Limits
from egress.net.dnsclient import DnsServer
from egress.net.upstream import NO_UPSTREAM, Upstreams, always, from_environment, parse_upstream
from egress.policy import Policy
from egress.refusals import Refused
from egress.users import Users, UsersError, parse_users

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
    add_policy_options(parser)
    entrances.add_options(parser)
    parser.add_argument("--users", metavar="FILE", help="names and passwords, each with its persona")
    parser.add_argument("--audit", metavar="FILE", help="default $XDG_STATE_HOME/egress/audit.jsonl")
    parser.add_argument("--dns-server", metavar="ADDR[:PORT]", help="resolve there instead of by the system")
    parser.add_argument("--upstream", metavar="URL|env", help="reach the internet through another HTTP proxy")
    parser.add_argument(
        "--limit", metavar="NAME=VALUE", action="append", default=[], help="change a limit (`--limit help` lists them)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if "help" in args.limit:
        print("\n".join(f"{name}={value}" for name, value in LIMITS._asdict().items()))
        return 0
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    setup = _setup(args)
    policy = enforce.load(setup.sources)
    stop = _told_to_stop(asyncio.get_running_loop())
    opened = entrances.open_all(args, policy, setup.users)
    try:
        await _run(setup, policy, opened, stop)
    finally:
        entrances.close_all(opened)  # those that no gate took over
    return 0


async def _run(setup: app.Setup, policy: Policy, opened: entrances.Opened, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    gate = _start(setup, policy, loop)
    loop.add_signal_handler(signal.SIGHUP, gate.reloader.now)
    try:
        for sock, door in opened:
            gate.open(sock, door)
            print(entrances.describe(sock, door), flush=True)
        say(f"every decision goes to {setup.audit}")
        await stop.wait()
    finally:
        await gate.close()


def _setup(args: argparse.Namespace) -> app.Setup:
    try:
        dns_server = DnsServer.parse(args.dns_server) if args.dns_server else None
        upstreams = _upstreams(args.upstream)
    except ValueError as error:
        raise Failure(str(error), "egress proxy --help") from None
    audit = args.audit or _default_audit()
    return app.Setup(sources_of(args), audit, say, _users(args.users), dns_server, upstreams, _limits(args.limit))


def _default_audit() -> str:
    try:
        return app.default_audit_path(os.environ)
    except OSError as error:
        raise _unlogged(f"{error.filename}: {error.strerror}") from None


def _unlogged(detail: str) -> Failure:
    return Failure(f"the audit log cannot be written: {detail}", "choose another with --audit FILE")


def _upstreams(text: str | None) -> Upstreams:
    if text is None:
        return NO_UPSTREAM
    return from_environment(os.environ) if text == "env" else always(parse_upstream(text))


def _start(setup: app.Setup, policy: Policy, loop: asyncio.AbstractEventLoop) -> app.Gate:
    try:
        return app.Gate(setup, policy, loop)
    except Refused as refused:
        raise _unlogged(refused.detail) from None


def _told_to_stop(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """From here on a signal ends it in good order: nothing was opened before."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _users(path: str | None) -> Users | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return Users(parse_users(file.read(), path))
    except OSError as error:
        raise Failure(f"{path}: cannot be read: {error.strerror}", _MAKE_USERS) from None
    except UnicodeDecodeError:
        raise Failure(f"{path}: not UTF-8", _MAKE_USERS) from None
    except UsersError as error:
        raise Failure(str(error), _MAKE_USERS) from None


def _limits(settings: list[str]) -> Limits:
    return LIMITS._replace(**dict(map(_limit, settings)))


def _limit(setting: str) -> tuple[str, Any]:
    name, _, value = setting.partition("=")
    try:
        number = type(LIMITS._asdict()[name])(value)
        if not number > 0:
            raise ValueError(value)
    except (KeyError, ValueError):
        raise Failure(f"--limit {setting!r} is not NAME=NUMBER", "egress proxy --limit help") from None
    return name, number
