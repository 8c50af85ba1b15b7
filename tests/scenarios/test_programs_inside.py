"""Programs that people use, unmodified, in the sandbox: with the proxy variables that it sets, and without any.

They share a sandbox, but each has names of its own, so that the log says who did what. Every name leads to a
server, the denied ones too: if a program does not arrive, it was the gate.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from gateprocess import Rules, until
from launchkit import PEOPLE, Person, somebody
from packageservers import Index, Registry
from programs import PATH, Done, need
from servers import Answer, Authority, Echo, Git, Request, Server, Sshd, Web, WebSocketEcho, greeting, make_repository

pytestmark = pytest.mark.scenario

ECHO_PORT = 7007
# Where each of them looks for authorities.
TRUST = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("PIP_CERT", "npm_config_cafile"),
)


class Told(NamedTuple):
    """How a denied program met the gate, and what it shows of that."""

    via: str  # more than one word where it depends on the program's version
    shown: str  # a pattern


class Row(NamedTuple):
    """A command line, what it shows of an allowed host, and of a denied one by each way that it can go.

    It may use the {host}, the authority {ca}, a {new} path, the {repositories}, and ssh {options} for a {user}.
    """

    name: str
    server: str
    command: str
    shown: str
    ways: Mapping[str, Told]
    port: int = 443

    def host(self, kind: str, way: str) -> str:
        return f"{self.name.replace(' ', '-')}-{way}.{kind}.test"

    def vias(self, way: str) -> set[str]:
        return set(self.ways[way].via.split())


# --- the ways: with the variables that the sandbox sets, without them, and where there is no capture

VARIABLES, BARE, RELAY = "variables", "bare", "relay"
TUNNEL = "CONNECT tunnel failed, response 403"
REFUSED = "Refused by egress: not_listed"
WORDS = "is not on the allowlist of persona p"
ALERT = "(?i)access[ _](was )?denied"  # as OpenSSL, GnuTLS and Java say it
PARTED = f"Received disconnect .* {WORDS}"
NO_SOCKET = "network error or non-101"


def proxied(shown: str, via: str = "connect", bare: str = ALERT) -> dict[str, Told]:
    return {VARIABLES: Told(via, shown), RELAY: Told(via, shown), BARE: Told("capture", bare)}


def captured(shown: str) -> dict[str, Told]:
    """These heed no variables."""
    return {VARIABLES: Told("capture", shown), BARE: Told("capture", shown)}


# --- what programs of a few lines are

REQUESTS = "import requests, sys; a = requests.get(sys.argv[1]); print(a.text); sys.exit(a.status_code != 200)"
HTTPX = "import httpx, sys; a = httpx.get(sys.argv[1]); print(a.text); sys.exit(a.status_code != 200)"
URLLIB = "import urllib.request as u, sys; print(u.urlopen(sys.argv[1]).read().decode())"
FETCH = "fetch(process.argv[2]).then(a => a.text()).then(console.log)"
SOCKET = """
const socket = new WebSocket(process.argv[2])
socket.onopen = () => socket.send("hello over a socket")
socket.onmessage = event => { console.log(event.data); process.exit() }
socket.onerror = event => { console.error(event.message, event.error); process.exitCode = 1 }
"""
JAVA = """
import java.io.FileInputStream;
import java.net.URI;
import java.net.http.*;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.*;

