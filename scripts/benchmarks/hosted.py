"""Clients on the host itself, through the gate and through other proxies: bulk, tunnels, requests, idle tunnels."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import gate as ours
from benchmarks import peers
from benchmarks.figures import OURS, Failed, Figure, Goal, Measure, compare
from benchmarks.generator import client_hello, origin, program, tunnels
from benchmarks.peers import Proxy
from benchmarks.processes import family, megabytes, running
from benchmarks.scale import Scale

HOME = "127.0.0.1"  # what the peers are asked for: none of them has a name to look up
_SLOW = frozenset({"tinyproxy", "mitmproxy", "proxy.py", "pproxy"})  # a tenth of the work tells as much of these
_WITH_GOALS = ("squid", "mitmproxy")
_HTTP = ("squid", "tinyproxy", "mitmproxy", "proxy.py", "pproxy")


class Servers(NamedTuple):
    echo: int
    source: int
    pages: int

    @property
    def by_name(self) -> dict[str, int]:
        return {ours.ECHO: self.echo, ours.NAMED: self.echo, ours.SOURCE: self.source, ours.PAGES: self.pages}


@contextlib.contextmanager
def servers(bulk: int) -> Iterator[Servers]:
    with origin("echo") as echo, origin("source", bulk) as source, origin("pages", 1000) as pages:
        yield Servers(echo, source, pages)


def measure(work: Path, scale: Scale) -> Iterator[Figure]:
    starters = {name: start for name, start in peers.PROXIES.items() if scale.every_peer or name in _WITH_GOALS}
    with (
        servers(scale.bulk) as there,
        ours.gate(work, ours.policy(there.by_name)) as gate,
        peers.all_of(starters, work) as (proxies, missing),
    ):
        stage = Stage(work, scale, there, Proxy(f"connect:{gate.port}", gate.pid), proxies, missing)
        yield stage.bulk()
        yield stage.tunnels()
        yield stage.named_tunnels()
        yield stage.one_by_one()
        yield stage.pages()
        yield from stage.idle()


class Stage(NamedTuple):
    """Everybody who is up, and what they are measured with."""

    work: Path
    scale: Scale
    there: Servers
    gate: Proxy
    proxies: Mapping[str, Proxy]
    missing: Mapping[str, str]

    def bulk(self) -> Figure:
        def one(via: str, host: str, port: int) -> Measure:
            return lambda: tunnels("bulk", via, host, port)["gb_per_second"]

        contestants = {OURS: one(self.gate.via, ours.SOURCE, self.there.source)}
        contestants |= {name: one(each.via, HOME, self.there.source) for name, each in self._goal_or_all().items()}
        missing = dict(self.missing)
        with contextlib.ExitStack() as stack:
            try:
                contestants["socat"] = one("direct", HOME, stack.enter_context(peers.socat(self.there.source)))
            except Failed as failed:
                missing["socat"] = str(failed)
            contestants["no proxy"] = one("direct", HOME, self.there.source)
            rounds, failed_ones = compare(self.scale.rounds, contestants)
        goals = (Goal("squid", 1.15), Goal("socat", 0.95))
        return Figure("bulk", "bulk through CONNECT", "GB/s", True, rounds, goals, {**missing, **failed_ones})

    def _goal_or_all(self) -> dict[str, Proxy]:
        """For tunnels; mitmproxy's goal is about requests."""
        return {name: proxy for name, proxy in self.proxies.items() if self.scale.every_peer or name == "squid"}

    def tunnels(self) -> Figure:
        """Of bytes that nobody looks at."""
        return self._run("tunnels", "tunnels, {width} at a time", ours.ECHO, self.scale.width, self.scale.tunnels)

    def named_tunnels(self) -> Figure:
        """Each begins with a real ClientHello, which the gate reads and checks against the target."""
        hello = self.work / "hello"
        hello.write_bytes(client_hello(ours.NAMED))
        what = "the same with a TLS hello, whose name the gate checks"
        return self._run("named_tunnels", what, ours.NAMED, self.scale.width, self.scale.tunnels, str(hello))

    def _run(self, key: str, what: str, host: str, width: int, total: int, *payload: str) -> Figure:
        def one(name: str, via: str, asked: str) -> Measure:
            words = ("run", via, asked, self.there.echo, width, total // _share(name), *payload)
            return lambda: tunnels(*words)["per_second"]

        contestants = {OURS: one(OURS, self.gate.via, host)}
        contestants |= {name: one(name, each.via, HOME) for name, each in self._goal_or_all().items()}
        rounds, failed = compare(self.scale.rounds, contestants)
        what = what.format(width=width)
        return Figure(key, what, "/s", True, rounds, (Goal("squid", 1.0),), {**self.missing, **failed})

    def one_by_one(self) -> Figure:
        def one(name: str, via: str, host: str) -> Measure:
            words = ("run", via, host, self.there.echo, 1, self.scale.one_by_one // _share(name))
            return lambda: tunnels(*words)["p50_ms"]

        contestants = {OURS: one(OURS, self.gate.via, ours.ECHO), "no proxy": one("", "direct", HOME)}
        contestants |= {name: one(name, each.via, HOME) for name, each in self._goal_or_all().items()}
        rounds, failed = compare(self.scale.rounds, contestants)
        missing = {**self.missing, **failed}
        return Figure("one_by_one", "one tunnel at a time, p50", "ms", False, rounds, (Goal("squid", 1.3),), missing)

    def pages(self) -> Figure:
        def one(proxy: Proxy, host: str, total: int) -> Measure:
            via = proxy.via.replace("connect:", "http:")
            return lambda: tunnels("pages", via, host, self.there.pages, 16, total)["per_second"]

        contestants = {OURS: one(self.gate, ours.PAGES, self.scale.pages)}
        for name, proxy in self.proxies.items():
            if name in _HTTP:
                contestants[name] = one(proxy, HOME, self.scale.pages // _share(name))
        rounds, failed = compare(self.scale.rounds, contestants)
        goals = (Goal("squid", 0.7), Goal("mitmproxy", 5))
        missing = {**{name: why for name, why in self.missing.items() if name in _HTTP}, **failed}
        return Figure("pages", "plain HTTP on kept connections, 16", "requests/s", True, rounds, goals, missing)

    def idle(self) -> Iterator[Figure]:
        """Nothing may be lost, memory is bounded, and a new tunnel takes what it took before."""
        words = ("run", self.gate.via, ours.ECHO, self.there.echo, 16, self.scale.tunnels // 2)
        before = [tunnels(*words)["per_second"] for _ in range(3)]
        with self._held(self.gate, ours.ECHO) as (each, alive):
            during = [tunnels(*words)["per_second"] for _ in range(3)]
        lost = self.scale.idle - alive()
        memory = {OURS: [each]}
        if "squid" in self.proxies:
            with self._held(self.proxies["squid"], HOME) as (theirs, _):
                memory["squid"] = [theirs]
        count = f"{self.scale.idle:,} idle tunnels"
        yield Figure("idle_memory", f"{count}, memory of each", "KiB", False, memory, (Goal("", 40),))
        yield Figure("idle_lost", f"{count}, lost", "tunnels", False, {OURS: [float(lost)]}, (Goal("", 0),))
        others = {OURS: during, "without them": before}
        yield Figure("idle_others", f"new tunnels beside {count}", "/s", True, others, (Goal("without them", 0.9),))

    @contextlib.contextmanager
    def _held(self, proxy: Proxy, host: str) -> Iterator[tuple[float, Alive]]:
        """KiB of memory for each tunnel, and a question for the end: how many are there still?"""
        empty = megabytes(family(proxy.pid))
        command = [program("tunnels"), "hold", proxy.via, host, str(self.there.echo), str(self.scale.idle)]
        with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None  # noqa: S101  # a pipe was asked for
            process.stdout.readline()
            full = megabytes(family(proxy.pid))
            alive = Alive(process)
            yield (full - empty) * 1e6 / 1024 / self.scale.idle, alive
            alive()


def _share(name: str) -> int:
    return 10 if name in _SLOW else 1


class Alive:
    """Asked once, remembers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._count = process, -1

    def __call__(self) -> int:
        if self._count < 0:
            out, _ = self._process.communicate("\n", timeout=60)
            self._count = int(json.loads(out.splitlines()[-1])["alive"])
        return self._count
