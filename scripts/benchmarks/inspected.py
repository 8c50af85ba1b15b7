"""Hosts whose requests are looked into, beside mitmdump of the same interpreter and beside our own plain tunnel.

mitmdump streams bodies, as our engine does. The plain tunnel ends in the same server, by another name, which no
request rule speaks of: there TLS is the client's own, and only its beginning is read.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import gate as ours
from benchmarks import peers, tlsends
from benchmarks.figures import OURS, Failed, Figure, Goal, Measure, compare
from benchmarks.gate import Gate
from benchmarks.generator import ROOT, origin, tunnels
from benchmarks.processes import family, first_line, free_port, megabytes, running
from benchmarks.scale import Scale

LOOKED_INTO, PLAIN = "looked.bench.example", "plain.bench.example"
PEER, PASSED = "mitmdump", "plain tunnel"
MANNERS = {
    **ours.MANNERS,
    LOOKED_INTO: 'private: true, tls: true, methods: [GET], paths: ["/**"]',
    PLAIN: "private: true, tls: true",
}
WIDTH = 8
_ENDS = [sys.executable, tlsends.__file__]
_ALL_NAMES = f"subjectAltName=DNS:localhost,DNS:{LOOKED_INTO},DNS:{PLAIN}"


class Way(NamedTuple):
    """A proxy, the name to ask it for, and whom to trust on that."""

    proxy: int
    host: str
    roots: str


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    certificate = _certificate(work)
    serve = running([*_ENDS, "serve", certificate], stdout=subprocess.PIPE)
    with serve as server, origin("echo") as echo, contextlib.ExitStack() as stack:
        port = int(first_line(server))
        without = {ours.ECHO: echo, PLAIN: port}
        looking = stack.enter_context(
            ours.gate(
                work, ours.policy({**without, LOOKED_INTO: port}, MANNERS), "--upstream-ca", certificate, name="looking"
            )
        )
        trusting = stack.enter_context(ours.gate(work, ours.policy(without, MANNERS), name="trusting"))
        ways = {OURS: Way(looking.port, LOOKED_INTO, _our_roots(work)), PASSED: Way(looking.port, PLAIN, certificate)}
        missing = {}
        try:
            ways[PEER] = stack.enter_context(_mitmdump(work, certificate))
        except Failed as failed:
            missing[PEER] = str(failed)
        yield from _conversations(ways, port, scale, missing)
        yield _memory(looking, trusting)
        yield _others(looking, trusting, echo, scale)


def _conversations(ways: dict[str, Way], port: int, scale: Scale, missing: dict[str, str]) -> Iterator[Figure]:
    def contestants(field: str, *words: object) -> dict[str, Measure]:
        return {who: (lambda way=way: _ask(way, port, *words)[field]) for who, way in ways.items()}

    compare(1, contestants("per_second", WIDTH, WIDTH * 4, "/page"))  # certificates are made, engines warm
    rounds, failed = compare(scale.rounds, contestants("per_second", WIDTH, scale.inspected_pages, "/page"))
    what = f"inspected requests on kept connections, {WIDTH}"
    yield Figure("inspected_pages", what, "requests/s", True, rounds, (Goal(PEER, 1),), {**missing, **failed})
    bulk = scale.inspected_bulk >> 20 << 20
    rounds, failed = compare(scale.rounds, contestants("mb_per_second", 1, 1, f"/bulk/{bulk}"))
    goals = (Goal(PEER, 0.95),)
    yield Figure("inspected_bulk", "inspected bulk", "MB/s", True, rounds, goals, {**missing, **failed})


def _ask(way: Way, port: int, *words: object) -> dict[str, float]:
    command = [*_ENDS, "ask", str(way.proxy), way.host, str(port), way.roots, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise Failed(done.stderr.strip().rpartition("\n")[2])
    report: dict[str, float] = json.loads(done.stdout)
    if report["failed"]:
        raise Failed(f"{report['failed']} failed")
    return report


def _memory(looking: Gate, trusting: Gate) -> Figure:
    """What the engine adds, after all that it has carried."""
    added = megabytes(family(looking.pid)) - megabytes(family(trusting.pid))
    return Figure("inspected_memory", "memory that inspection adds", "MB", False, {OURS: [added]}, (Goal("", 80),))


def _others(looking: Gate, trusting: Gate, echo: int, scale: Scale) -> Figure:
    """Tunnels to a host without request rules, where another host has some, and where none has."""

    def one(gate: Gate) -> Measure:
        words = ("run", f"connect:{gate.port}", ours.ECHO, echo, scale.width, scale.tunnels)
        return lambda: tunnels(*words)["per_second"]

    compare(1, {OURS: one(looking), "no inspection": one(trusting)})
    rounds, _ = compare(scale.rounds, {OURS: one(looking), "no inspection": one(trusting)})
    what = "tunnels to hosts that are not inspected, beside ones that are"
    return Figure("inspected_others", what, "/s", True, rounds, (Goal("no inspection", 0.95),))


@contextlib.contextmanager
def _mitmdump(work: Path, certificate: str) -> Iterator[Way]:
    port = free_port()
    command = [*peers.mitmdump(work, port), "--set", f"ssl_verify_upstream_trusted_ca={certificate}"]
    with running(command, port):
        yield Way(port, "localhost", _once_there(work / "mitmproxy" / "mitmproxy-ca-cert.pem"))


def _once_there(path: Path) -> str:
    deadline = time.monotonic() + 10
    while not path.exists():
        if time.monotonic() > deadline:
            raise Failed(f"{path.name} was not made")
        time.sleep(0.05)
    return str(path)


def _our_roots(work: Path) -> str:
    command = [str(ROOT / "scripts" / "egress"), "ca", "--path"]
    done = subprocess.run(command, env=ours.environment(work), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _certificate(work: Path) -> str:
    """A server's certificate, its own authority, with its key."""
    path = str(work / "server.pem")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-days", "2", "-subj", "/CN=bench", "-addext", _ALL_NAMES, "-keyout", path, "-out", f"{path}.crt"]
    subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
    with Path(path).open("a") as file:
        file.write(Path(f"{path}.crt").read_text())
    return path
