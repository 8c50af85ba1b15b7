"""Queries per second of the nameserver, beside dnsmasq and unbound, all answering what they already know.

Every server has one core to itself and dnsperf has another. The resolvers are filled from one and the
same upstream before they are measured, so each answers from its cache. As a program, this is our server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import peers
from benchmarks.figures import OURS, Failed, Figure, Goal, Measure, compare
from benchmarks.generator import ROOT
from benchmarks.processes import PATIENCE, free_port, running
from benchmarks.scale import Scale

NAMES = 1000
SERVER_CORE, CLIENT_CORE = "0", "1"
UNBOUND = """
server:
  interface: 127.0.0.1
  port: {port}
  num-threads: 1
  chroot: ""
  username: ""
  directory: "{directory}"
  pidfile: ""
  use-syslog: no
  logfile: "{directory}/unbound.log"
  do-not-query-localhost: no
  do-ip6: no
  module-config: "iterator"
  local-zone: "test." nodefault
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: 127.0.0.1@{upstream}
"""


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    (work / "hosts").write_text("".join(f"198.18.7.{n % 250 + 1} host{n}.example.test\n" for n in range(NAMES)))
    (work / "queries").write_text("".join(f"host{n}.example.test A\n" for n in range(NAMES)))
    seconds = 3 if scale.every_peer else 1
    with contextlib.ExitStack() as stack:
        upstream = free_port()
        known = dnsmasq(upstream, f"--addn-hosts={work}/hosts", "--local-ttl=3600")
        stack.enter_context(answering(known, upstream))
        wanted = servers(work, upstream)
        if not scale.every_peer:
            del wanted["filtered"]
        ports, missing = _started(stack, wanted)
        for port in ports.values():
            dnsperf(work, port, "-n", "1", "-q", "50")
        contestants: dict[str, Measure] = {
            name: (lambda port=port: dnsperf(work, port, "-l", str(seconds))) for name, port in ports.items()
        }
        rounds, failed = compare(scale.rounds, contestants)
    missing |= failed
    goals = (Goal("dnsmasq", 0.5), Goal("unbound", 0.5))
    theirs = {name: values for name, values in rounds.items() if name in ("dnsmasq", "unbound")}
    for key, mode in (("dns", "synthetic"), ("dns_filtered", "filtered")):
        what = f"DNS, cached question, {mode} answers"
        ours = OURS if mode == "synthetic" else "filtered"
        if ours in rounds:
            yield Figure(key, what, "queries/s", True, {OURS: rounds[ours], **theirs}, goals, missing)


def _started(stack: contextlib.ExitStack, wanted: dict[str, list[str]]) -> tuple[dict[str, int], dict[str, str]]:
    ports: dict[str, int] = {}
    missing: dict[str, str] = {}
    for name, command in wanted.items():
        port = free_port()
        try:
            if name in peers.PACKAGES:
                peers.find(name)
            stack.enter_context(answering([word.format(port=port) for word in command], port))
            ports[name] = port
        except Failed as failed:
            missing[name] = str(failed)
    return ports, missing


def servers(directory: Path, upstream: int) -> dict[str, list[str]]:
    """Command lines; `{port}` stands where the port will be known."""
    ours = [sys.executable, __file__, "--serve"]
    (directory / "unbound.sh").write_text('sed "s/{port}/$1/" "$2" >"$2.conf" && exec unbound -d -c "$2.conf"\n')
    config = directory / "unbound"
    config.write_text(UNBOUND.format(port="{port}", directory=directory, upstream=upstream))
    return {
        OURS: [*ours, "synthetic", "{port}", str(upstream), f"{directory}/audit.jsonl"],
        "filtered": [*ours, "filtered", "{port}", str(upstream), f"{directory}/audit.jsonl"],
        "dnsmasq": dnsmasq("{port}", f"--server=127.0.0.1#{upstream}", "--cache-size=10000"),
        "unbound": ["sh", str(directory / "unbound.sh"), "{port}", str(config)],
    }


def dnsmasq(port: object, *options: str) -> list[str]:
    quiet = ["--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--no-poll", "--user=", "--pid-file="]
    return ["dnsmasq", "--keep-in-foreground", f"--port={port}", *quiet, *options,
            "--listen-address=127.0.0.1", "--bind-interfaces"]  # fmt: skip


@contextlib.contextmanager
def answering(command: list[str], port: int) -> Iterator[None]:
    with running([peers.find("taskset"), "-c", SERVER_CORE, *command], env=_environment()) as process:
        wait_for(process, port)
        yield


def _environment() -> dict[str, str]:
    return {**peers.environment(), "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), str(ROOT)])}


def wait_for(process: subprocess.Popen[str], port: int) -> None:
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0\5host0\7example\4test\0\0\1\0\1"
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.1)
        sock.connect(("127.0.0.1", port))
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                sock.send(query)
                if sock.recv(512):
                    return
            time.sleep(0.05)
    raise Failed("it does not answer")


def dnsperf(directory: Path, port: int, *options: str) -> float:
    command = ["taskset", "-c", CLIENT_CORE, peers.find("dnsperf"), "-s", "127.0.0.1", "-p", str(port), "-c", "4"]
    done = subprocess.run(
        [*command, "-d", str(directory / "queries"), *options],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=peers.environment(),
    )
    codes = re.search(r"Response codes: +(.+)", done.stdout)
    if codes is None or "(100.00%)" not in codes[1] or "NOERROR" not in codes[1]:
        raise Failed("it did not answer everything")
    return float(done.stdout.partition("Queries per second:")[2].split()[0])


async def serve(mode: str, port: int, upstream: int, path: str) -> None:
    from egress import nameserver
    from egress.audit import Audit
    from egress.net.dnsclient import DnsClient, DnsServer
    from egress.net.dnssockets import open_udp
    from egress.net.resolver import Resolver
    from egress.policy import Persona, Policy
    from egress.rules import parse_rule
    from egress.sessions import Live
    from egress.synthetic import SyntheticNames

    loop = asyncio.get_running_loop()
    rules = [parse_rule(f"host{n}.example.test")._replace(private=True) for n in range(NAMES)]
    audit, live = Audit(path, "bench"), Live(Policy({"bench": Persona("bench", rules)}))
    if mode == "synthetic":
        names = nameserver.in_sandbox(live, audit, "bench", SyntheticNames(), loop)
    else:
        client = DnsClient(DnsServer("127.0.0.1", upstream), loop)
        names = nameserver.standalone(live, audit, "bench", Resolver(loop), client, loop)
    names.open_udp(open_udp("127.0.0.1", port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
