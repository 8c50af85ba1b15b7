"""`--backend landlock`, as root and as an ordinary user: what a program inside can reach, and what it cannot."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostkit import PYTHON, House, house, probe
from launchkit import PEOPLE
from programs import need

from launcher.backends.landlocked import examine
from launcher.backends.model import Fit, Lack

FOUND = examine()
pytestmark = [
    pytest.mark.scenario,
    pytest.mark.skipif(not isinstance(FOUND, Fit), reason=f"no Landlock on this machine: {FOUND}"),
]
LANDLOCK = ("--backend", "landlock")
ALLOWED, DENIED = "http://local.test/", "http://denied.test/"
NODE = """
const proxy = new URL(process.env.HTTP_PROXY), {username, password, hostname, port} = proxy
const headers = {"Proxy-Authorization": "Basic " + btoa(`${username}:${password}`)}
require("http").get({hostname, port, path: process.argv[1], headers}, answer => answer.pipe(process.stdout))
"""
URLLIB = "import urllib.request as u, sys; print(u.urlopen(sys.argv[1]).read().decode())"


@pytest.fixture(scope="module", params=PEOPLE)
def home(request: pytest.FixtureRequest) -> Iterator[House]:
    with house(request.param) as made:
        yield made


def one(home: House, line: str, *options: str) -> object:
    return probe(home.person, line, options=(*LANDLOCK, *options))[line]


def open_ones(home: House, *lines: str) -> dict[str, object]:
    """Those of them that were not refused."""
    found = probe(home.person, *lines, options=LANDLOCK)
    return {line: answer for line, answer in found.items() if answer not in ("EACCES", "EPERM", "EXDEV")}


# The way out


@pytest.mark.parametrize(
    "words",
    [("curl", "-sS"), ("node", "-e", NODE), (PYTHON, "-c", URLLIB)],
    ids=["curl", "node", "python"],
)
def test_programs_reach_what_is_allowed_and_nothing_else(home: House, words: tuple[str, ...]) -> None:
    need(words[0])
    done = home.person.run(*words, ALLOWED, options=LANDLOCK)
    assert (done.returncode, done.stdout.strip()) == (0, b"hello from local.test"), done.stderr
    seen = len(home.web.seen)
    done = home.person.run(*words, DENIED, options=LANDLOCK)
    assert b"denied.test" in done.stdout + done.stderr
    assert len(home.web.seen) == seen
    record = home.person.records()[-1]
    assert (record["verdict"], record["reason"], record["host"]) == ("deny", "not_listed", "denied.test")
    assert record["backend"] == "landlock"
    assert {"capture", "protect", "processes"} <= set(record["lacks"])


def test_git_asks_with_its_password_at_once(home: House) -> None:
    need("git")
    before = len(home.person.records())
    done = home.person.run("git", "ls-remote", f"{DENIED}x.git", options=LANDLOCK)
    assert done.returncode == 128
    assert [record["reason"] for record in home.person.records()[before:]] == ["not_listed"]


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_the_first_line_says_what_is_missing_even_to_who_wants_quiet(home: House, quiet: tuple[str, ...]) -> None:
    first = home.person.run("true", options=(*LANDLOCK, *quiet)).stderr.splitlines()[0]
    assert first.startswith(b"egress: warning: backend landlock does not enforce: capture, protect, processes")


# Sockets


def test_no_other_address_or_port_can_be_connected_to(home: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        plain = [("127.0.0.1", port), ("127.0.0.2", port), ("192.0.2.1", 443), ("0.0.0.0", port)]
        wide = [("::1", port), ("::ffff:127.0.0.1", port), ("2001:db8::1", 443)]
        lines = [f"connected(socket.AF_INET, {address!r})" for address in plain]
        lines += [f"connected(socket.AF_INET6, {address!r})" for address in wide]
        assert open_ones(home, *lines) == {}
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


GATE = "int(os.environ['HTTPS_PROXY'].rpartition(':')[2])"


def test_the_gates_port_is_the_gates_on_loopback_only(home: House) -> None:
    """Landlock by itself would let the same port of any machine through."""
    gate = [f"connected(socket.AF_INET, ('127.0.0.1', {GATE}))"]
    gate += [f"connected(socket.AF_INET6, ('::ffff:127.0.0.1', {GATE}))"]
    others = [f"connected(socket.AF_INET, ({host!r}, {GATE}))" for host in ("127.0.0.2", "192.0.2.1", "0.0.0.0")]
    assert open_ones(home, *gate, *others) == dict.fromkeys(gate, "connected")


WAYS_OUT = (
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)",
    "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
    "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)",
    "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)",
    "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "called(libc.syscall(425, 1, None))",
    "socket.socket().listen()",
    f"socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', {GATE}))",
    f"socket.socket().sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', {GATE}))",
    "called(libc.shmget(1, 4096, 0o1600))",
    "called(libc.prlimit(1, 7, None, None))",
    "socket.create_server(('127.0.0.1', 0))",
)


def test_no_other_way_out_is_open(home: House) -> None:
    assert open_ones(home, *WAYS_OUT) == {}


def test_unix_sockets_lead_nowhere_unless_let_in(home: House) -> None:
    path = home.person.project / "service.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(str(path))
        server.listen()
        path.chmod(0o777)
        home.person.own()
        abstract.bind(f"\0{path}")
        abstract.listen()
        try:
            assert one(home, f"connected(socket.AF_UNIX, {str(path)!r})") == "EACCES"
            assert one(home, "connected(socket.AF_UNIX, 'service.sock')") == "EACCES"
            assert one(home, f"connected(socket.AF_UNIX, '\\0' + {str(path)!r})") == "EACCES"
            assert one(home, f"connected(socket.AF_UNIX, {str(path)!r})", "--socket", str(path)) == "connected"
        finally:
            path.unlink()


SERVED = """
import os, socket, threading
os.chdir(os.environ["TMPDIR"])
server = socket.socket(socket.AF_UNIX)
server.bind("own.sock")
server.listen()
threading.Thread(target=lambda: [server.accept()[0].sendall(b"from inside") for _ in range(2)]).start()
for name in (os.path.abspath("own.sock"), "own.sock"):
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    print(client.recv(100).decode())
"""


def test_a_server_inside_can_be_connected_to_by_its_path(home: House) -> None:
    done = home.person.run(PYTHON, "-c", SERVED, options=LANDLOCK)
    assert done.stdout == b"from inside\n" * 2, done.stderr


def test_pairs_of_sockets_and_pipes_work_inside(home: House) -> None:
    assert one(home, "[s.close() for s in socket.socketpair()]") == [None, None]
    assert one(home, "len(socket.if_nameindex()) > 0")


# Files

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


def test_files_outside_cannot_be_read_or_written(home: House) -> None:
    outside = home.person.home / "secret"
    outside.write_text("secret")
    home.person.own()
    nowhere = f"egress-{os.urandom(6).hex()}"
    hidden = [outside, Path(f"/proc/self/root{outside}"), home.person.audit, home.person.policy]
    system = ["/etc/passwd", "/usr/bin/env", "/proc/sys/kernel/hostname", *(f"{top}/{nowhere}" for top in TEMPORARY)]
    assert (
        open_ones(
            home,
            *(f"open({str(path)!r}).read()" for path in hidden),
            *(f"written({str(path)!r})" for path in (*hidden, *system)),
            *(f"os.listdir({str(path)!r})" for path in (home.person.home, "/tmp", "/root", "/run", "/")),
            f"os.unlink({str(outside)!r})",
            f"os.link({str(outside)!r}, 'here')",
            f"os.rename({str(outside)!r}, 'here')",
            f"os.truncate({str(outside)!r}, 0)",
        )
        == {}
    )
    assert outside.read_text() == "secret"
    outside.unlink()


def test_the_project_is_writable_and_the_system_readable(home: House) -> None:
    assert one(home, "written('made')") == "written"
    assert (home.person.project / "made").read_text() == "x"
    assert one(home, "os.rename('made', 'moved')") is None
    assert one(home, "os.unlink('moved')") is None
    assert "root" in str(one(home, "open('/etc/passwd').read()"))
    assert one(home, "open('/dev/null', 'w').write('x')") == 1


def test_a_home_and_a_place_for_temporary_files_go_with_the_run(home: House) -> None:
    line = "[written(os.environ[name] + '/x') and os.environ[name] for name in ('HOME', 'TMPDIR')]"
    places = one(home, line)
    assert isinstance(places, list)
    assert not any(os.path.exists(os.path.dirname(place)) for place in places)


def test_what_a_persona_hides_in_the_project_is_hidden(home: House) -> None:
    before = home.person.policy.read_text()
    (home.person.project / "keys").mkdir()
    (home.person.project / "keys/one").write_text("secret")
    (home.person.project / "src").mkdir()
    home.person.policy.write_text(f"{before}    filesystem: {{hide: [keys]}}\n")
    home.person.own()
    try:
        assert one(home, "open('keys/one').read()") == "EACCES"
        assert one(home, "os.rename('keys', 'src/keys')") in ("EACCES", "EXDEV")
        assert one(home, "written('src/x')") == "written"
    finally:
        home.person.policy.write_text(before)
        home.person.own()
        subprocess.run(["rm", "-r", home.person.project / "keys", home.person.project / "src"], check=True)


def test_a_protected_file_that_was_changed_is_told_at_the_end(home: House) -> None:
    (home.person.project / ".env").write_text("A=1\n")
    home.person.own()
    done = home.person.run("sh", "-c", "echo B=2 >> .env; mkdir .vscode", options=(*LANDLOCK, "--verbose"))
    (home.person.project / ".env").unlink()
    (home.person.project / ".vscode").rmdir()
    assert done.returncode == 0, done.stderr
    for name in (".env", ".vscode"):
        assert f"egress: warning: {home.person.project}/{name} is protected, and was changed" in done.stderr.decode()


# Processes and privileges


def test_processes_of_the_host_can_be_seen_but_not_touched(home: House) -> None:
    with subprocess.Popen(["sleep", "100"], **home.person.identity) as theirs:
        proc = f"/proc/{theirs.pid}"
        try:
            assert one(home, f"b'sleep' in open('{proc}/cmdline', 'rb').read()") is True
            lines = [f"open('{proc}/{name}', 'rb').read(1)" for name in ("environ", "maps", "mem")]
            lines += [f"os.readlink('{proc}/{name}')" for name in ("cwd", "exe", "fd/0", "root")]
            lines += [f"called(libc.ptrace(16, {theirs.pid}, 0, 0))"]
            if isinstance(FOUND, Fit) and Lack.SIGNALS not in FOUND.lacks:
                lines += [f"os.kill({theirs.pid}, 0)", "os.kill(os.getppid(), 9)", f"os.kill({os.getpid()}, 0)"]
            assert open_ones(home, *lines) == {}
        finally:
            theirs.kill()


def test_no_privilege_is_left_and_none_can_be_gained(home: House) -> None:
    script = (
        "import re; print(re.findall(r'(Cap\\w+|NoNewPrivs|Seccomp):\\s*(\\w+)', open('/proc/self/status').read()))"
    )
    done = home.person.run(PYTHON, "-c", script, options=LANDLOCK)
    found = dict(eval(done.stdout))  # our own words
    assert {found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert home.person.kind != "root" or found["CapBnd"] == "0" * 16
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    assert one(home, "called(libc.unshare(0x10000000))") == "EPERM"
    assert one(home, "called(libc.mount(b'x', b'/mnt', b'tmpfs', 0, None))") == "EPERM"


def test_nothing_of_the_hosts_descriptors_and_variables_comes_along(home: House) -> None:
    assert one(home, "sorted(os.listdir('/proc/self/fd'))[:4]") == ["0", "1", "2", "3"]
    assert one(home, "len(os.listdir('/proc/self/fd'))") == 4  # the fourth is the listing's own
    home.person.env["HOST_SECRET"] = "value"
    assert one(home, "os.environ.get('HOST_SECRET')") is None
