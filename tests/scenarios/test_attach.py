"""A gate for a process that somebody else has put into a network without a way out."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator

import pytest
from attachkit import Attached, attaching, started
from gateprocess import PATIENCE, Rules, until
from launchkit import PEOPLE, Person, children, processes, somebody
from programs import need
from servers import Web, greeting

pytestmark = pytest.mark.scenario

CURL = "curl --silent --show-error --max-time 10"
HELLO = "hello from allowed.test\n"
LOOK = "ip address show | grep -v qdisc; ip -4 route show table all; ip -6 route show table all; ss -ltnuH"


class Inmate:
    """A shell that somebody has started with nothing but a loopback, and that is down."""

    def __init__(self, person: Person) -> None:
        need("curl", "unshare", "ip", "ss")
        self.process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--net", "sh"],
            env=person.env,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            **person.identity,
        )
        self.do("true")  # it is where it should be

    def do(self, command: str) -> str:
        """What it says."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{command}\necho the=end\n".encode())
        said = b""
        while not said.endswith(b"the=end\n"):
            assert select.select([self.process.stdout], [], [], PATIENCE)[0], said
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, said
            said += more
        return said.decode().removesuffix("the=end\n")

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(autouse=True)
def _none_stays() -> Iterator[None]:
    """Of a test that failed."""
    yield
    while started:
        with started.pop() as process:
            process.kill()


def refused(person: Person, pid: int | str, *words: str) -> tuple[int, str]:
    with attaching(person, pid, *words) as process:
        out, said = process.communicate(timeout=PATIENCE)
    assert out == b""
    return process.returncode, said.decode()


@pytest.fixture(scope="module", params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    web = Web(greeting)
    with somebody(request.param) as made, web.running():
        made.rules(Rules(allow={"allowed.test": ""}, hosts={"allowed.test": web.port, "other.test": web.port}))
        yield made


@pytest.fixture
def inmate(person: Person) -> Iterator[Inmate]:
    made = Inmate(person)
    try:
        yield made
    finally:
        made.close()


def test_programs_reach_what_the_persona_may_and_nothing_else(person: Person, inmate: Inmate) -> None:
    person.audit.unlink(missing_ok=True)
    assert "Could not resolve host" in inmate.do(f"{CURL} http://allowed.test/")
    attached = Attached(person, inmate.process.pid)
    assert attached.fact == "http://127.0.0.1:3128 p\n"
    assert inmate.do(f"{CURL} http://allowed.test/") == HELLO
    assert inmate.do(f"{CURL} -x 127.0.0.1:3128 http://allowed.test/") == HELLO
    assert "not on the allowlist" in inmate.do(f"{CURL} http://other.test/")
    attached.process.send_signal(signal.SIGTERM)
    code, said = attached.ended()
    assert code == 0
    assert f"all that process {inmate.process.pid} connects to is captured" in said
    decisions = [(it["via"], it["host"], it["verdict"]) for it in person.records() if it["event"] == "decision"]
    assert ("capture", "allowed.test", "allow") in decisions
    assert ("http", "allowed.test", "allow") in decisions
    assert ("capture", "other.test", "deny") in decisions


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whoever_detaches_leaves_the_network_as_it_was(person: Person, inmate: Inmate, number: int) -> None:
    before = inmate.do(LOOK)
    attached = Attached(person, inmate.process.pid)
    (visitor,) = children(attached.process.pid)
    assert inmate.do(LOOK) != before
    attached.process.send_signal(number)
    code, _ = attached.ended()
    until(lambda: not os.path.exists(f"/proc/{visitor}"))
    assert code == (-number if number == signal.SIGKILL else 0)
    assert inmate.do(LOOK) == before
    assert "Could not resolve host" in inmate.do(f"{CURL} http://allowed.test/")


def test_it_ends_with_the_process(person: Person, inmate: Inmate) -> None:
    attached = Attached(person, inmate.process.pid)
    inmate.process.kill()
    code, said = attached.ended()
    assert (code, "error" in said) == (0, False)


def test_the_proxy_can_be_elsewhere(person: Person, inmate: Inmate) -> None:
    attached = Attached(person, inmate.process.pid, "--port", "8080")
    assert attached.fact == "http://127.0.0.1:8080 p\n"
    assert inmate.do(f"{CURL} -x 127.0.0.1:8080 http://allowed.test/") == HELLO
    attached.process.terminate()
    assert attached.ended()[0] == 0


def test_a_second_gate_is_refused(person: Person, inmate: Inmate) -> None:
    first = Attached(person, inmate.process.pid)
    code, said = refused(person, inmate.process.pid)
    assert code == 125
    assert f"the network of process {inmate.process.pid} has a gate already\n" in said
    first.process.terminate()
    assert first.ended()[0] == 0


def test_the_hosts_own_network_is_refused(person: Person) -> None:
    with subprocess.Popen(["sleep", "60"], **person.identity) as process:
        code, said = refused(person, process.pid)
        process.kill()
    assert code == 125
    assert f"error: process {process.pid} is in the host's own network, which nobody can be kept in\n" in said
    assert "hint: start it in one of its own: podman run --network none …, or unshare --net" in said


def test_another_interface_is_refused_and_named(person: Person, inmate: Inmate) -> None:
    inmate.do("ip tuntap add dev way-out mode tun")
    code, said = refused(person, inmate.process.pid)
    assert code == 125
    assert "a way past the gate: way-out\n" in said


@pytest.mark.parametrize(
    ("pid", "words", "code", "says"),
    [
        ("x", (), 2, "--pid 'x' is not the number of a process"),
        ("-1", (), 2, "--pid '-1' is not the number of a process"),
        ("4194303", (), 125, "there is no process 4194303"),
        ("1", ("--port", "0"), 2, "--port '0' is not a port from 1 to 65535"),
        ("1", ("--upstream", "ftp://x"), 2, "ftp://x"),
        ("1", ("--persona", "nobody"), 2, "nobody"),
    ],
)
def test_what_cannot_be_is_said(person: Person, pid: str, words: tuple[str, ...], code: int, says: str) -> None:
    got, said = refused(person, pid, *words)
    assert got == code
    assert says in said
    assert "hint: " in said


def test_nothing_is_left_running(person: Person, inmate: Inmate) -> None:
    token = f"--audit={person.home}/{os.urandom(6).hex()}"
    attached = Attached(person, inmate.process.pid, token)
    assert len(processes(token)) == 2
    attached.process.terminate()
    attached.ended()
    assert processes(token) == {}
