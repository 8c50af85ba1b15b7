"""Programs that hold sandboxes by the Python interface, run as somebody: root, or an ordinary user."""

from __future__ import annotations

import json
import subprocess
import textwrap
from typing import Any

from launchkit import PATIENCE, Person

PRELUDE = """
from __future__ import annotations
import asyncio, json, os, signal, sys, threading, time
import launcher
from launcher import *
SETTINGS = Settings(persona="p", policy=[{policy!r}], audit={audit!r})
def say(*values):
    told = values[0] if len(values) == 1 else values
    print(json.dumps(told, default=lambda it: it.decode(errors="replace")), flush=True)
"""


def source(person: Person, story: str) -> str:
    prelude = PRELUDE.format(policy=str(person.policy), audit=str(person.audit)).strip()
    return f"{prelude}\n{textwrap.dedent(story)}"


def words(person: Person, story: str, *args: str) -> list[str]:
    return [person.installation.python, "-P", "-W", "error", "-c", source(person, story), *args]


def tell(person: Person, story: str, *args: str) -> list[Any]:
    """Run it to its end; what it said."""
    done = subprocess.run(
        words(person, story, *args),
        cwd=person.project,
        env=person.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=3 * PATIENCE,
        check=False,
        **person.identity,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def begin(person: Person, story: str, *args: str) -> subprocess.Popen[bytes]:
    """Start it; it is somebody's to end."""
    return subprocess.Popen(
        words(person, story, *args),
        cwd=person.project,
        env=person.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        **person.identity,
    )