class Fetch {
    public static void main(String[] words) throws Exception {
        var trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null);
        try (var file = new FileInputStream(words[1])) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, managers.getTrustManagers(), null);
        var client = HttpClient.newBuilder().sslContext(tls).build();
        var request = HttpRequest.newBuilder(URI.create(words[0])).build();
        System.out.print(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""
FILES = {
    "by_requests.py": REQUESTS,
    "by_httpx.py": HTTPX,
    "by_urllib.py": URLLIB,
    "by_pip.py": "import tinything; print(tinything.GREETING)",
    "fetch.js": FETCH,
    "socket.js": SOCKET,
    "Fetch.java": JAVA,
}

HELLO = "hello from {host}"
CLONE = "git clone -q {url} {{new}} && cat {{new}}/README"
GIT = CLONE.format(url="https://{host}/it")
GIT_SSH = 'GIT_SSH_COMMAND="${{GIT_SSH_COMMAND:-ssh}} {options}" ' + CLONE.format(
    url="ssh://{user}@{host}{repositories}/it"
)
SSH = "ssh {options} {user}@{host} 'echo $((6 * 7))'"
SOCKET_JS = "node --experimental-websocket socket.js wss://{host}/"
PIP = (
    "python -m pip install --isolated --no-input --no-cache-dir --disable-pip-version-check --retries 1 --cert {ca} "
    "-i https://{host}/simple/ -t {new} tinything && PYTHONPATH={new} python by_pip.py"
)
NPM = (
    "npm install --prefix {new} --cache {new}/cache --fetch-retries=0 --no-audit --no-fund --no-update-notifier "
    "--registry https://{host}/ tinything && node -p 'require(\"{new}/node_modules/tinything\")'"
)
OPENSSL = "openssl s_client -CAfile {ca} -verify_return_error -brief -connect {host}:443"
JAVA_WAYS = captured(ALERT) | {RELAY: Told("connect", "403")}
SSH_WAYS = captured(PARTED) | {RELAY: Told("connect", REFUSED)}
NODE_WAYS = captured(ALERT) | {VARIABLES: Told("capture connect", f"{ALERT}|403")}
SOCKET_WAYS = captured(NO_SOCKET) | {VARIABLES: Told("capture connect", NO_SOCKET)}
PLAIN_CURL = "curl -sS --fail-with-body http://{host}/"

ROWS = [
    Row("curl", "tls", "curl -sS https://{host}/", HELLO, proxied(TUNNEL)),
    Row("curl http", "plain", PLAIN_CURL, HELLO, proxied(WORDS, "http", WORDS), 80),
    Row("wget", "tls", "wget -O- -t1 --ca-certificate {ca} https://{host}/", HELLO, proxied(REFUSED)),
    Row("wget http", "plain", "wget -O- -t1 http://{host}/", HELLO, proxied(REFUSED, "http", REFUSED), 80),
    Row("git", "git", GIT, "a repository", proxied(TUNNEL)),
    Row("git ssh", "ssh", GIT_SSH, "a repository", SSH_WAYS, 22),
    Row("ssh", "ssh", SSH, "42", captured(PARTED), 22),
    Row("node", "tls", "node fetch.js https://{host}/", HELLO, NODE_WAYS),
    Row("node websocket", "ws", SOCKET_JS, "hello over a socket", SOCKET_WAYS),
    Row("urllib", "tls", "python by_urllib.py https://{host}/", HELLO, proxied(REFUSED)),
    Row("requests", "tls", "python by_requests.py https://{host}/", HELLO, proxied(REFUSED)),
    Row("httpx", "tls", "python by_httpx.py https://{host}/", HELLO, proxied(REFUSED)),
    Row("pip", "index", PIP, "hello from the index", proxied(REFUSED)),
    Row("npm", "registry", NPM, "hello from the registry", proxied(REFUSED)),
    Row("java", "tls", "java Fetch.java https://{host}/ {ca}", HELLO, JAVA_WAYS),
    Row("openssl", "tls", OPENSSL, "Verification: OK", captured(ALERT)),
    Row("nc", "echo", "echo hello | nc -N {host} 7007", "hello", captured(WORDS), ECHO_PORT),
]
CASES = [(row, way) for row in ROWS for way in row.ways]
TRIED = pytest.mark.parametrize(("row", "way"), CASES, ids=[f"{row.name}-{way}" for row, way in CASES])
HEEDLESS = {"nc"}  # ends well, whatever comes of the connection
OF_PYTHON = {"urllib", "requests", "httpx", "pip"}

# Runs in the sandbox, and there runs what it is told: a line for each command and each outcome.
RUNNER = """
import json, os, subprocess, sys
for line in sys.stdin:
    command, trust, bare = json.loads(line)
    env = {name: os.environ[name] for name in ("PATH", "HOME")} if bare else dict(os.environ)
    done = subprocess.run(["sh", "-c", command], env=env | trust, stdin=subprocess.DEVNULL, capture_output=True)
    print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode()]), flush=True)
"""


class Inside:
    """The servers, and sandboxes in front of them that wait for commands: one that captures, and one that relays."""

    def __init__(self, person: Person) -> None:
        self.person, self.project = person, person.project
        self.authority = Authority(self.project, "*.yes.test")
        make_repository(self.project / "repositories" / "it")
        (self.project / "ssh").mkdir()
        self.sshd = Sshd(self.project / "ssh")
        tls = self.authority.context
        self.servers: dict[str, Server] = {
            "tls": Web(greeting, tls()),
            "plain": Web(greeting),
            "ws": WebSocketEcho(tls()),
            "git": Git(self.project / "repositories", tls()),
            "ssh": self.sshd,
            "index": Web(Index(), tls()),
            "registry": Web(registry, tls()),
            "echo": Echo(),
        }
        for name, text in FILES.items():
            (self.project / name).write_text(text)
        person.rules(self._rules())
        self._said = person.home / "stderr"
        self._numbers = itertools.count()
        self._sandboxes: dict[str, subprocess.Popen[bytes]] = {}

    def _rules(self) -> Rules:
        hosts = {row.host(kind, way): self.servers[row.server].port for row, way in CASES for kind in ("yes", "no")}
        return Rules({row.host("yes", way): f"ports: [{row.port}]" for row, way in CASES}, hosts)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        env = {**self.person.env, "PATH": f"{os.path.dirname(sys.executable)}:{PATH}"}
        with contextlib.ExitStack() as stack:
            for server in self.servers.values():
                stack.enter_context(server.running())
            said = stack.enter_context(self._said.open("ab"))
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said}
            for bridge in ("handover", "relay"):
                options = ("--bridge", bridge)
                process = self.person.start("python", "-c", RUNNER, options=options, env=env, **pipes)
                stack.enter_context(process)  # closes its pipes, at which it ends
                self._sandboxes[bridge] = process
            yield

    def run(self, row: Row, way: str, host: str) -> Done:
        if row.name not in OF_PYTHON:
            need(row.name.split()[0])
        self.servers[row.server].connections = 0
        command = row.command.format(
            host=host,
            ca=self.authority.file,
            new=self.project / f"new{next(self._numbers)}",
            user=self.sshd.user,
            options=f"-F none {' '.join(self.sshd.client_options)}",
            repositories=self.project / "repositories",
        )
        told = json.dumps([command, dict.fromkeys(TRUST, str(self.authority.file)), way == BARE])
        sandbox = self._sandboxes["relay" if way == RELAY else "handover"]
        assert sandbox.stdin
        assert sandbox.stdout
        sandbox.stdin.write(told.encode() + b"\n")
        sandbox.stdin.flush()
        outcome = sandbox.stdout.readline()
        assert outcome, self._said.read_text()
        return Done(*json.loads(outcome))

    def reached(self, row: Row) -> bool:
        return self.servers[row.server].connections > 0

    def decisions(self, host: str) -> list[dict[str, Any]]:
        return [record for record in self.person.records() if record.get("host") == host]

    def ends(self, host: str) -> list[dict[str, Any]]:
        """How each connection ended, once all have."""
        ids = {(record["session"], record["id"]) for record in self.decisions(host)}

        def found() -> list[dict[str, Any]]:
            ends = [record for record in self.person.records() if record["event"] == "end"]
            return [record for record in ends if (record["session"], record["id"]) in ids]

        until(lambda: len(found()) == len(ids))
        return found()


