"""The tools people would use instead: found on the machine, or fetched into the cache of the benchmark.

Debian's packages are unpacked there, not installed: a benchmark must not leave a squid that starts with the
machine. A peer that cannot be had is reported as missing, with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Failed
from benchmarks.generator import CACHE
from benchmarks.processes import free_port, running

SRT = "@anthropic-ai/sandbox-runtime@0.0.78"
PACKAGES = {
    "squid": "squid", "tinyproxy": "tinyproxy-bin", "microsocks": "microsocks", "danted": "dante-server",
    "socat": "socat", "rg": "ripgrep", "firejail": "firejail", "dnsmasq": "dnsmasq-base", "unbound": "unbound",
    "dnsperf": "dnsperf", "taskset": "util-linux", "bwrap": "bubblewrap",
}  # fmt: skip
_UNPACKED = CACHE / "debian"
_BIN = [str(_UNPACKED / where) for where in ("usr/bin", "usr/sbin")]
_SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", *_BIN])
_FROM_PYPI = CACHE / "python"
# it still expects a loop to be there before any runs
_PPROXY = (
    "import asyncio; loop = asyncio.new_event_loop(); asyncio.get_event_loop = lambda: loop; "
    "import pproxy.server as it; it.main()"
)


class Proxy(NamedTuple):
    """A running peer: how clients ask it, and its process."""

    via: str
    pid: int


def find(name: str) -> str:
    """The path of a program; Failed, if it is not to be had."""
    found = shutil.which(name, path=_SEARCHED)
    if found is None and name in PACKAGES:
        _unpack(PACKAGES[name])
        found = shutil.which(name, path=_SEARCHED)
    if found is None:
        raise Failed(f"{name} could not be installed")
    return found


def environment() -> dict[str, str]:
    """For those that came with libraries of their own."""
    libraries = [str(path) for path in (_UNPACKED / "usr/lib").glob("*-linux-gnu")]
    extra = {"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else {}
    return {**os.environ, "PATH": _SEARCHED, **extra}


def _unpack(package: str) -> None:
    archives = CACHE / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    fetch = ["apt-get", "-o", "Debug::NoLocking=1", "-o", f"Dir::Cache::archives={archives}", "-y"]
    fetch += ["--no-install-recommends", "--download-only", "install", package]
    with contextlib.suppress(OSError):
        _quietly(fetch)
        for archive in archives.glob("*.deb"):
            _quietly(["dpkg", "-x", str(archive), str(_UNPACKED)])


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def srt(settings: str) -> tuple[str, ...]:
    """The words before a command, as one word of shell, that put it into sandbox-runtime's sandbox."""
    program = CACHE / "node_modules" / ".bin" / "srt"
    if not program.exists() and shutil.which("npm"):
        _quietly(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(CACHE), SRT])
    if not program.exists():
        raise Failed(f"{SRT} could not be installed")
    for need in ("socat", "rg", "bwrap"):
        find(need)
    return (str(program), "--settings", settings, "-c")


def _python(module: str, package: str) -> dict[str, str]:
    if not (_FROM_PYPI / module).exists():
        _quietly([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(_FROM_PYPI), package])
    if not (_FROM_PYPI / module).exists():
        raise Failed(f"{package} could not be installed")
    return {**os.environ, "PYTHONPATH": str(_FROM_PYPI)}


# --- proxies, each on a port of its own; those that keep a log keep it, as we do

SQUID = """\
http_port 127.0.0.1:{port}
http_access allow all
cache deny all
access_log stdio:{work}/access.log
cache_log {work}/cache.log
pid_filename none
coredump_dir {work}
shutdown_lifetime 0 seconds
pinger_enable off
max_filedescriptors 16384
"""
TINYPROXY = """\
Port {port}
Listen 127.0.0.1
MaxClients 10000
Timeout 600
LogFile "{work}/tinyproxy.log"
LogLevel Connect
"""
DANTE = """\
logoutput: {work}/dante.log
internal: 127.0.0.1 port = {port}
external: lo
socksmethod: none
clientmethod: none
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 log: connect }}
"""


@contextlib.contextmanager
def _serving(way: str, port: int, command: list[str], env: dict[str, str] | None = None) -> Iterator[Proxy]:
    with running(command, port, env=env or environment()) as process:
        yield Proxy(f"{way}:{port}", process.pid)


def _configured(work: Path, name: str, text: str, port: int) -> str:
    own = work / name
    own.mkdir(exist_ok=True)
    own.chmod(0o777)  # squid and danted give up root, and then write their logs
    (own / "conf").write_text(text.format(port=port, work=own))
    return str(own / "conf")


def squid(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    return _serving("connect", port, [find("squid"), "-N", "-f", _configured(work, "squid", SQUID, port)])


def tinyproxy(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    return _serving("connect", port, [find("tinyproxy"), "-d", "-c", _configured(work, "tinyproxy", TINYPROXY, port)])


def microsocks(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    return _serving("socks5", port, [find("microsocks"), "-i", "127.0.0.1", "-p", str(port)])


def dante(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    config = _configured(work, "dante", DANTE, port)
    return _serving("socks5", port, [find("danted"), "-f", config, "-p", f"{work}/dante/pid"])


def mitmproxy(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    """Of our own interpreter; tunnels pass through it unopened."""
    port = free_port()
    return _serving("connect", port, [*mitmdump(work, port), "--ignore-hosts", ".*"])


def mitmdump(work: Path, port: int) -> list[str]:
    program = Path(sys.executable).with_name("mitmdump")
    if not program.exists():
        raise Failed("mitmdump is not beside this interpreter")
    listen = ["--listen-host", "127.0.0.1", "--listen-port", str(port)]
    return [str(program), "--quiet", *listen, "--set", f"confdir={work}/mitmproxy", "--set", "stream_large_bodies=1"]


def proxy_py(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    words = ["--hostname", "127.0.0.1", "--port", str(port), "--num-workers", "1", "--num-acceptors", "1"]
    command = [sys.executable, "-m", "proxy", *words, "--log-level", "e", "--data-dir", f"{work}/proxy.py"]
    return _serving("connect", port, command, _python("proxy", "proxy.py"))


def pproxy(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    command = [sys.executable, "-c", _PPROXY, "-l", f"http+socks5://127.0.0.1:{port}"]
    return _serving("connect", port, command, _python("pproxy", "pproxy"))


Starter = Callable[[Path], contextlib.AbstractContextManager[Proxy]]
PROXIES: dict[str, Starter] = {
    "squid": squid, "tinyproxy": tinyproxy, "microsocks": microsocks, "dante": dante,
    "mitmproxy": mitmproxy, "proxy.py": proxy_py, "pproxy": pproxy,
}  # fmt: skip


@contextlib.contextmanager
def socat(target: int) -> Iterator[int]:
    """A bare relay to one port, with as large a buffer as ours."""
    port = free_port()
    listen = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork,backlog=1024"
    with running([find("socat"), "-b", "65536", listen, f"TCP:127.0.0.1:{target}"], port, env=environment()):
        yield port


@contextlib.contextmanager
def all_of(starters: dict[str, Starter], work: Path) -> Iterator[tuple[dict[str, Proxy], dict[str, str]]]:
    """Those that run, and why the others do not."""
    there: dict[str, Proxy] = {}
    missing: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for name, starter in starters.items():
            try:
                there[name] = stack.enter_context(starter(work))
            except Failed as failed:
                missing[name] = str(failed)
        yield there, missing
