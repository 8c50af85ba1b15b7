"""`egress attach`: the gate for a process that is there already, in a network without a way out."""

from __future__ import annotations

import argparse

from egress.commands import foreground, supervision
from egress.commands.say import Failure
from egress.names import Malformed, parse_port

_PROXY_PORT = "3128"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "attach",
        help="give a process in a network of its own the gate as its only way out",
        description="Give a process that somebody else has started, in a network namespace with nothing but loopback, "
        "the gate as its only way out, until it ends or this is told to stop; then its network is put back as it was.",
        epilog="example:\n  podman run --detach --network none --name agent IMAGE\n"
        "  podman inspect --format '{{.State.Pid}}' agent\n"
        "  egress attach --pid 4711 --persona reviewer",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pid", metavar="PID", required=True, help="a process in that network")
    foreground.add_options(parser)
    parser.add_argument(
        "--port", metavar="PORT", default=_PROXY_PORT, help=f"where the proxy listens inside (default {_PROXY_PORT})"
    )
    parser.add_argument("--upstream", metavar="URL|env", help="reach the internet through another HTTP proxy")
    supervision.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from launcher import attach  # joining networks is the other half of the house's

    args.pid, args.port = _pid(args.pid), _port(args.port)
    return attach.attach(args, lambda fact: print(fact, flush=True))


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 22):
        raise Failure(f"--pid {text!r} is not the number of a process", "ps -e")
    return int(text)


def _port(text: str) -> int:
    try:
        return parse_port(text)
    except Malformed:
        raise Failure(f"--port {text!r} is not a port from 1 to 65535", f"--port {_PROXY_PORT}") from None
