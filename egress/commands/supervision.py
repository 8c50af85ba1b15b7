"""The options by which a person looks on and decides while a gate runs, and those for looking into requests."""

from __future__ import annotations

import argparse
import math
import os
from typing import Protocol

from egress.attribution import Attribute
from egress.commands import ca
from egress.commands.say import Failure, say
from egress.enginestart import Config
from egress.names import Malformed, as_address, parse_port, split_authority
from egress.oversight import Wishes
from egress.policy import Policy
from egress.questions import TIMEOUT


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ui", action="store_true", help="open the live page, and print its link")
    parser.add_argument("--ask", action="store_true", help="ask a person about hosts that no rule lists")
    parser.add_argument("--ask-timeout", metavar="SECONDS", help=f"how long a question waits; default {TIMEOUT:g}")
    parser.add_argument("--observe", action="store_true", help="block nothing but what is denied, and mark the rest")
    parser.add_argument("--metrics", metavar="ADDR:PORT", help="numbers for Prometheus, at /metrics there")
    parser.add_argument(
        "--attribute",
        choices=[of.value for of in Attribute],
        default=Attribute.REFUSED.value,
        help="of which connections the log names the program, where it runs on this host (default: refused)",
    )
    parser.add_argument("--log-queries", action="store_true", help="put the values in queries on record, too")
    parser.add_argument(
        "--upstream-ca",
        metavar="FILE",
        action="append",
        default=[],
        help="certificates that inspected upstreams may be signed by, besides the system's; repeatable",
    )


class Asked(Protocol):
    """These options, however they were read."""

    @property
    def ui(self) -> bool: ...
    @property
    def ask(self) -> bool: ...
    @property
    def ask_timeout(self) -> str | None: ...
    @property
    def observe(self) -> bool: ...
    @property
    def metrics(self) -> str | None: ...


def wishes(args: Asked) -> Wishes:
    if args.observe and args.ask:
        raise Failure("--observe and --ask exclude each other", "observe first, then ask about what is left")
    return Wishes(args.observe, seconds(args.ask_timeout) if args.ask else None, args.ui, address(args.metrics))


def seconds(text: str | None) -> float:
    try:
        value = TIMEOUT if text is None else float(text)
        if not 0 < value <= 24 * 3600 or math.isnan(value):
            raise ValueError(text)
    except ValueError:
        raise Failure(f"--ask-timeout {text!r} is not a number of seconds", "--ask-timeout 60") from None
    return value


def address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    try:
        host, port = split_authority(text)
        if as_address(host) is None or port is None:
            raise Malformed(text)
        return host, parse_port(port)
    except Malformed:
        raise Failure(f"--metrics {text!r} is not ADDRESS:PORT", "--metrics 127.0.0.1:9464") from None


def roots(files: list[str]) -> tuple[str, ...]:
    """Read when they are used, but told of now if they cannot be."""
    for file in files:
        if not os.access(file, os.R_OK):
            raise Failure(f"--upstream-ca {file}: cannot be read", "give a file with certificates in PEM form")
    return tuple(map(os.path.abspath, files))


def kept_authority(args: argparse.Namespace) -> Config:
    """For a gate that stands alone: its clients were told to trust it, so it is always the same."""
    key, certificate = ca.kept()
    return Config(key, certificate, upstream_roots=roots(args.upstream_ca))


def tell_of_inspection(policy: Policy, personas: frozenset[str]) -> None:
    inspecting = [name for name in sorted(personas) if name in policy.personas and policy.personas[name].inspected]
    if inspecting:
        say(
            f"requests of {', '.join(inspecting)} are looked into; their programs must trust the certificate "
            f"in {ca.path()} (egress ca says how)"
        )
