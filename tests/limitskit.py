"""A sandbox with limits and nothing else of the launcher's; prints what was said and what came of it.

    limitskit.py '{"resources": {"pids": 50}, "command": [word…]}'

A program, so that it can be run by root and by an ordinary user alike, and be killed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from launcher.cgroup import look
from launcher.confine import Confined, confine
from launcher.limits import plan_limits
from launcher.netns.model import parse_info
from launcher.options import Resources

WALLS = ["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent"]
VIEW = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]


class Held:
    """bwrap, started and waiting before its command."""

    def __init__(self, command: list[str]) -> None:
        told, info = os.pipe()
        block, self._release = os.pipe()
        self.output, output = os.pipe()
        words = ["bwrap", *WALLS, *VIEW, "--info-fd", str(info), "--block-fd", str(block), "--", *command]
        given = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in (info, block)]
        self.pid = os.posix_spawnp(
            "bwrap", words, os.environ, file_actions=[*given, *((os.POSIX_SPAWN_DUP2, output, fd) for fd in (1, 2))]
        )
        for fd in (info, block, output):
            os.close(fd)
        self.first = parse_info(_all(told)).pid

    def run(self) -> tuple[int, str]:
        os.write(self._release, b"x")
        text = _all(self.output).decode(errors="replace")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), text


def _all(fd: int) -> bytes:
    data = b""
    while more := os.read(fd, 65536):
        data += more
    os.close(fd)
    return data


def tell(request: dict[str, Any]) -> dict[str, Any]:
    held = Held(request["command"])
    confined: Confined = confine(plan_limits(Resources(**request["resources"]), look()), held.first)
    try:
        status, output = held.run()
    finally:
        confined.release()
    return {**confined.enforced._asdict(), "status": status, "output": output}


if __name__ == "__main__":
    print(json.dumps(tell(json.loads(sys.argv[1]))))
