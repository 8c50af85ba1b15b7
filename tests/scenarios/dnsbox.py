"""A network of its own with our nameserver on port 53, where any program asks it as it asks any other.

    inside(MODE, COMMAND, ARG, …)

MODE is `sandbox`, or a way of blocking for the nameserver by itself, whose upstream is one of ours too.
What came of it is printed as JSON. Persona `p` may reach good.test, inner.test and *.wild.test.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from dnskit import Kit, allow, sandbox, standalone
from dnslib import DNSRecord
from fakedns import fake_dns, reply
from programs import PATH

from egress.filteredzone import Blocked
from egress.net.dnssockets import open_both

RULES = [allow("good.test"), allow("inner.test"), allow("*.wild.test")]
PUBLIC = "9.9.9.9"
MANY = f"many-{'x' * 50}.wild.test"  # whose sixteen IPv6 addresses a plain datagram has no room for


class Came(NamedTuple):
    """What came of a command, and of the questions it asked."""

    code: int
    out: str
    err: str
    records: list[dict[str, Any]]
    upstream: list[str]


def inside(mode: str, *command: str) -> Came:
    """Run a command in such a network."""
    box = ["unshare", "--map-root-user", "--net", "--mount", sys.executable, __file__, mode, "--", *command]
    tests = Path(__file__).parent.parent
    environment = {**os.environ, "PATH": PATH, "PYTHONPATH": f"{tests}:{tests.parent}"}
    done = subprocess.run(box, stdout=subprocess.PIPE, text=True, check=True, timeout=50, env=environment)
    return Came(*json.loads(done.stdout))


def upstream(message: DNSRecord, _: int) -> Iterable[bytes]:
    name, v6 = str(message.q.qname).rstrip("."), message.q.qtype == 28
    if name == MANY and v6:
        return [reply(message, *(f"{MANY} 60 AAAA 2620:fe::{n}" for n in range(1, 17)))]
    ip = "2620:fe::9" if v6 else PUBLIC
    if name == "inner.test":
        ip = "fd00::1" if v6 else "10.0.0.1"
    return [reply(message, f"{name} 60 {'AAAA' if v6 else 'A'} {ip}")]


async def run(mode: str, command: Sequence[str]) -> Came:
    with tempfile.TemporaryDirectory() as directory:
        furnish(Path(directory))
        async with AsyncExitStack() as stack:
            up = await stack.enter_async_context(fake_dns(upstream))
            path = Path(directory)
            making = (
                sandbox(path, *RULES)
                if mode == "sandbox"
                else standalone(path, *RULES, upstream=up, blocked=Blocked(mode))
            )
            kit = await stack.enter_async_context(making)
            listen(kit)
            process = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
            )
            out, err = await process.communicate()
        asked = [str(message.q.qname) for message in up.queries + up.tcp_queries]
        return Came(process.returncode or 0, out.decode(), err.decode(), kit.records(), asked)


def listen(kit: Kit) -> None:
    for ip in ("127.0.0.1", "::1"):
        udp, tcp = open_both(ip, 53)
        kit.names.open_udp(udp)
        kit.names.open_tcp(tcp)


def furnish(directory: Path) -> None:
    """Loopback, and the files that say where names are asked for."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name, text in (("resolv.conf", "nameserver 127.0.0.1\n"), ("nsswitch.conf", "hosts: files dns\n")):
        (directory / name).write_text(text)
        subprocess.run(["mount", "--bind", str(directory / name), str(Path("/etc", name).resolve())], check=True)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], sys.argv[3:]))))
