"""`egress dns`: the nameserver by itself, for whoever is pointed at it."""

from __future__ import annotations

import argparse
import re
import socket
from typing import NamedTuple

from egress import app, policysources
from egress.commands import foreground
from egress.commands.options import persona_of, tell_of_remarks
from egress.commands.say import Failure, say
from egress.filteredzone import Blocked
from egress.names import Malformed, as_address, split_authority
from egress.nameserver import Nameserver, standalone
from egress.net.dnsclient import DnsClient
from egress.net.dnssockets import open_both
from egress.policy import Policy
from egress.reception import with_listener

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
    foreground.add_options(parser)
    parser.add_argument(
        "--listen", metavar="ADDR:PORT", action="append", default=[], help=f"repeatable; default {_DEFAULT}"
    )
    add_options(parser)
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
    return foreground.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    setup = foreground.setup(args)
    policy = policysources.load(setup.sources)
    asked_for = persona(args, policy)
    tell_of_remarks(policy, (asked_for,))
    stop = foreground.told_to_stop()
    opened = open_all(args.listen or [_DEFAULT])
    try:
        async with foreground.gate(setup, policy) as gate:
            names = serve(gate, setup, asked_for, Blocked(args.blocked), opened)
            print("\n".join(f"{each} {asked_for}" for each in opened), flush=True)
            say(f"every decision goes to {setup.audit}")
            await stop.wait()
            await names.close()
    finally:
        close_all(opened)  # those that no nameserver took over
    return 0


def persona(args: argparse.Namespace, policy: Policy) -> str:
    """DNS has no names and passwords: whoever asks is this persona."""
    return persona_of(args, policy).name


def serve(gate: app.Gate, setup: app.Setup, asked_for: str, blocked: Blocked, opened: list[Opened]) -> Nameserver:
    """A nameserver that shares the policy, the log and the resolver of a gate."""
    client = None if setup.dns_server is None else DnsClient(setup.dns_server, gate.gateway.loop)
    names = standalone(gate.live, gate.audit, asked_for, gate.resolver, client, gate.gateway.loop, blocked)
    for each in opened:
        names.open_udp(each.udp)
        names.open_tcp(each.tcp)
        gate.gateway.listeners = with_listener(gate.gateway.listeners, each.tcp)
    return names


def open_all(wanted: list[str]) -> list[Opened]:
    """Every address that was asked for. If one cannot be had, none is kept."""
    opened: list[Opened] = []
    try:
        for where in wanted:
            opened.append(_open(where))  # noqa: PERF401  # those before a failure must be closed
    except Failure:
        close_all(opened)
        raise
    return opened


def close_all(opened: list[Opened]) -> None:
    for each in opened:
        each.close()


def _open(where: str) -> Opened:
    try:
        return Opened(*open_both(*_parse(where)))
    except Malformed as error:
        raise Failure(str(error), f"write it as {_DEFAULT}") from None
    except OSError as error:
        raise Failure(f"cannot listen on {where}: {error.strerror}", "choose another address or port") from None


def _parse(where: str) -> tuple[str, int]:
    host, port = split_authority(where)
    if as_address(host) is None or port is None or not re.fullmatch("0|[1-9][0-9]{0,4}", port) or int(port) > 65535:
        raise Malformed(f"{where!r} is not ADDRESS:PORT, with an address and not a name")
    if host in ("0.0.0.0", "::"):
        raise Malformed(f"{where!r} is every address; an answer must come from the one that was asked, so name it")
    return host, int(port)
