"""`egress proxy` as whoever starts it sees it: what it says, what it obeys, how it ends and what it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dnslib import QTYPE, RR, A, DNSRecord
from gateprocess import COMMAND, PATIENCE, PLAIN, GateProcess, Rules, egress, our_environment, until
from programs import PATH, Done, environment, need, run
from servers import Authority, Echo, Web, greeting

from egress.limits import LIMITS

pytestmark = pytest.mark.scenario

Start = Callable[..., GateProcess]
ANY = ("--listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def _servers(authority: Authority) -> Iterator[tuple[Web, Web, Echo]]:
    plain, secure, echo = Web(greeting), Web(greeting, authority.context()), Echo()
    with plain.running(), secure.running(), echo.running():
        yield plain, secure, echo


@pytest.fixture
def plain(_servers: tuple[Web, Web, Echo]) -> Web:
    _servers[0].seen.clear()
    _servers[0].connections = 0
    return _servers[0]


@pytest.fixture
def secure(_servers: tuple[Web, Web, Echo]) -> Web:
    _servers[1].seen.clear()
    return _servers[1]


@pytest.fixture
def echo(_servers: tuple[Web, Web, Echo]) -> Echo:
    return _servers[2]


@pytest.fixture
def rules(plain: Web, echo: Echo) -> Rules:
    hosts = {"plain.test": plain.port, "other.test": plain.port, "echo.test": echo.port}
    return Rules({"plain.test": "", "echo.test": "ports: [7], tls: false"}, hosts)


def dialled(where: int | str) -> socket.socket:
    family = socket.AF_INET if isinstance(where, int) else socket.AF_UNIX
    sock = socket.socket(family)
    sock.settimeout(PATIENCE)
    try:
        sock.connect(("127.0.0.1", where) if isinstance(where, int) else where)
    except OSError:
        sock.close()
        raise
    return sock


def everything(sock: socket.socket) -> bytes:
    """All that comes until the other end is done."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def get(where: int | str, host: str) -> str:
    """The answer of the gate at a port or a path to a request for a page."""
    with dialled(where) as sock:
        sock.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return everything(sock).decode()


@contextlib.contextmanager
def tunnel(gate: GateProcess, target: str) -> Iterator[socket.socket]:
    """Open, and seen to carry a word."""
    with dialled(gate.port) as sock:
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert sock.recv(65536) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        sock.sendall(b"a word")
        assert sock.recv(65536) == b"a word"
        yield sock


def reason(answer: str) -> str:
    """What an answer of the gate's own gives as the reason."""
    return answer.partition("X-Egress-Reason: ")[2].partition("\r\n")[0]


def is_from(answer: str, host: str) -> bool:
    return answer.startswith("HTTP/1.1 200 ") and answer.endswith(f"hello from {host}\n")


# --- what it says


def test_it_says_where_it_listens_and_for_whom_and_where_it_logs(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules)
    assert gate.facts == [f"http://127.0.0.1:{gate.port} p"]
    gate.stop()
    assert gate.said == ["egress: every decision goes to audit.jsonl"]


def test_the_log_is_in_the_users_state_unless_told_otherwise(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, default_audit=True)
    get(gate.port, "plain.test")
    assert gate.decisions() == ["http plain.test:80 allow listed by policy.yaml:6 plain.test"]
    assert stat.S_IMODE(gate.audit.stat().st_mode) == 0o600
    assert stat.S_IMODE(gate.audit.parent.stat().st_mode) == 0o700
    gate.stop()
    assert gate.said == [f"egress: every decision goes to {gate.audit}"]


def test_each_entrance_has_its_persona(start_gate: Start, rules: Rules) -> None:
    policy = f"{rules.text}  q: {{allow: [{{host: other.test, private: true}}]}}\n"
    gate = start_gate(policy, "--persona", "p", *ANY, "--listen", "q@127.0.0.1:0", "--listen", "q@[::1]:0")
    urls, personas = zip(*(fact.split() for fact in gate.facts), strict=True)
    ports = [int(url.rpartition(":")[2]) for url in urls]
    assert personas == ("p", "q", "q")
    assert urls[2] == f"http://[::1]:{ports[2]}"
    assert is_from(get(ports[0], "plain.test"), "plain.test")
    assert reason(get(ports[0], "other.test")) == "not_listed"
    assert is_from(get(ports[1], "other.test"), "other.test")
    assert reason(get(ports[1], "plain.test")) == "not_listed"
    assert [record["persona"] for record in gate.records(event="decision")] == ["p", "p", "q", "q"]


