"""`egress attach`: the gate of a sandbox, for a process that somebody else has put into a network with no way out.

    Visit       the visitor is forked, goes into the process's network, furnishes and proves it
    gate        serves the sockets that it sends home, until the process ends or we are told to stop
    leave       the network is put back as it was: without a way out

What is missing of a sandbox is not made up for: files, processes and system calls of the process are as whoever
started it left them. Its network is closed by itself, having no interface but loopback; all that we add is the
gate. So nothing that we fail to do, and nothing that the process undoes, lets it reach more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from egress import app
from egress.attribution import attributing
from egress.commands import foreground, supervision
from egress.commands.options import persona_of
from egress.commands.say import Failure, say
from launcher.doors import Doors
from launcher.mounts import PlanError
from launcher.netns.model import HandoverError, Wanted
from launcher.netns.visit import Visit
from launcher.routes import routes

if TYPE_CHECKING:
    import argparse

    from launcher.netns.handover import Handover

_FAILED = 125


def attach(args: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """`tell` is given the one fact that programs read: where the proxy is, and whose."""
    setup = _setup(args)
    policy = setup.load()
    persona = persona_of(args, policy).name
    supervision.tell_of_inspection(policy, frozenset({persona}))
    life = _hold(args.pid)
    try:
        visit = Visit(args.pid, Wanted(proxy_port=args.port))  # it forks: there is no event loop yet
        handover = visit.join()
        try:
            return foreground.run(_serve(setup, persona, handover, life, partial(_report, args, tell)))
        finally:
            _close(handover)
            visit.leave()
    except HandoverError as error:
        raise Failure(error.what, error.hint, _FAILED) from None
    finally:
        os.close(life)


def _setup(args: argparse.Namespace) -> app.Setup:
    try:
        _, upstreams = routes(None, args.upstream)
    except PlanError as error:
        raise Failure(str(error), "write it as --upstream http://proxy.example:3128, or env") from None
    return foreground.setup(args)._replace(
        upstreams=upstreams,
        log_queries=args.log_queries,
        wishes=supervision.wishes(args),
        attribution=attributing(args.attribute, args.pid),
        authority=lambda: supervision.kept_authority(args),
    )


def _hold(pid: int) -> int:
    """A descriptor that is readable when the process has ended, whoever has its number then."""
    try:
        return os.pidfd_open(pid)
    except (ProcessLookupError, ValueError, OverflowError):
        raise Failure(f"there is no process {pid}", "ps -e", _FAILED) from None
    except OSError as error:  # a thread, or a kernel older than 5.3
        raise Failure(f"process {pid} cannot be watched: {error.strerror}", "egress doctor", _FAILED) from None


async def _serve(
    setup: app.Setup, persona: str, handover: Handover, life: int, report: Callable[[app.Setup, Handover], None]
) -> int:
    loop, stop = asyncio.get_running_loop(), foreground.told_to_stop()
    loop.add_reader(life, stop.set)
    try:
        async with foreground.gate(setup, setup.load()) as gate:
            doors = Doors(gate, persona, loop)
            doors.open(handover.listeners)
            await gate.start((persona,))
            report(setup, handover)
            await stop.wait()
            await doors.close()
    finally:
        loop.remove_reader(life)
    return 0


def _report(args: argparse.Namespace, tell: Callable[[str], None], setup: app.Setup, handover: Handover) -> None:
    url = f"http://127.0.0.1:{args.port}"
    tell(f"{url} {args.persona}")
    for missing in handover.missing:
        say(f"warning: without {missing}")
    if handover.full:
        say(f"all that process {args.pid} connects to is captured, and DNS whatever server it asks")
    say(f"programs that heed a proxy can be given HTTPS_PROXY={url}")
    say(f"every decision goes to {setup.audit}")


def _close(handover: Handover) -> None:
    """Those that the gate has closed already are not there twice."""
    for listener in handover.listeners:
        with suppress(OSError):
            listener.sock.close()