@functools.cache
def _registry(host: str) -> Registry:
    return Registry(host)


def registry(request: Request) -> Answer:
    """It names itself in its answers."""
    return _registry(request.host)(request)


@pytest.fixture(scope="module")
def inside() -> Iterator[Inside]:
    need("ssh", "sshd", "git")
    with somebody(PEOPLE[0]) as person:
        made = Inside(person)
        with made.running():
            yield made


def summary(records: list[dict[str, Any]]) -> set[tuple[str, int | None, str, str]]:
    return {(record["via"], record["port"], record["verdict"], record["reason"]) for record in records}


@TRIED
def test_a_program_reaches_an_allowed_host(inside: Inside, row: Row, way: str) -> None:
    host = row.host("yes", way)
    done = inside.run(row, way, host)
    assert done.code == 0, done
    assert row.shown.format(host=host) in done.out + done.err
    assert inside.reached(row)
    decisions = inside.decisions(host)
    vias = {record["via"] for record in decisions}
    assert vias <= row.vias(way)
    assert summary(decisions) == {(via, row.port, "allow", "listed") for via in vias}
    assert {record["rule"].rpartition(" ")[2] for record in decisions} == {host}
    ends = inside.ends(host)
    assert ends
    assert all(end["ip"] == "127.0.0.1" and end["up"] > 0 and end["down"] > 0 for end in ends)


@TRIED
def test_a_program_is_told_that_a_host_is_denied(inside: Inside, row: Row, way: str) -> None:
    host = row.host("no", way)
    done = inside.run(row, way, host)
    assert (done.code != 0) == (row.name not in HEEDLESS), done
    assert re.search(row.ways[way].shown, done.out + done.err), done
    assert not inside.reached(row)
    decisions = inside.decisions(host)
    vias = {record["via"] for record in decisions} - {"dns"}
    assert vias
    assert vias <= row.vias(way)
    asked = {("dns", None)} if "capture" in vias else set()
    assert summary(decisions) == {
        (via, port, "deny", "not_listed") for via, port in {(via, row.port) for via in vias} | asked
    }
