"""What the backends on the host itself are tried with: somebody, a server behind an allowed name, and probes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateprocess import Rules
from launchkit import Person, somebody
from servers import Web, greeting

PYTHON = "/usr/bin/python3"

# Runs inside. Each attempt is a line of Python; what comes of it is its value, or the name of its error.
_PROBE = """
import errno, json, os, socket, struct, sys, ctypes
libc = ctypes.CDLL(None, use_errno=True)

def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result

def connected(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as sock:
        sock.settimeout(5)
        sock.connect(address)
        return "connected"

def written(path):
    with open(path, "a") as file:
        file.write("x")
    return "written"

def attempt(line):
    try:
        return eval(line)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))

print(json.dumps({line: attempt(line) for line in json.loads(sys.argv[1])}))
"""


def probe(person: Person, *lines: str, options: tuple[str, ...]) -> dict[str, Any]:
    done = person.run(PYTHON, "-c", _PROBE, json.dumps(lines), options=options)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class House:
    """A person whose persona may reach `local.test`, where a server says hello, but not `denied.test`."""

    def __init__(self, person: Person, web: Web) -> None:
        self.person, self.web = person, web
        person.rules(
            Rules(allow={"local.test": "ports: [80]"}, hosts={"local.test": web.port, "denied.test": web.port})
        )


@contextmanager
def house(kind: str) -> Iterator[House]:
    web = Web(greeting)
    with web.running(), somebody(kind) as person:
        yield House(person, web)