def test_the_users_own_files_are_read_and_the_working_directory_is_not(tmp_path: Path) -> None:
    home = tmp_path / "gate"
    for directory in (home / "xdg_config_home" / "egress", home / "policies", home):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "mine.yaml").write_text("version: 1\npersonas: nonsense\n")
    done = egress(home, "proxy", *PLAIN)
    assert done.code == 2
    assert done.err.startswith(f"egress: error: {home}/xdg_config_home/egress/mine.yaml:2: ")
    assert len([line for line in done.err.splitlines() if "mine.yaml" in line]) == 1


def test_a_persona_without_an_allowlist_may_nothing(start_gate: Start, plain: Web) -> None:
    gate = start_gate(f"version: 1\nhosts: {{plain.test: '127.0.0.1:{plain.port}'}}\npersonas: {{p: {{}}}}\n")
    assert reason(get(gate.port, "plain.test")) == "not_listed"
    assert plain.connections == 0


def test_a_rule_for_one_run(start_gate: Start, rules: Rules, plain: Web) -> None:
    """Through an upstream: an option cannot say that a name may lead to this host."""
    upstream = start_gate(rules)
    gate = start_gate("version: 1\npersonas: {p: {}}\n", *PLAIN, "--allow", "plain.test", "--upstream", upstream.url)
    assert is_from(get(gate.port, "plain.test"), "plain.test")
    assert reason(get(gate.port, "plain.test:8080")) == "port_not_listed"
    assert gate.decisions() == [
        "http plain.test:80 allow listed by --allow plain.test",
        "http plain.test:8080 deny port_not_listed by --allow plain.test",
    ]


# --- when it does not start

NEEDS_A_KEY = "version: 1\npersonas:\n  p:\n    allow:\n      - {host: a.test, secret: {env: NO_KEY, header: x-key}}\n"
MISTAKEN = "version: 1\npersonas:\n  p:\n    alow: [a.test]\n    deny: ['*']\n"
EMPTY = "version: 1\npersonas: {p: {}}\n"
LINT = "egress policy lint policy.yaml"
WRITE_LISTEN = "write it as --listen 127.0.0.1:3128"
PERSONAS = "navigator, philosopher, auditor, reviewer, implementer, craftsman, p"
FAILURES = {
    "a misspelt key": (MISTAKEN, PLAIN, "policy.yaml:4: .*alow.*did you mean 'allow'", LINT),
    "a pattern that is none": (MISTAKEN, PLAIN, r"policy.yaml:5: .*'\*'", LINT),
    "an empty policy": ("", PLAIN, "policy.yaml:", LINT),
    "a secret that is not there": (NEEDS_A_KEY, PLAIN, r"policy.yaml:5: the secret for a.test: \$NO_KEY", LINT),
    "a policy that is not there": (
        EMPTY,
        ("--policy", "none.yaml", *PLAIN),
        "none.yaml: cannot be read: No such file or directory",
        f"{LINT} none.yaml",
    ),
    "an unknown persona": (
        EMPTY,
        ("--persona", "q", *ANY),
        "unknown persona 'q'.* navigator, p, ",
        "egress policy show",
    ),
    "no persona": (EMPTY, ANY, "no persona for '127.0.0.1:0'", f"add --persona NAME, one of: {PERSONAS}"),
    "an unknown persona of an entrance": (
        EMPTY,
        ("--listen", "q@127.0.0.1:0"),
        "unknown persona 'q'",
        f"use one of: {PERSONAS}",
    ),
    "a name to listen on": (EMPTY, ("--persona", "p", "--listen", "localhost:0"), "'localhost:0'", WRITE_LISTEN),
    "no port to listen on": (EMPTY, ("--persona", "p", "--listen", "127.0.0.1"), "'127.0.0.1'", WRITE_LISTEN),
    "no such port": (EMPTY, ("--persona", "p", "--listen", "127.0.0.1:99999"), "'127.0.0.1:99999'", WRITE_LISTEN),
    "no such address": (
        EMPTY,
        ("--persona", "p", "--listen", "192.0.2.1:0"),
        "cannot listen on 192.0.2.1:0: Cannot assign requested address",
        "choose another with --listen or --unix",
    ),
    "a path in no directory": (
        EMPTY,
        ("--persona", "p", "--unix", "none/gate.sock"),
        "cannot listen on none/gate.sock: No such file or directory",
        "choose another with --listen or --unix",
    ),
    "a path too long for a socket": (
        EMPTY,
        ("--persona", "p", "--unix", "x" * 200),
        "cannot listen on x+: AF_UNIX path too long",
        "choose another with --listen or --unix",
    ),
    "an unknown user": (EMPTY, (*PLAIN, "--unix-user", "no-such"), "no user 'no-such'", "getent passwd"),
    "no file of users": (EMPTY, (*ANY, "--users", "none"), "none: cannot be read: No such file", "egress users hash"),
    "a bad rule for this run": (EMPTY, (*PLAIN, "--allow", "*.com"), r"--allow: .*\*\.com", "write it as --allow host"),
    "a limit that is none": (EMPTY, (*PLAIN, "--limit", "idel=5"), "--limit 'idel=5'", "egress proxy --limit help"),
    "a limit without a number": (EMPTY, (*PLAIN, "--limit", "idle"), "--limit 'idle'", "egress proxy --limit help"),
    "a limit of nothing": (EMPTY, (*PLAIN, "--limit", "idle=0"), "--limit 'idle=0'", "egress proxy --limit help"),
    "a limit that is no whole number": (
        EMPTY,
        (*PLAIN, "--limit", "connections=1.5"),
        "--limit 'connections=1.5'",
        "egress proxy --limit help",
    ),
    "a name for a DNS server": (EMPTY, (*PLAIN, "--dns-server", "dns.test"), "'dns.test'", "--dns-server 1.1.1.1"),
    "an upstream of another kind": (
        EMPTY,
        (*PLAIN, "--upstream", "socks5://a:b@up.test:1"),
        r"'socks5://\*\*\*@up.test:1': only http://",
        "--upstream http://proxy.example:3128",
    ),
    "a log in no directory": (
        EMPTY,
        (*PLAIN, "--audit", "none/audit"),
        "the audit log cannot be written: none/audit: No such file or directory",
        "choose another with --audit FILE",
    ),
    "a log that is a device": (
        EMPTY,
        (*PLAIN, "--audit", "/dev/full"),
        "the audit log cannot be written: /dev/full: not a regular file",
        "choose another with --audit FILE",
    ),
    "an unknown option": (EMPTY, (*PLAIN, "--persnoa", "p"), "unrecognized arguments: --persnoa", "egress --help"),
    "a value left out": ("", ("--persona",), "argument --persona: expected one argument", "egress proxy --help"),
}


