"""Real local upstreams: each listens on a port of loopback, serves in threads, and remembers what reached it.

A server is stopped by joining its threads. That ends only if every connection to it was closed, so a gate
that leaves one open makes the test fail.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import h2.config
import h2.connection
import h2.events
import trustme
import wsproto
import wsproto.events
from programs import PATH

PATIENCE = 20.0


class Authority:
    """A certificate authority of our own, and one certificate for all the names of the tests."""

    def __init__(self, directory: Path, *names: str) -> None:
        ca = trustme.CA()
        self.file = directory / "ca.pem"
        ca.cert_pem.write_to_path(str(self.file))
        self._leaf = ca.issue_cert(*names)

    def context(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._leaf.configure_cert(context)
        context.set_alpn_protocols(list(protocols or ("http/1.1",)))
        return context

    def trusting(self) -> ssl.SSLContext:
        """For clients in this process."""
        return ssl.create_default_context(cafile=str(self.file))


class Server(socketserver.ThreadingTCPServer):
    """One thread per connection; a handler takes the socket."""

    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.tls = tls
        self.port: int = self.server_address[1]
        self.connections = 0

    def handle(self, sock: socket.socket) -> None:
        raise NotImplementedError

    def finish_request(self, request: socket.socket, client_address: object) -> None:
        self.connections += 1
        request.settimeout(PATIENCE)
        if self.tls is None:
            self.handle(request)
            return
        with self.tls.wrap_socket(request, server_side=True) as wrapped:
            self.handle(wrapped)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no fault of ours; pytest would take what is printed for one."""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Echo(Server):
    """Says back what comes; `open` connections are those whose other end has not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0

    def handle(self, sock: socket.socket) -> None:
        self.open += 1
        with contextlib.suppress(ConnectionError):
            while data := sock.recv(65536):
                sock.sendall(data)
        self.open -= 1


class Request(NamedTuple):
    method: str
    path: str
    fields: dict[str, str]  # names in lower case
    body: bytes

    @property
    def host(self) -> str:
        return self.fields["host"]


class Answer(NamedTuple):
    body: bytes
    kind: str = "text/plain"
    status: int = 200


Site = Callable[[Request], Answer]


class Web(Server):
    """HTTP/1.1, over TLS or not, for a function from requests to answers."""

    def __init__(self, site: Site, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.site = site
        self.seen: list[Request] = []

    def handle(self, sock: socket.socket) -> None:
        _Conversation(sock, ("127.0.0.1", 0), self)


class _Conversation(BaseHTTPRequestHandler):
    server: Web
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        fields = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(fields.get("content-length", 0)))
        request = Request(self.command, self.path, fields, body)
        self.server.seen.append(request)
        answer = self.server.site(request)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = answer  # noqa: N815  # names that http.server looks for

    def log_message(self, *_: object) -> None:
        pass


def greeting(request: Request) -> Answer:
    return Answer(f"hello from {request.host}\n".encode())


class Http2(Server):
    """HTTP/2 and nothing else; `seen` has the authority of each request."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(authority.context("h2"))
        self.seen: list[str] = []

    def handle(self, sock: socket.socket) -> None:
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        conn.initiate_connection()
        sock.sendall(conn.data_to_send())
        while data := sock.recv(65536):
            for event in conn.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self._greet(conn, event)
            sock.sendall(conn.data_to_send())

    def _greet(self, conn: h2.connection.H2Connection, event: h2.events.RequestReceived) -> None:
        host = dict(event.headers)[":authority"]
        self.seen.append(host)
        conn.send_headers(event.stream_id, [(":status", "200")])
        conn.send_data(event.stream_id, f"hello from {host}\n".encode(), end_stream=True)


class WebSocketEcho(Server):
    """Says back what comes in a WebSocket, as it comes."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.seen: list[str] = []

    def handle(self, sock: socket.socket) -> None:
        conn = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        while data := sock.recv(65536):
            conn.receive_data(data)
            for event in conn.events():
                sock.sendall(conn.send(self._reply(event)))

    def _reply(self, event: wsproto.events.Event) -> wsproto.events.Event:
        if isinstance(event, wsproto.events.Request):
            return wsproto.events.AcceptConnection()
        if isinstance(event, wsproto.events.CloseConnection):
            return event.response()
        assert isinstance(event, wsproto.events.TextMessage)
        self.seen.append(event.data)
        return wsproto.events.TextMessage(event.data, message_finished=event.message_finished)


class Git(Web):
    """The repositories below a directory, by git's own CGI program."""

    def __init__(self, root: Path, tls: ssl.SSLContext) -> None:
        super().__init__(self._backend, tls)
        self._root = root

    def _backend(self, request: Request) -> Answer:
        path, _, query = request.path.partition("?")
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": request.fields.get("git-protocol", ""),
            "REQUEST_METHOD": request.method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": request.fields.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": request.fields.get("content-encoding", ""),
            "CONTENT_LENGTH": str(len(request.body)),
        }
        out = subprocess.run(
            ["git", "http-backend"], input=request.body, env=env, stdout=subprocess.PIPE, check=False
        ).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return Answer(body, fields["Content-Type"], int(fields.get("Status", "200").split()[0]))


def make_repository(path: Path) -> None:
    """With one file, README, and one commit."""
    author = ["-c", "user.name=a", "-c", "user.email=a@a.test"]
    env = {"PATH": os.environ["PATH"], "HOME": str(path), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words: str) -> None:
        subprocess.run(["git", *author, "-C", path, *words], env=env, check=True, capture_output=True)

    path.mkdir(parents=True)
    git("init", "-b", "main")
    (path / "README").write_text("a repository\n")
    git("add", "README")
    git("commit", "-m", "one")


class Sshd(Server):
    """OpenSSH's server with keys of its own, started for each connection as inetd would: so it needs no port."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name]
            subprocess.run(words, check=True)
        (home / "known").write_text(f"* {(home / 'host.pub').read_text()}")
        (home / "config").write_text(
            f"HostKey {home}/host\nAuthorizedKeysFile {home}/user.pub\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nPidFile none\n"
        )

    @property
    def client_options(self) -> list[str]:
        trust = [f"UserKnownHostsFile={self._home}/known", "StrictHostKeyChecking=yes"]
        keys = [f"IdentityFile={self._home}/user", "IdentitiesOnly=yes", "BatchMode=yes"]
        return [word for option in (*trust, *keys) for word in ("-o", option)]

    def handle(self, sock: socket.socket) -> None:
        sock.settimeout(None)  # it becomes another program's
        words = [shutil.which("sshd", path=PATH), "-i", "-e", "-f", str(self._home / "config")]
        with open(self._home / "log", "ab") as log:
            subprocess.run(words, stdin=sock, stdout=sock, stderr=log, check=False, timeout=PATIENCE)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with _sshd_directory(), super().running():
            yield


@contextlib.contextmanager
def _sshd_directory() -> Iterator[None]:
    """Where sshd, as root, locks its unprivileged part in. Its service makes it; here nobody may have."""
    directory = Path("/run/sshd")
    if os.geteuid() != 0 or directory.exists():
        yield
        return
    directory.mkdir(mode=0o755)
    try:
        yield
    finally:
        directory.rmdir()
