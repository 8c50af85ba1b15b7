"""A sandbox made of the launcher's file-system half alone: no network capture, no seccomp, no terminal.

Run as a program it is the whole launcher for a scenario, so that it can run as another user and be killed:

    python roomkit.py '{"command": [...], "project": "...", ...}'
"""

from __future__ import annotations

import json
import os
import sys

from egress.surroundings import Filesystem
from launcher import bwrap
from launcher.descriptors import binds_descriptors, carry, memory
from launcher.placeholders import hold
from launcher.plan import Plan, plan
from launcher.request import Own, Request
from launcher.survey import survey

BWRAP = "/usr/bin/bwrap"


def request(**fields: object) -> Request:
    """From plain values, as JSON has them."""
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    if "filesystem" in known:
        known["filesystem"] = Filesystem(**{name: tuple(paths) for name, paths in known["filesystem"].items()})
    if "own" in known:
        known["own"] = tuple(Own(*own) for own in known["own"])
    return Request(**known)


def make_plan(**fields: object) -> Plan:
    asked = request(**fields)
    return plan(asked, survey(asked, os.environ))


def launch(made: Plan, on_start=None) -> int:
    """Run it to its end; the wait status of bwrap."""
    held = hold(made.placeholders)
    try:
        fds = carry(made, binds_descriptors(BWRAP), {})
        info_read, info = os.pipe()
        fds = fds._replace(info=info)
        args = memory(bwrap.packed(bwrap.arguments(made, fds)))
        pid = os.fork()
        if pid == 0:
            _become(made, args, (args, *fds.all))
        for fd in (args, *fds.all):
            os.close(fd)
        told = b""
        while data := os.read(info_read, 4096):
            told += data
        os.close(info_read)
        if told:
            sandbox = json.loads(told)["child-pid"]
            held.follow(sandbox)
        if on_start:
            on_start(pid)
        return os.waitpid(pid, 0)[1]
    finally:
        held.release()


def _become(made: Plan, args: int, kept: tuple[int, ...]) -> None:
    """bwrap, as the launcher must start it: no environment, and no descriptors but those it is told of."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in kept and os.path.exists(f"/proc/self/fd/{fd}"):
            os.set_inheritable(fd, False)
    for fd in kept:
        os.set_inheritable(fd, True)
    os.execve(BWRAP, bwrap.command_line("bwrap", args, made), {})


if __name__ == "__main__":
    sys.exit(os.waitstatus_to_exitcode(launch(make_plan(**json.loads(sys.argv[1])))) & 0xFF)