@pytest.mark.parametrize("mistake", FAILURES)
def test_a_mistake_is_told_with_what_helps_and_nothing_starts(tmp_path: Path, mistake: str) -> None:
    policy, words, error, hint = FAILURES[mistake]
    (tmp_path / "policy.yaml").write_text(policy)
    done = egress(tmp_path, "proxy", "--unix", "p@left.sock", "--policy", "policy.yaml", *words)
    assert (done.code, done.out) == (2, "")
    *errors, last = done.err.splitlines()
    assert errors[0].startswith("egress: error: ")
    assert all(line.startswith("egress: ") for line in errors)
    assert_some_line(errors, error)
    assert last.startswith("egress: hint: ")
    assert hint in last
    assert not (tmp_path / "left.sock").exists()


def assert_some_line(lines: list[str], pattern: str) -> None:
    assert [line for line in lines if re.search(pattern, line)], (pattern, lines)


def test_every_mistake_of_a_policy_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(MISTAKEN)
    done = egress(tmp_path, "proxy", "--policy", "policy.yaml", *PLAIN)
    assert done.err.count("policy.yaml:4: ") == done.err.count("policy.yaml:5: ") == 1


def test_a_port_in_use_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(EMPTY)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["--listen", "127.0.0.1:0", "--listen", where]
        done = egress(tmp_path, "proxy", "--policy", "policy.yaml", "--persona", "p", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"egress: error: cannot listen on {where}: Address already in use\n"
        "egress: hint: choose another with --listen or --unix\n"
    )


def test_a_state_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = egress(tmp_path, "proxy", "--persona", "reviewer", *ANY, XDG_STATE_HOME=str(tmp_path / "file"))
    assert done == Done(
        2,
        "",
        f"egress: error: the audit log cannot be written: {tmp_path}/file/egress: Not a directory\n"
        "egress: hint: choose another with --audit FILE\n",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"# nobody\n", "users: no users"),
        (b"ci:p\n", "users:1: expected name:persona:hash"),
        (b"\nci:p:secret\n", "users:2: the hash is not one of ours"),
        (b"\xff\n", "users: not UTF-8"),
        (b"ci:q:scrypt$16384$8$1$QUFBQQ==$QUFBQQ==\n", "unknown persona 'q'"),
    ],
)
def test_a_file_of_users_that_cannot_be_used_is_told(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "policy.yaml").write_text(EMPTY)
    (tmp_path / "users").write_bytes(text)
    done = egress(tmp_path, "proxy", "--policy", "policy.yaml", *ANY, "--users", "users")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"egress: error: {words}")
    assert "\negress: hint: " in done.err


