"""Programs in a sandbox are told apart, by root and by an ordinary user: through the proxy, captured, and forked."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launchkit import PATIENCE, PEOPLE, Person, somebody
from netnskit import NESTED, PYTHON, VIEW

pytestmark = pytest.mark.scenario

TESTS = Path(__file__).resolve().parent.parent
# Connects, waits until the host has looked and closed, and says who it was.
CLIENT = """
import os, socket, sys
family, host, port = sys.argv[1:4]
with socket.socket(getattr(socket, family)) as sock:
    sock.connect((host, int(port)))
    sock.recv(1)
print(os.getpid(), flush=True)
"""
FORKING = """
import os, socket
sock = socket.create_connection(("127.0.0.1", 3128))
if os.fork() == 0:
    sock.recv(1)
    os._exit(0)
os.wait()
print(os.getpid(), flush=True)
"""
# The child's child connects, once the child has ended; the parent waits for the end of the pipe.
ORPHAN = """
import os, socket
reading, writing = os.pipe()
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            os.sched_yield()
        with socket.create_connection(("127.0.0.1", 3128)) as sock:
            sock.recv(1)
        print(os.getpid(), flush=True)
    os._exit(0)
os.close(writing)
os.read(reading, 1)
"""


@pytest.fixture(params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as someone:
        yield someone


def story(person: Person, *command: str) -> dict[str, Any]:
    for path in (TESTS / "netnsstory.py", TESTS / "scenarios" / "attributionstory.py"):
        shutil.copy(path, person.home)
    person.own()
    request = json.dumps({"bwrap": [*NESTED, *VIEW], "command": command})
    words = [person.installation.python, str(person.home / "attributionstory.py"), request]
    done = subprocess.run(
        words, env=person.env, cwd="/", stdout=subprocess.PIPE, timeout=PATIENCE, check=True, **person.identity
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("family", "host", "port", "role"),
    [
        ("AF_INET", "127.0.0.1", 3128, "proxy"),
        ("AF_INET6", "::ffff:127.0.0.1", 3128, "proxy"),
        ("AF_INET", "192.0.2.9", 443, "capture"),
        ("AF_INET6", "::ffff:192.0.2.9", 443, "capture"),
        ("AF_INET6", "2001:db8::9", 8443, "capture"),
    ],
)
def test_a_program_is_found_by_its_number_inside(person: Person, family: str, host: str, port: int, role: str) -> None:
    told = story(person, PYTHON, "-c", CLIENT, family, host, str(port), "--token", "hunter2")
    (seen,) = told["seen"]
    assert (told["status"], seen["role"], seen["to"]) == (0, role, [host.removeprefix("::ffff:"), port])
    assert seen["who"]["pid"] == int(told["output"]) != told["root"]
    assert seen["who"]["exe"] == str(Path(PYTHON).resolve())
    assert seen["who"]["command"].startswith(f"{PYTHON} -c \\nimport os, socket, sys")


def test_of_several_programs_each_connection_names_its_own(person: Person) -> None:
    curl = "curl -s -H 'authorization: Bearer hunter2' http://192.0.2.7/"
    told = story(person, "/bin/sh", "-c", f"{curl}; {PYTHON} -c '{CLIENT}' AF_INET 192.0.2.8 22; true")
    by_host = {seen["to"][0]: seen["who"] for seen in told["seen"]}
    assert by_host["192.0.2.7"]["exe"] == "/usr/bin/curl"
    assert by_host["192.0.2.7"]["command"] == "curl -s -H authorization: *** http://192.0.2.7/"
    assert by_host["192.0.2.8"]["exe"] == str(Path(PYTHON).resolve())
    assert by_host["192.0.2.8"]["pid"] == int(told["output"])


def test_who_forks_after_it_connected_is_the_one(person: Person) -> None:
    told = story(person, PYTHON, "-c", FORKING)
    (seen,) = told["seen"]
    assert seen["who"]["pid"] == int(told["output"])


def test_who_lost_its_parent_is_found(person: Person) -> None:
    told = story(person, PYTHON, "-c", ORPHAN)
    (seen,) = told["seen"]
    assert seen["who"]["pid"] == int(told["output"])
