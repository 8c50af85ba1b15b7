"""`egress dns`: the nameserver by itself, for whoever is pointed at it."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
from typing import NamedTuple

from egress import app, enforce, nameserver
from egress.commands.options import add_policy_options, persona_of, sources_of
from egress.commands.say import Failure, say
from egress.filteredzone import Blocked
from egress.names import Malformed, as_address, split_authority
from egress.net.dnsclient import DnsClient, DnsServer
from egress.net.dnssockets import open_udp
from egress.net.listeners import open_tcp
from egress.refusals import Refused

_DEFAULT = "127.0.0.1:5353"


class Opened(NamedTuple):
    """One address, both ways."""

    udp: socket.socket
    tcp: socket.socket

    def __str__(self) -> str:
        host, port = self.udp.getsockname()[:2]
        return f"dns://{f'[{host}]' if ':' in host else host}:{port}"

    def close(self) -> None:
        self.udp.close()
        self.tcp.close()


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "dns",
        help="run the gate's nameserver as a filtering resolver",
        description="A DNS server, UDP and TCP, that resolves the names a persona may reach and no others.",
        epilog="example:\n  egress dns --persona reviewer --listen 127.0.0.1:5353\n  dig @127.0.0.1 -p 5353 github.com",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_policy_options(parser)
    parser.add_argument(
        "--listen", metavar="ADDR:PORT", action="append", default=[], help=f"repeatable; default {_DEFAULT}"
    )
    add_options(parser)
    parser.add_argument("--audit", metavar="FILE", help="default $XDG_STATE_HOME/egress/audit.jsonl")
    parser.add_argument("--dns-server", metavar="ADDR[:PORT]", help="resolve there instead of by the system")
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every command that runs the nameserver has."""
    parser.add_argument(
        "--blocked",
        choices=[way.value for way in Blocked],
        default=Blocked.REFUSED.value,
        help="how a denied name is answered: REFUSED with the reason, as if it did not exist, or with 0.0.0.0",
    )


def run(args: argparse.Namespace) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    setup = _setup(args)
    policy = enforce.load(setup.sources)
    persona = persona_of(args, policy).name
    opened = open_all(args.listen or [_DEFAULT])
    loop = asyncio.get_running_loop()
    try:
        gate = app.Gate(setup, policy, loop)
    except Refused as refused:
        words = f"the audit log cannot be written: {refused.detail}"
        raise Failure(words, "choose another with --audit FILE") from None
    names = start(gate, persona, setup.dns_server, Blocked(args.blocked), loop)
    try:
        for each in opened:
            names.open_udp(each.udp)
            names.open_tcp(each.tcp)
            print(f"{each} {persona}", flush=True)
        say(f"every decision goes to {setup.audit}")
        await _until_told_to_stop(gate, loop)
    finally:
        await names.close()
        await gate.close()
    return 0


def start(
    gate: app.Gate, persona: str, server: DnsServer | None, blocked: Blocked, loop: asyncio.AbstractEventLoop
) -> nameserver.Nameserver:
    """A nameserver that shares the policy, the log and the resolver of a gate."""
    client = None if server is None else DnsClient(server, loop)
    return nameserver.standalone(gate.live, gate.audit, persona, gate.resolver, client, loop, blocked)


def open_all(wanted: list[str]) -> list[Opened]:
    """Every address that was asked for. If one cannot be had, none is kept."""
    opened: list[Opened] = []
    try:
        for where in wanted:
            opened.append(_open(where))  # noqa: PERF401  # those before a failure must be closed
    except Failure:
        for each in opened:
            each.close()
        raise
    return opened


def _open(where: str) -> Opened:
    try:
        host, port = _parse(where)
        udp = open_udp(host, port)
        try:
            return Opened(udp, open_tcp(host, udp.getsockname()[1]))
        except OSError:
            udp.close()
            raise
    except Malformed as error:
        raise Failure(str(error), f"write it as {_DEFAULT}") from None
    except OSError as error:
        raise Failure(f"cannot listen on {where}: {error.strerror}", "choose another address or port") from None


def _parse(where: str) -> tuple[str, int]:
    host, port = split_authority(where)
    if as_address(host) is None or port is None or not re.fullmatch("0|[1-9][0-9]{0,4}", port):
        raise Malformed(f"{where!r} is not ADDRESS:PORT, with an address and not a name")
    if host in ("0.0.0.0", "::"):
        raise Malformed(f"{where!r} is every address; an answer must come from the one that was asked, so name it")
    return host, int(port)


def _setup(args: argparse.Namespace) -> app.Setup:
    try:
        server = DnsServer.parse(args.dns_server) if args.dns_server else None
    except ValueError as error:
        raise Failure(str(error), "egress dns --help") from None
    return app.Setup(sources_of(args), args.audit or app.default_audit_path(os.environ), say, dns_server=server)


async def _until_told_to_stop(gate: app.Gate, loop: asyncio.AbstractEventLoop) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, gate.reloader.now)
    await stop.wait()