def test_nobody_to_tell_where_it_listens_is_an_end(tmp_path: Path) -> None:
    """`egress proxy | true`, as the shell reports a program whose reader has gone."""
    (tmp_path / "policy.yaml").write_text(EMPTY)
    reader, writer = os.pipe()
    os.close(reader)
    words = ["--policy", "policy.yaml", "--persona", "p", *ANY, "--unix", "left.sock"]
    with open(writer, "wb") as pipe, open(tmp_path / "stderr", "wb") as said:
        code = subprocess.run(
            [*COMMAND, "proxy", *words],
            cwd=tmp_path,
            env=our_environment(tmp_path),
            stdout=pipe,
            stderr=said,
            timeout=PATIENCE,
            check=False,
        ).returncode
    assert (code, (tmp_path / "stderr").read_text()) == (141, "")
    assert not (tmp_path / "left.sock").exists()


# --- limits


def test_the_limits_are_listed(tmp_path: Path) -> None:
    done = egress(tmp_path, "proxy", "--limit", "help")
    assert (done.code, done.err) == (0, "")
    assert dict(line.split("=") for line in done.out.splitlines()) == {k: str(v) for k, v in LIMITS._asdict().items()}


def test_a_limit_holds(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *PLAIN, "--limit", "connections=1", "--limit", "handshake=1")
    with tunnel(gate, "echo.test:7") as sock:
        answer = get(gate.port, "plain.test")
        assert answer.startswith("HTTP/1.1 503 Refused by egress: limit\r\n")
        sock.sendall(b"still here")
        assert sock.recv(65536) == b"still here"
    until(lambda: gate.records(event="end"))
    assert is_from(get(gate.port, "plain.test"), "plain.test")
    with dialled(gate.port) as slow:
        slow.sendall(b"GET http://pl")
        assert everything(slow).startswith(b"HTTP/1.1 408 Refused by egress: timeout\r\n")


