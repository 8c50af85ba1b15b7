"""Servers behind hosts that are inspected, the policy that says so, and a sandbox that waits for commands.

Every secret's real value has a shape of its own, so that a search inside, which must not be told what it
searches for, still knows one when it sees it. It is in the launcher's environment, and should be nowhere else.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, NamedTuple

import h2.config
import h2.connection
import h2.events
import wsproto.events
from launchkit import Installation, Person
from packageservers import Index, Registry
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from programs import PATH, Done
from servers import Answer, Authority, Git, Request, Server, Site, Web, WebSocketEcho, greeting, make_repository

VARIABLES = ("API_KEY", "GH_TOKEN", "RPC_TOKEN", "ANTHROPIC_API_KEY", "CODEX_API_KEY")
REAL = {name: f"value-of-{name}-{os.urandom(16).hex()}" for name in VARIABLES}
SHAPE = "value-o[f]-[A-Z_]+-[0-9a-f]{32}"  # which this very text does not have


# --- servers


class _Conversation(BaseHTTPRequestHandler):
    """Any method, with a length or in chunks; all is remembered, as nothing that is refused may arrive."""

    server: Web
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        fields = {name.lower(): value for name, value in self.headers.items()}
        body = (
            self._chunks() if "transfer-encoding" in fields else self.rfile.read(int(fields.get("content-length", 0)))
        )
        request = Request(self.command, self.path, fields, body)
        self.server.seen.append(request)
        answer = self.server.site(request)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="of the test"')
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815  # names that http.server looks for

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *_: object) -> None:
        pass


class Place(Web):
    def handle(self, sock: ssl.SSLSocket) -> None:
        _Conversation(sock, ("127.0.0.1", 0), self)


class PrivateGit(Git):
    """Its repositories are for whoever has the token, as a password; and may be pushed to."""

    def __init__(self, root: Path, tls: ssl.SSLContext) -> None:
        super().__init__(root, tls)
        self._served: Site = self.site
        self.site = self._guarded

    def handle(self, sock: ssl.SSLSocket) -> None:
        _Conversation(sock, ("127.0.0.1", 0), self)

    def _guarded(self, request: Request) -> Answer:
        right = "Basic " + b64encode(f"x-access-token:{REAL['GH_TOKEN']}".encode()).decode()
        if request.fields.get("authorization") != right:
            return Answer(b"who is it?\n", status=401)
        return self._served(request)


class Streams(Server):
    """HTTP/2. A GET gets a greeting; the messages of a gRPC call are said back, each when it comes."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(tls)
        self.seen: list[Request] = []

    def handle(self, sock: ssl.SSLSocket) -> None:
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        conn.initiate_connection()
        sock.sendall(conn.data_to_send())
        while data := sock.recv(65536):
            for event in conn.receive_data(data):
                self._hear(conn, event)
            sock.sendall(conn.data_to_send())

    def _hear(self, conn: h2.connection.H2Connection, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            fields = dict(event.headers)
            fields["host"] = fields[":authority"]
            self.seen.append(Request(fields[":method"], fields[":path"], fields, b""))
            self._begin(conn, event.stream_id, self.seen[-1])
        elif isinstance(event, h2.events.DataReceived):
            conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            conn.send_data(event.stream_id, event.data)
        elif isinstance(event, h2.events.StreamEnded) and self.seen[-1].method == "POST":
            conn.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)

    def _begin(self, conn: h2.connection.H2Connection, stream: int, request: Request) -> None:
        if request.method == "POST":
            conn.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        else:
            conn.send_headers(stream, [(":status", "200")])
            conn.send_data(stream, greeting(request).body, end_stream=True)


class Sockets(WebSocketEcho):
    """Remembers who asked for one, and not what was said."""

    seen: list[Any]

    def _reply(self, event: wsproto.events.Event) -> wsproto.events.Event:
        if isinstance(event, wsproto.events.Request):
            fields = {name.decode().lower(): value.decode() for name, value in event.extra_headers}
            self.seen.append(Request("GET", event.target, fields, b""))
            return wsproto.events.AcceptConnection()
        if isinstance(event, wsproto.events.TextMessage):
            return wsproto.events.TextMessage(event.data, message_finished=event.message_finished)
        return super()._reply(event)


