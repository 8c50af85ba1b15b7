"""Containers: the engines that a sandbox can be made with, and networks of others that a gate can be attached to."""

from __future__ import annotations

import os
import signal

from launcher.backends import engines
from launcher.backends.model import Backend, Unfit
from launcher.checks.model import Finding, fail, ok, warn
from launcher.checks.sandbox import enter_one
from launcher.netns.model import HandoverError, Wanted
from launcher.netns.visit import Visit

_MODULES = "sudo modprobe -a nf_tables nft_chain_nat nft_redir nft_reject_inet nft_ct"
_LIMITS = ("memory", "cpus", "pids")


def podman() -> Finding:
    return _engine(Backend.PODMAN)


def docker() -> Finding:
    return _engine(Backend.DOCKER)


def _engine(backend: Backend) -> Finding:
    found = engines.examine(backend)
    if isinstance(found, Unfit):
        return warn(f"{found.why}; only --backend {backend} needs it", found.hint)
    facts = engines.find(backend).facts()
    joined = "its networks can be joined" if facts.joinable else "its networks are not ours to join: through a relay"
    lacking = [name for name in _LIMITS if name not in facts.limits]
    held = f"; holds no {', '.join(lacking)}" if lacking else ""
    return ok(f"{'rootless' if facts.rootless else 'as root'}, {joined}{held}")


def attached() -> Finding:
    """For real: to a process that is started for it, in a network with nothing in it."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _wait_inside(tell)
    os.close(tell)
    try:
        if os.read(told, 1) != b"x":
            return fail("there can be no network to attach to", "egress doctor # see user namespaces")
        return _visited(pid)
    except HandoverError as error:
        return fail(error.what, error.hint)
    finally:
        os.close(told)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _visited(pid: int) -> Finding:
    visit = Visit(pid, Wanted())
    handover = visit.join()
    for listener in handover.listeners:
        listener.sock.close()
    visit.leave()
    if handover.missing:
        return warn(f"without {'; '.join(handover.missing)}", _MODULES)
    return ok("a network of somebody else's was given a gate, and put back")


def _wait_inside(tell: int) -> None:
    try:
        enter_one()
        os.write(tell, b"x")
        signal.pause()
    finally:
        os._exit(0)