# --- Unix sockets


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everyone may enter, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="egress-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_a_unix_socket_serves_its_owner_and_goes_with_the_gate(start_gate: Start, rules: Rules, public: Path) -> None:
    path = public / "gate.sock"
    gate = start_gate(rules, "--unix", f"p@{path}")
    assert gate.facts == [f"unix:{path} p"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_from(get(str(path), "plain.test"), "plain.test")
    assert reason(get(str(path), "other.test")) == "not_listed"
    gate.stop()
    assert list(public.iterdir()) == []


def test_a_dead_unix_socket_is_replaced(start_gate: Start, rules: Rules, public: Path) -> None:
    path = public / "gate.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    start_gate(rules, "--persona", "p", "--unix", path)
    assert is_from(get(str(path), "plain.test"), "plain.test")


def test_what_else_stands_at_the_path_is_left_alone(start_gate: Start, rules: Rules, public: Path) -> None:
    live, file = public / "live.sock", public / "file"
    file.write_text("mine")
    gate = start_gate(rules, "--persona", "p", "--unix", live)
    for path in (live, file):
        done = egress(gate.home, "proxy", "--policy", "policy.yaml", "--persona", "p", "--unix", path)
        assert (done.code, done.out) == (2, "")
        assert f"cannot listen on {path}: Address already in use" in done.err
    assert file.read_text() == "mine"
    assert is_from(get(str(live), "plain.test"), "plain.test")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else: run the tests as root")
def test_a_unix_socket_serves_other_users_only_by_name(start_gate: Start, rules: Rules, public: Path) -> None:
    need("socat")
    path = public / "gate.sock"
    words = ["socat", "-t", str(PATIENCE), "-", f"UNIX-CONNECT:{path}"]
    request = "GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n"

    def ask_as(user: str) -> Done:
        """socat says on stderr what kept it out."""
        who = pwd.getpwnam(user)
        identity = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        done = subprocess.run(words, input=request, text=True, capture_output=True, check=False, **identity)
        return Done(done.returncode, done.stdout, done.stderr)

    alone = start_gate(rules, "--persona", "p", "--unix", path)
    assert "Permission denied" in ask_as("nobody").err
    alone.stop()
    gate = start_gate(rules, "--persona", "p", "--unix", path, "--unix-user", "nobody")
    assert is_from(ask_as("nobody").out, "plain.test")
    assert ask_as("daemon").out == ""
    stranger = pwd.getpwnam("daemon").pw_uid
    assert gate.decisions() == [
        "http plain.test:80 allow listed by policy.yaml:6 plain.test",
        f"http uid {stranger} deny peer_not_allowed",
    ]


def test_an_entrance_by_password_says_so(start_gate: Start, rules: Rules, tmp_path: Path) -> None:
    line = egress(tmp_path, "users", "hash", "ci", "--persona", "p", text="a long password\n").out
    (tmp_path / "users").write_text(line)
    gate = start_gate(rules, "--listen", "127.0.0.1:0", "--listen", "p@127.0.0.1:0", "--users", tmp_path / "users")
    assert [fact.split(" ", 1)[1] for fact in gate.facts] == ["by password", "p"]
    assert get(gate.port, "plain.test").startswith("HTTP/1.1 407 Refused by egress: credentials\r\n")
    assert is_from(get(int(gate.facts[1].split()[0].rpartition(":")[2]), "plain.test"), "plain.test")


# --- edits


def allow_also(gate: GateProcess, name: str) -> str:
    """The policy's text with one more rule."""
    return gate.policy.read_text().replace("    allow:\n", f"    allow:\n      - {{host: {name}, private: true}}\n")


def by_signal(gate: GateProcess, text: str) -> None:
    gate.policy.write_text(text)
    gate.process.send_signal(signal.SIGHUP)


def by_rename(gate: GateProcess, text: str) -> None:
    """As editors do; nobody tells the gate."""
    beside = gate.policy.with_suffix(".new")
    beside.write_text(text)
    beside.replace(gate.policy)


@pytest.mark.parametrize("edit", [by_signal, by_rename])
def test_an_edit_holds_from_then_on(start_gate: Start, rules: Rules, edit: Callable[[GateProcess, str], None]) -> None:
    gate = start_gate(rules)
    assert reason(get(gate.port, "other.test")) == "not_listed"
    edit(gate, allow_also(gate, "other.test"))
    until(lambda: gate.records(event="policy"))
    assert is_from(get(gate.port, "other.test"), "other.test")
    assert gate.said[1] == "egress: policy reloaded, generation 2, 0 connections closed by it"
    assert gate.records(event="policy")[0]["generation"] == 2


def test_a_bad_edit_changes_nothing_and_is_told_with_its_line(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules)
    good = gate.policy.read_text()
    by_signal(gate, good.replace("    allow:\n", "    allwo:\n"))
    until(lambda: gate.records(event="policy"))
    (record,) = gate.records(event="policy")
    assert record["generation"] == 1
    assert record["error"].startswith("policy.yaml:5: ")
    until(lambda: len(gate.said) >= 3)
    assert gate.said[1] == "egress: error: the policy was not reloaded, the last good one stays in force"
    assert gate.said[2] == f"egress: {record['error'].splitlines()[0]}"
    assert is_from(get(gate.port, "plain.test"), "plain.test")
    gate.policy.unlink()
    gate.process.send_signal(signal.SIGHUP)
    until(lambda: len(gate.records(event="policy")) == 2)
    assert is_from(get(gate.port, "plain.test"), "plain.test")
    by_signal(gate, good)
    until(lambda: len(gate.records(event="policy")) == 3)
    assert [record["generation"] for record in gate.records(event="policy")] == [1, 1, 2]


def test_an_edit_closes_what_it_no_longer_allows(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules)
    with tunnel(gate, "echo.test:7") as sock:
        by_signal(gate, gate.policy.read_text().replace("deny: []", "deny: [echo.test]"))
        with contextlib.suppress(ConnectionResetError):
            assert everything(sock) == b""
    until(lambda: gate.records(event="end"))
    assert [end["outcome"] for end in gate.records(event="end")] == ["revoked"]
    until(lambda: len(gate.said) == 2)
    assert gate.said[1].endswith(" 1 connections closed by it")


def test_an_edit_that_looks_into_requests_holds_for_the_next_one(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules)
    assert is_from(get(gate.port, "plain.test"), "plain.test")
    by_signal(gate, gate.policy.read_text().replace("private: true}", "private: true, methods: [PUT]}", 1))
    until(lambda: gate.records(event="policy"))
    assert "X-Egress-Reason: method_not_listed" in get(gate.port, "plain.test")
    refused = gate.records(event="decision", verdict="deny")[-1]
    assert (refused["reason"], refused["method"], refused["path"]) == ("method_not_listed", "GET", "/")


# --- the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_all_that_it_carries(start_gate: Start, rules: Rules, echo: Echo, number: int) -> None:
    gate = start_gate(rules)
    with tunnel(gate, "echo.test:7") as carried, dialled(gate.port) as waiting:
        gate.stop(number)
        for sock in (carried, waiting):
            with contextlib.suppress(ConnectionResetError):
                assert everything(sock) == b""
    until(lambda: echo.open == 0)
    assert [end["outcome"] for end in gate.records(event="end")] == ["stopped"]
    with pytest.raises(ConnectionRefusedError):
        dialled(gate.port)


def test_a_signal_as_soon_as_it_is_up_ends_it_in_good_order(start_gate: Start, rules: Rules, public: Path) -> None:
    gate = start_gate(rules, "--persona", "p", *ANY, "--unix", public / "gate.sock")
    gate.stop()
    assert list(public.iterdir()) == []


# --- the log


def test_a_log_that_is_moved_away_is_begun_anew(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules)
    get(gate.port, "other.test")
    gate.audit.rename(gate.home / "audit.1")
    get(gate.port, "another.test")
    assert [json.loads(line)["host"] for line in (gate.home / "audit.1").read_text().splitlines()] == ["other.test"]
    assert gate.decisions() == ["http another.test:80 deny not_listed"]
    assert stat.S_IMODE(gate.audit.stat().st_mode) == 0o600


def test_nothing_passes_while_something_else_stands_in_place_of_the_log(
    start_gate: Start, rules: Rules, plain: Web
) -> None:
    gate = start_gate(rules)
    gate.audit.unlink()
    gate.audit.symlink_to(gate.home / "elsewhere")
    answer = get(gate.port, "plain.test")
    assert answer.startswith("HTTP/1.1 503 Refused by egress: audit_unavailable\r\n")
    assert plain.connections == 0
    gate.audit.unlink()
    assert is_from(get(gate.port, "plain.test"), "plain.test")
    assert not (gate.home / "elsewhere").exists()


@pytest.mark.parametrize("room", [0, 10], ids=["no room", "room for part of a record"])
def test_nothing_passes_while_the_disk_is_full(start_gate: Start, rules: Rules, plain: Web, room: int) -> None:
    """As full as the kernel lets us make it for one process: a file may not grow beyond a size."""
    gate = start_gate(rules)
    get(gate.port, "other.test")
    before = gate.records()
    _, hard = resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE, (gate.audit.stat().st_size + room, hard))
    answer = get(gate.port, "plain.test")
    assert answer.startswith("HTTP/1.1 503 Refused by egress: audit_unavailable\r\n")
    assert reason(get(gate.port, "denied-meanwhile.test")) == "not_listed"
    assert plain.connections == 0
    resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert is_from(get(gate.port, "plain.test"), "plain.test")
    gate.stop()
    lines = gate.audit.read_bytes().splitlines()
    whole = [json.loads(line) for line in lines if len(line) > room]
    assert whole[: len(before)] == before
    assert [(record.get("host"), record.get("reason")) for record in whole[len(before) :]] == [
        ("plain.test", "audit_unavailable"),
        ("denied-meanwhile.test", "not_listed"),
        ("plain.test", "listed"),
        (None, None),  # its end
    ]