def telltale(request: Request) -> Answer:
    """It greets, and says back the key that it was shown."""
    return Answer(greeting(request).body + f"your key is {request.fields.get('x-api-key')}\n".encode())


@functools.cache
def _registry(host: str) -> Registry:
    """One for all requests: a package that was made anew may have another digest."""
    return Registry(host)


def registry(request: Request) -> Answer:
    """It names itself in its answers."""
    return _registry(request.host)(request)


# --- the policy: hosts of a kind are the names below it

RULES = """
- {host: "*.api.test", methods: [GET]}
- {host: "*.api.test", methods: [POST], paths: ["/ok/**"]}
- {host: "*.api.test", secret: {env: API_KEY, header: x-api-key}}
- {host: "*.h2.test", methods: [GET], paths: ["/ok/**"]}
- {host: "*.h2.test", secret: {env: API_KEY, header: x-api-key}}
- {host: "*.git.test", methods: [GET, HEAD], paths: ["/acme/**"]}
- {host: "*.git.test", methods: [POST], paths: ["/acme/*/git-upload-pack"]}
- {host: "*.git.test", secret: {env: GH_TOKEN, header: authorization, format: "Bearer {}"}}
- {host: "*.index.test", methods: [GET, HEAD]}
- {host: "*.registry.test", methods: [GET, HEAD]}
- {host: "*.rpc.test", methods: [POST], paths: ["/test.Echo/*"]}
- {host: "*.rpc.test", secret: {env: RPC_TOKEN, header: authorization, format: "Bearer {}"}}
- {host: "*.ws.test", paths: [/chat]}
- {host: "*.ws.test", secret: {env: API_KEY, header: x-api-key}}
"""


def policy(hosts: Mapping[str, int]) -> str:
    named = "".join(f"  {name}: '127.0.0.1:{port}'\n" for name, port in hosts.items())
    rules = "".join(f"      {rule[:-1]}, private: true}}\n" for rule in RULES.strip().splitlines())
    return f"version: 1\nhosts:\n{named}personas:\n  p:\n    allow:\n{rules}"


# --- the room

# Runs in the sandbox, and there runs what it is told: a line for each command and each outcome.
RUNNER = """
import json, os, subprocess, sys
for line in sys.stdin:
    command, kept = json.loads(line)
    env = dict(os.environ) if kept is None else {name: os.environ[name] for name in kept}
    done = subprocess.run(["sh", "-c", command], env=env, stdin=subprocess.DEVNULL, capture_output=True)
    print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode()]), flush=True)
"""
# Says in which processes and files, of all that are in reach, there is a real value, and in which a placeholder.
SEARCH = """
import glob, json, os, re
shapes = {"real": re.compile(b"SHAPE"), "placeholder": re.compile(b"egress-placeholder-")}
found = {name: [] for name in shapes}
def look(path):
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 24)
    except OSError:  # it is over, or not for us
        return
    for name, shape in shapes.items():
        if shape.search(data):
            found[name].append(path)
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    look(path)
for top in (os.environ["HOME"], os.getcwd(), "/tmp", "/run", "/etc", "/dev/shm", "/var/tmp"):
    for directory, _, names in os.walk(top):
        if "/.npm-global" not in directory:  # what npm installed there is not written to
            for path in (os.path.join(directory, name) for name in names):
                if os.path.isfile(path) and not os.path.islink(path):
                    look(path)
print(json.dumps(found))
""".replace("SHAPE", SHAPE)


class Outcome(NamedTuple):
    """What came of a command: for whoever ran it, at its server, and on record."""

    done: Done
    arrived: list[Request]
    requests: list[dict[str, Any]]  # the decisions about requests
    vias: set[str]  # how its connections came to the gate


