"""Other people's programs: found, or missed aloud, and run with nothing of whoever runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

PATIENCE = 30.0
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"  # an ordinary user's leaves out where Debian keeps sshd
# The Debian and Ubuntu package of each program that is not named as its package.
_PACKAGES = {
    "nc": "netcat-openbsd",
    "node": "nodejs",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "tinyproxy": "tinyproxy-bin",
}


class Done(NamedTuple):
    code: int
    out: str
    err: str


def need(*programs: str) -> None:
    """Skip, saying why and what would help, unless these are here."""
    missing = [_PACKAGES.get(program, program) for program in programs if shutil.which(program, path=PATH) is None]
    if missing:
        pytest.skip(f"programs are missing: apt-get install -y {' '.join(missing)}")


def environment(home: Path, **more: str) -> dict[str, str]:
    places = {name: str(home / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    return {"PATH": PATH, "LANG": "C.UTF-8", "HOME": str(home), **places, **more}


def run(home: Path, *words: str | Path, text: str = "", env: Mapping[str, str] | None = None) -> Done:
    done = subprocess.run(
        words,
        cwd=home,
        env=environment(home, **(env or {})),
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