# --- where names are resolved

ZONE = {"local.test": "127.0.0.1", "mixed.test": "10.0.0.1", "public.test": "11.0.0.1", "cloud.test": "169.254.169.254"}


@pytest.fixture
def dns() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that knows a few names, and every name it was asked for."""
    asked: list[str] = []
    with socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                packet, source = udp.recvfrom(4096)
                if not packet:
                    return
                query = DNSRecord.parse(packet)
                name = str(query.q.qname).rstrip(".")
                asked.append(name)
                reply = query.reply()
                if name in ZONE and QTYPE[query.q.qtype] == "A":
                    reply.add_answer(RR(query.q.qname, rdata=A(ZONE[name]), ttl=60))
                udp.sendto(reply.pack(), source)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = udp.getsockname()
        try:
            yield f"{host}:{port}", asked
        finally:
            udp.sendto(b"", (host, port))
            thread.join()


NAMES = """version: 1
personas:
  p:
    allow:
      - {host: local.test, ports: [PORT], private: true}
      - {host: mixed.test, ports: [PORT]}
      - {host: public.test, ports: [PORT]}
      - {host: cloud.test, ports: [PORT], private: true}
      - {host: missing.test, ports: [PORT]}
"""


def test_names_are_asked_of_the_server_that_was_given(
    start_gate: Start, plain: Web, dns: tuple[str, list[str]]
) -> None:
    server, asked = dns
    policy = NAMES.replace("PORT", str(plain.port))
    gate = start_gate(policy, *PLAIN, "--dns-server", server, "--limit", "connect=0.2")
    assert is_from(get(gate.port, f"local.test:{plain.port}"), f"local.test:{plain.port}")
    answers = {name: get(gate.port, f"{name}.test:{plain.port}") for name in ("mixed", "cloud", "public", "missing")}
    assert {name: reason(answer) for name, answer in answers.items()} == {
        "mixed": "resolved_private",
        "cloud": "metadata_address",
        "public": "unreachable",  # so it was let through to where nothing answers
        "missing": "unresolved",
    }
    assert "10.0.0.1 is a private address" in answers["mixed"]
    assert reason(get(gate.port, "denied.test")) == "not_listed"
    assert set(asked) == {"local.test", "mixed.test", "public.test", "cloud.test", "missing.test"}
    assert plain.connections == 1
    rules = {
        name: f"policy.yaml:{line} {name}.test"
        for line, name in enumerate(("local", "mixed", "public", "cloud", "missing"), 5)
    }
    where = {name: f"http {name}.test:{plain.port}" for name in rules}
    assert gate.decisions() == [
        f"{where['local']} allow listed by {rules['local']}",
        f"{where['mixed']} allow listed by {rules['mixed']}",
        f"{where['mixed']} deny resolved_private by {rules['mixed']}",
        f"{where['cloud']} allow listed by {rules['cloud']}",
        f"{where['cloud']} deny metadata_address by {rules['cloud']}",
        f"{where['public']} allow listed by {rules['public']}",
        f"{where['missing']} allow listed by {rules['missing']}",
        "http denied.test:80 deny not_listed",
    ]
    assert [end["outcome"] for end in gate.records(event="end")] == ["closed", "unreachable", "unresolved"]


# --- through another proxy


def handshake(gate: GateProcess, host: str, authority: Authority) -> str:
    """A page over TLS through the gate."""
    with dialled(gate.port) as sock:
        sock.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
        head = sock.recv(65536).decode()
        if not head.startswith("HTTP/1.1 200 "):
            return head + everything(sock).decode()
        with authority.trusting().wrap_socket(sock, server_hostname=host) as tls:
            tls.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return everything(tls).decode()


NEAR = """version: 1
personas:
  p:
    allow:
      - plain.test
      - secure.test
      - elsewhere.test