class Room:
    """Servers, and sandboxes before them. Hosts are told apart by name, so the log says who did what."""

    def __init__(self, person: Person, outside: Path, names: Mapping[str, str]) -> None:
        """`names`: each host, with the kind of its server. What is `outside` is not the person's."""
        self.person, self.project = person, person.project
        make_repository(outside / "acme" / "it")
        config = ["git", "-C", outside / "acme" / "it", "config"]
        subprocess.run([*config, "http.receivepack", "true"], check=True)  # nothing but the gate is in a push's way
        subprocess.run([*config, "receive.denyCurrentBranch", "ignore"], check=True)
        self.authority = Authority(outside, *(f"*.{kind}.test" for kind in set(names.values())))
        tls = self.authority.context
        self.servers: dict[str, Any] = {
            "api": Place(telltale, tls()),
            "h2": Streams(tls("h2")),
            "git": PrivateGit(outside, tls()),
            "index": Place(Index(), tls()),
            "registry": Place(registry, tls()),
            "rpc": Streams(tls("h2")),
            "ws": Sockets(tls()),
        }
        person.policy.write_text(policy({name: self.servers[kind].port for name, kind in names.items()}))
        self.said = person.home / "stderr"
        self._kinds = names
        self._numbers = itertools.count()
        self._runner: subprocess.Popen[bytes] | None = None
        self.options = ("--upstream-ca", str(self.authority.file))
        self.env = {**person.env, **REAL}

    def put(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.project / name).write_text(text)
        self.person.own()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for server in self.servers.values():
                stack.enter_context(server.running())
            yield

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """With one sandbox for all commands, in which our own Python is the first that PATH has."""
        env = {**self.env, "PATH": f"{os.path.dirname(sys.executable)}:{PATH}"}
        words = {"options": self.options, "env": env, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self.said.open("ab") as said, self.person.start("python", "-c", RUNNER, stderr=said, **words) as process:
            self._runner = process
            yield  # and then its pipes are closed, at which it ends

    def run(self, command: str, host: str, kept: tuple[str, ...] | None = None) -> Outcome:
        """`kept`: the only variables that the command has, where it is not to have all."""
        server = self.servers[self._kinds[host]]
        server.seen.clear()
        words = command.format(host=host, new=self.project / f"new{next(self._numbers)}")
        done = self.ask(words, kept) if self._runner else self._launch(words, kept)
        decisions = [it for it in self.person.records() if it["event"] == "decision" and it["host"] == host]
        requests = [it for it in decisions if it["via"] == "inspect"]
        return Outcome(done, list(server.seen), requests, {it["via"] for it in decisions} - {"inspect"})

    def ask(self, command: str, kept: tuple[str, ...] | None = None) -> Done:
        assert self._runner
        assert self._runner.stdin
        assert self._runner.stdout
        self._runner.stdin.write(json.dumps([command, kept]).encode() + b"\n")
        self._runner.stdin.flush()
        outcome = self._runner.stdout.readline()
        assert outcome, self.said.read_text()
        return Done(*json.loads(outcome))

    def _launch(self, command: str, kept: tuple[str, ...] | None) -> Done:
        """In a sandbox of its own."""
        bare = [] if kept is None else ["env", "-i", *(f'{name}="${name}"' for name in kept)]
        line = f"{' '.join(bare)} sh -c {shlex.quote(command)}"
        done = self.person.run("sh", "-c", line, options=self.options, env=self.env)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


# --- an ordinary user's engine


def equip(person: Person) -> None:
    """The copy of our code that an ordinary user runs where root runs the tests has no engine yet.

    The copied interpreter needs a variable to start, which the engine's does not get.
    """
    python, env = person.installation
    if python != sys.executable:
        person.env["PYTHONPATH"] += f":{_engine()}"
        complete = Path(f"{python}-complete")
        complete.write_text(f'#!/bin/bash\nLD_LIBRARY_PATH={env["LD_LIBRARY_PATH"]} exec -a "$0" {python} "$@"\n')
        complete.chmod(0o755)
        person.installation = Installation(str(complete), env)


@functools.cache
def _engine() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="inspectedroom-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    for found in _needed("mitmproxy", {}).values():
        for file in found.files or ():
            if file.parts[0] not in ("..", "/"):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(str(found.locate_file(file)), str(folder / file))
    return folder


def _needed(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """A distribution, and all that it requires."""
    key = canonicalize_name(name)
    if key not in found:
        found[key] = distribution(name)
        for requirement in map(Requirement, found[key].requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                _needed(requirement.name, found)
    return found


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)
