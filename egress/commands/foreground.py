"""A gate in the foreground: what every command shares that runs one until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from egress import app, places
from egress.audit import Audit
from egress.commands.options import add_policy_options, sources_of
from egress.commands.say import Failure, say
from egress.net.dnsclient import DnsServer
from egress.policy import Policy
from egress.refusals import Refused
from egress.vault import Vault


def add_options(parser: argparse.ArgumentParser) -> None:
    add_policy_options(parser)
    parser.add_argument("--audit", metavar="FILE", help="default $XDG_STATE_HOME/egress/audit.jsonl")
    parser.add_argument("--dns-server", metavar="ADDR[:PORT]", help="resolve there instead of by the system")


def run(serve: Coroutine[Any, Any, int]) -> int:
    import uvloop

    gc.freeze()  # what is there by now stays, and is not gone through for garbage again and again
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve)


def setup(args: argparse.Namespace) -> app.Setup:
    try:
        dns_server = DnsServer.parse(args.dns_server) if args.dns_server else None
    except ValueError as error:
        raise Failure(str(error), "write it as --dns-server 1.1.1.1 or 127.0.0.1:5353") from None
    return app.Setup(sources_of(args), args.audit or _default_audit(), say, Vault(), dns_server=dns_server)


def told_to_stop() -> asyncio.Event:
    """Set by SIGINT and SIGTERM; asked for before anything is opened that a signal would leave behind."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def check_log(path: str) -> None:
    """For whoever starts several processes that would all find it out."""
    audit = Audit(path, "")
    try:
        audit.probe()
    except Refused as refused:
        raise _unlogged(refused.detail) from None
    audit.close()


@asynccontextmanager
async def gate(
    wanted: app.Setup, policy: Policy, on_hangup: Callable[[], None] = lambda: None
) -> AsyncIterator[app.Gate]:
    """A running gate. SIGHUP reads the policy again, and whatever else `on_hangup` does."""
    loop = asyncio.get_running_loop()
    try:
        made = app.Gate(wanted, policy, loop)
    except Refused as refused:
        raise _unlogged(refused.detail) from None

    def hang_up() -> None:
        made.reloader.now()
        on_hangup()

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield made
    finally:
        await made.close()


def _default_audit() -> str:
    path = places.audit_log(os.environ)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unlogged(f"{error.filename}: {error.strerror}") from None
    return path


def _unlogged(detail: str) -> Failure:
    return Failure(f"the audit log cannot be written: {detail}", "choose another with --audit FILE")