"""


@pytest.fixture
def far_rules(plain: Web, secure: Web) -> Rules:
    return Rules({"plain.test": "", "secure.test": ""}, {"plain.test": plain.port, "secure.test": secure.port})


def test_requests_and_tunnels_go_through_the_upstream(
    start_gate: Start, far_rules: Rules, authority: Authority, secure: Web
) -> None:
    """The near gate knows no address of these names: the far one resolves them, and judges anew."""
    far = start_gate(far_rules)
    near = start_gate(NEAR, *PLAIN, "--upstream", far.url)
    assert is_from(get(near.port, "plain.test"), "plain.test")
    assert is_from(handshake(near, "secure.test", authority), "secure.test")
    assert reason(get(near.port, "unlisted.test")) == "not_listed"
    answer = handshake(near, "elsewhere.test", authority)
    assert answer.startswith("HTTP/1.1 502 Refused by egress: unreachable\r\n")
    assert "403" in answer
    assert [request.host for request in secure.seen] == ["secure.test"]
    assert near.decisions() == [
        "http plain.test:80 allow listed by policy.yaml:5 plain.test",
        "connect secure.test:443 allow listed by policy.yaml:6 secure.test",
        "http unlisted.test:80 deny not_listed",
        "connect elsewhere.test:443 allow listed by policy.yaml:7 elsewhere.test",
    ]
    assert far.decisions() == [
        "http plain.test:80 allow listed by policy.yaml:6 plain.test",
        "connect secure.test:443 allow listed by policy.yaml:7 secure.test",
        "connect elsewhere.test:443 deny not_listed",
    ]


def test_a_password_for_the_upstream_is_given_and_not_shown(
    start_gate: Start, far_rules: Rules, authority: Authority, tmp_path: Path
) -> None:
    line = egress(tmp_path, "users", "hash", "near", "--persona", "p", text="p@ss word\n").out
    (tmp_path / "users").write_text(line)
    far = start_gate(far_rules, *ANY, "--users", tmp_path / "users")
    near = start_gate(NEAR, *PLAIN, "--upstream", f"http://near:p%40ss%20word@127.0.0.1:{far.port}")
    assert is_from(get(near.port, "plain.test"), "plain.test")
    assert is_from(handshake(near, "secure.test", authority), "secure.test")
    wrong = start_gate(NEAR, *PLAIN, "--upstream", f"http://near:wrong-one@127.0.0.1:{far.port}")
    answer = handshake(wrong, "secure.test", authority)
    assert answer.startswith("HTTP/1.1 502 Refused by egress: unreachable\r\n")
    assert "407" in answer
    assert "wrong-one" not in answer + "".join(wrong.said) + wrong.audit.read_text()


def test_an_upstream_that_is_not_there_is_told(start_gate: Start, authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gate = start_gate(NEAR, *PLAIN, "--upstream", f"http://127.0.0.1:{port}")
    for answer in (get(gate.port, "plain.test"), handshake(gate, "secure.test", authority)):
        assert answer.startswith("HTTP/1.1 502 Refused by egress: unreachable\r\n")
        assert f"connection refused by 127.0.0.1 port {port}" in answer


def test_the_upstream_of_the_environment_and_who_goes_without(
    start_gate: Start, far_rules: Rules, authority: Authority, plain: Web, dns: tuple[str, list[str]]
) -> None:
    far = start_gate(far_rules)
    policy = f"{NEAR}      - {{host: local.test, ports: [{plain.port}], private: true}}\n"
    proxies = {"http_proxy": far.url, "HTTPS_PROXY": f"127.0.0.1:{far.port}", "NO_PROXY": "other.test, .local.test"}
    near = start_gate(policy, *PLAIN, "--upstream", "env", "--dns-server", dns[0], **proxies)
    assert is_from(get(near.port, "plain.test"), "plain.test")
    assert is_from(handshake(near, "secure.test", authority), "secure.test")
    assert is_from(get(near.port, f"local.test:{plain.port}"), f"local.test:{plain.port}")
    assert [decision.split()[1] for decision in far.decisions()] == ["plain.test:80", "secure.test:443"]
    assert set(dns[1]) == {"local.test"}


def test_what_the_policy_gives_an_address_goes_there_and_not_upstream(
    start_gate: Start, rules: Rules, far_rules: Rules
) -> None:
    far = start_gate(far_rules)
    near = start_gate(rules, *PLAIN, "--upstream", far.url)
    assert is_from(get(near.port, "plain.test"), "plain.test")
    assert far.records() == []


def test_an_environment_without_proxies_is_no_upstream(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *PLAIN, "--upstream", "env")
    assert is_from(get(gate.port, "plain.test"), "plain.test")


@contextlib.contextmanager
def tinyproxy(home: Path) -> Iterator[int]:
    """Its port: one that the kernel gives to nobody by itself, since it cannot ask for any."""
    need("tinyproxy")
    program = shutil.which("tinyproxy", path=PATH)
    assert program
    for port in random.sample(range(20_000, 32_000), 5):
        (home / "tinyproxy.conf").write_text(f'Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nLogFile "{home}/log"\n')
        process = subprocess.Popen([program, "-d", "-c", home / "tinyproxy.conf"], env=environment(home))
        until(lambda port=port, process=process: process.poll() is not None or _answers(port))
        if process.poll() is None:
            break
    try:
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_another_make_of_proxy_is_an_upstream_too(
    start_gate: Start, authority: Authority, plain: Web, secure: Web, tmp_path: Path
) -> None:
    """By a name that it can resolve as well."""
    policy = (
        "version: 1\npersonas:\n  p:\n    allow:\n"
        f"      - {{host: localhost, ports: [{secure.port}], tls: true}}\n"
        f"      - {{host: localhost, ports: [{plain.port}]}}\n"
    )
    with tinyproxy(tmp_path) as port:
        gate = start_gate(policy, *PLAIN, "--upstream", f"http://127.0.0.1:{port}")
        need("curl")
        words = ["curl", "-sS", "--cacert", authority.file, "-x", gate.url]
        urls = [f"http://localhost:{plain.port}/", f"https://localhost:{secure.port}/"]
        done = run(tmp_path, *words, *urls)
        assert done == Done(0, f"hello from localhost:{plain.port}\nhello from localhost:{secure.port}\n", "")
        assert gate.decisions() == [
            f"http localhost:{plain.port} allow listed by policy.yaml:6 localhost",
            f"connect localhost:{secure.port} allow listed by policy.yaml:5 localhost",
        ]
        gate.stop()
