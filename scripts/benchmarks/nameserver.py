"""Queries per second of the nameserver, beside dnsmasq and unbound, all answering what they already know.

Every server has one core to itself and dnsperf has another. The resolvers are filled from one and the
same upstream before they are measured, so each answers from its cache. Rounds take turns, because a
shared machine has good and bad minutes, and the median of each server counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each round")
    parser.add_argument("--serve", nargs=4, metavar=("MODE", "PORT", "UPSTREAM", "AUDIT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        import uvloop

        mode, port, upstream, audit = args.serve
        uvloop.run(serve(mode, int(port), int(upstream), audit))
        return
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), args.rounds, args.seconds)
    print(json.dumps(figures) if args.json else as_table(figures))


def measure(directory: Path, rounds: int, seconds: int) -> dict[str, dict[str, float]]:
    (directory / "hosts").write_text("".join(f"198.18.7.{n % 250 + 1} host{n}.example.test\n" for n in range(NAMES)))
    (directory / "queries").write_text("".join(f"host{n}.example.test A\n" for n in range(NAMES)))
    with contextlib.ExitStack() as stack:
        upstream = free_port()
        stack.enter_context(running(dnsmasq(upstream, f"--addn-hosts={directory}/hosts", "--local-ttl=3600"), upstream))
        ports = {}
        for name, command in servers(directory, upstream).items():
            ports[name] = free_port()
            stack.enter_context(running([word.format(port=ports[name]) for word in command], ports[name]))
        for port in ports.values():
            dnsperf(directory, port, "-n", "1", "-q", "50")
        rates: dict[str, list[float]] = {name: [] for name in ports}
        for _ in range(rounds):
            for name, port in ports.items():
                rates[name].append(dnsperf(directory, port, "-l", str(seconds)))
    return {name: summary(rates[name], rates) for name in rates}


def servers(directory: Path, upstream: int) -> dict[str, list[str]]:
    """Command lines; `{port}` stands where the port will be known."""
    ours = [sys.executable, __file__, "--serve"]
    (directory / "unbound.sh").write_text('sed "s/{port}/$1/" "$2" >"$2.conf" && exec unbound -d -c "$2.conf"')
    config = directory / "unbound"
    config.write_text(UNBOUND.format(port="{port}", directory=directory, upstream=upstream))
    return {
        "egress, synthetic": [*ours, "synthetic", "{port}", str(upstream), f"{directory}/audit.jsonl"],
        "egress, filtered": [*ours, "filtered", "{port}", str(upstream), f"{directory}/audit.jsonl"],
        "dnsmasq": dnsmasq("{port}", f"--server=127.0.0.1#{upstream}", "--cache-size=10000"),
        "unbound": ["sh", str(directory / "unbound.sh"), "{port}", str(config)],
    }


def dnsmasq(port: object, *options: str) -> list[str]:
    quiet = ["--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--no-poll", "--user=", "--pid-file="]
    return ["dnsmasq", "--keep-in-foreground", f"--port={port}", *quiet, *options,
            "--listen-address=127.0.0.1", "--bind-interfaces"]  # fmt: skip


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(["taskset", "-c", SERVER_CORE, *command], stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(process, port)
            yield
        finally:
            process.terminate()


def wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    query = b"\0\1\1\0\0\1\0\0\0\0\0\0\5host0\7example\4test\0\0\1\0\1"
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.1)
        sock.connect(("127.0.0.1", port))
        while process.poll() is None:
            with contextlib.suppress(OSError):
                sock.send(query)
                if sock.recv(512):
                    return
            time.sleep(0.05)
    sys.exit(f"{process.args!r} has ended with {process.returncode}")


def dnsperf(directory: Path, port: int, *options: str) -> float:
    command = ["taskset", "-c", CLIENT_CORE, "dnsperf", "-s", "127.0.0.1", "-p", str(port), "-c", "4"]
    done = subprocess.run(
        [*command, "-d", str(directory / "queries"), *options], stdout=subprocess.PIPE, text=True, check=True
    )
    codes = re.search(r"Response codes: +(.+)", done.stdout)
    if codes is None or "(100.00%)" not in codes[1] or "NOERROR" not in codes[1]:
        sys.exit(f"port {port} did not answer everything:\n{done.stdout}")
    return float(done.stdout.partition("Queries per second:")[2].split()[0])


def summary(own: list[float], rates: dict[str, list[float]]) -> dict[str, float]:
    median = statistics.median(own)
    ratios = {f"of {other}": median / statistics.median(rates[other]) for other in ("dnsmasq", "unbound")}
    return {"queries per second": median, "best": max(own), **ratios}


def as_table(figures: dict[str, dict[str, float]]) -> str:
    rows = [f"{'':<18} {'queries/s':>10} {'best':>10} {'of dnsmasq':>11} {'of unbound':>11}"]
    for name, row in figures.items():
        rate, best, dnsmasq_ratio, unbound_ratio = row.values()
        rows.append(f"{name:<18} {rate:>10,.0f} {best:>10,.0f} {dnsmasq_ratio:>11.2f} {unbound_ratio:>11.2f}")
    return "\n".join(rows)


def free_port() -> int:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


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
    main()
