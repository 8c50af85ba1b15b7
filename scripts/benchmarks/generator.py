"""The load generator and its far ends: two small C programs, compiled on first use into the cache."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Failed
from benchmarks.processes import first_line, running

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egress-bench"
_SOURCES = Path(__file__).parent / "load"


def program(name: str) -> str:
    source, built = _SOURCES / f"{name}.c", CACHE / "bin" / name
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        built.parent.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise Failed("no C compiler for the load generator")
        subprocess.run([compiler, "-O2", "-o", str(built), str(source)], check=True)
    return str(built)


@contextlib.contextmanager
def origin(*words: object) -> Iterator[int]:
    """A server of a kind; its port."""
    with running([program("origin"), *map(str, words)], stdout=subprocess.PIPE) as process:
        yield int(first_line(process))


def tunnels(*words: object, inside: tuple[str, ...] = (), binary: str | None = None, **how: Any) -> dict[str, float]:
    """What the load generator reports; `inside` is the command that runs it in a sandbox."""
    own = [binary or program("tunnels"), *map(str, words)]
    command = [*inside, " ".join(own)] if inside and inside[-1] == "-c" else [*inside, *own]
    how = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **how}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=90, check=True, **how)
        report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise Failed("it took too long") from None
    except (subprocess.CalledProcessError, ValueError, IndexError) as error:
        raise Failed(_last_line(getattr(error, "stderr", None)) or "it did not work") from None
    if report.get("failed"):
        raise Failed(f"{report['failed']} of {report['failed'] + report['done']} failed")
    return report


def _last_line(text: str | None) -> str:
    return (text or "").strip().rpartition("\n")[2]


def client_hello(host: str) -> bytes:
    """What a real client would say first, to a host by that name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return outgoing.read()
