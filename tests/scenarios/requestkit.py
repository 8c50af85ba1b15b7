"""Both ends of a conversation that a gate looks into: clients that say exactly what an attacker would, in the
TLS that the gate opens, and a server that writes down whatever reaches it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from servers import PATIENCE, Server

Pairs = Sequence[tuple[str, str]]


class Got(NamedTuple):
    """A request as it reached a server."""

    method: str
    path: str
    fields: tuple[tuple[str, str], ...]  # names in lower case
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for field, value in self.fields if field == name]


class Reply(NamedTuple):
    body: bytes = b"ok\n"
    fields: Pairs = ()
    status: str = "200 OK"
    trailers: Pairs = ()  # of HTTP/2
    pieces: int = 1  # that the body comes in; more than one: in chunks


Answering = Callable[[Got], Reply]


class Recorder(Server):
    """Takes HTTP/1.1 with and without TLS on one port, and HTTP/2 where the context has it.

    `raw` is every byte of HTTP/1.1 that came, whether understood or not. A GET is answered before its body is
    read, as many servers do.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._secured = tls
        self.answering: Answering = lambda _: Reply()
        self.forget()

    def forget(self) -> None:
        self.got: list[Got] = []
        self.raw = b""
        self.connections = 0
        self.shaken = 0  # TLS handshakes that came to their end

    @property
    def lines(self) -> list[str]:
        return [f"{got.method} {got.path}" for got in self.got]

    def handle(self, sock: socket.socket) -> None:
        if self._secured is None or sock.recv(1, socket.MSG_PEEK) != b"\x16":
            self._http1(sock)
            return
        with contextlib.suppress(OSError), self._secured.wrap_socket(sock, server_side=True) as wrapped:
            self.shaken += 1
            (self._http2 if wrapped.selected_alpn_protocol() == "h2" else self._http1)(wrapped)

    def _http1(self, sock: socket.socket) -> None:
        reading = Reading(sock, self._note)
        with contextlib.suppress(OSError, EOFError):
            while True:
                line, *head = reading.head().split("\r\n")
                method, path = line.split(" ")[:2]
                fields = tuple(_field(text) for text in head)
                early = method == "GET"
                body = b"" if early else reading.body(dict(fields))
                got = Got(method, path, fields, body)
                self.got.append(got)
                sock.sendall(_written(self.answering(got)))
                if early:
                    reading.body(dict(fields))

    def _note(self, data: bytes) -> None:
        self.raw += data

    def _http2(self, sock: socket.socket) -> None:
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="latin-1"))
        conn.initiate_connection()
        sock.sendall(conn.data_to_send())
        bodies: dict[int, bytes] = {}
        heads: dict[int, Any] = {}
        while data := sock.recv(65536):
            for event in conn.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    heads[event.stream_id], bodies[event.stream_id] = event.headers, b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                    conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.TrailersReceived):
                    heads[event.stream_id] = [*heads[event.stream_id], *event.headers]
                elif isinstance(event, h2.events.StreamEnded):
                    self._answer2(conn, event.stream_id, heads[event.stream_id], bodies[event.stream_id])
            sock.sendall(conn.data_to_send())

    def _answer2(self, conn: h2.connection.H2Connection, number: int, head: Any, body: bytes) -> None:
        fields = tuple((name, value) for name, value in head)
        got = Got(dict(fields)[":method"], dict(fields)[":path"], fields, body)
        self.got.append(got)
        reply = self.answering(got)
        conn.send_headers(number, [(":status", reply.status.split()[0]), *reply.fields])
        conn.send_data(number, reply.body, end_stream=not reply.trailers)
        if reply.trailers:
            conn.send_headers(number, list(reply.trailers), end_stream=True)


class Reading:
    """The bytes of one side of HTTP/1.1."""

    def __init__(self, sock: socket.socket, note: Callable[[bytes], None] = lambda _: None) -> None:
        self._sock, self._note, self._buffer = sock, note, b""

    def _fill(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise EOFError
        self._note(data)
        self._buffer += data

    def head(self) -> str:
        return self._until(b"\r\n\r\n").decode("latin-1")

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._fill()
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def rest(self) -> bytes:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._fill()
        return self._buffer

    def body(self, fields: dict[str, str]) -> bytes:
        if fields.get("transfer-encoding", "") != "chunked":
            return self.take(int(fields.get("content-length", 0)))
        whole = b""
        while size := int(self._until(b"\r\n"), 16):
            whole += self.take(size)
            self.take(2)
        self._until(b"\r\n")
        return whole


def _field(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.lower(), value.strip()


def _written(reply: Reply) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in reply.fields)
    if reply.pieces == 1:
        return f"HTTP/1.1 {reply.status}\r\n{head}content-length: {len(reply.body)}\r\n\r\n".encode() + reply.body
    size = -(-len(reply.body) // reply.pieces)
    chunks = [reply.body[at : at + size] for at in range(0, len(reply.body), size)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return f"HTTP/1.1 {reply.status}\r\n{head}transfer-encoding: chunked\r\n\r\n".encode() + body + b"0\r\n\r\n"


# ---- clients


class Heard(NamedTuple):
    """An answer as it reached a client; status 0: there was none."""

    status: int
    fields: dict[str, str]
    body: bytes
    phrase: str = ""

    @property
    def reason(self) -> str:
        return self.fields.get("x-egress-reason", "")

    @property
    def told(self) -> tuple[int, str]:
        return self.status, self.reason


NOTHING = Heard(0, {}, b"")


def tunnel(port: int, host: str, to: int = 443) -> socket.socket:
    """A connection to the gate that believes to be one to a host."""
    sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
    sock.sendall(f"CONNECT {host}:{to} HTTP/1.1\r\nHost: {host}:{to}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        assert piece, head
        head += piece
    assert head.startswith(b"HTTP/1.1 200"), head
    return sock


class Http1:
    """HTTP/1.1 as raw bytes, on a socket that leads to the host."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reading = Reading(sock)

    def say(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # cut off meanwhile
            self.sock.sendall(data)

    def hear(self, method: str = "GET") -> Heard:
        try:
            line, *head = self._reading.head().split("\r\n")
        except (EOFError, OSError):
            return NOTHING
        fields = dict(_field(text) for text in head)
        status = int(line.split(" ")[1])
        body = b""
        if method != "HEAD" and status >= 200:
            with contextlib.suppress(EOFError, OSError):
                body = self._reading.body(fields)
        return Heard(status, fields, body, line.partition(" ")[2].partition(" ")[2])

    def is_cut(self) -> bool:
        return self._reading.rest() == b""

    def close(self) -> None:
        self.sock.close()


class Http2:
    """HTTP/2 with no manners: no field is checked, none is corrected."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        config = h2.config.H2Configuration(
            client_side=True,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            header_encoding="latin-1",
        )
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self._events: list[Any] = []
        self.is_over = False
        self.flush()

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(self.h2.data_to_send())

    def ask(self, head: Pairs, *, body: bytes = b"", end: bool = True, trailers: Pairs = ()) -> int:
        number: int = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, head, end_stream=end and not body and not trailers)
        if body:
            self.h2.send_data(number, body, end_stream=end and not trailers)
        if trailers:
            self.h2.send_headers(number, trailers, end_stream=True)
        self.flush()
        return number

    def hear(self, number: int) -> Heard:
        """The answer to a stream, or what there was of it when it or the connection was cut."""
        ends = h2.events.StreamEnded | h2.events.StreamReset
        while not self.is_over and not any(isinstance(event, ends) for event in self._of(number)):
            self._read()
        heads = [event for event in self._of(number) if isinstance(event, h2.events.ResponseReceived)]
        if not heads:
            return NOTHING
        more = [event.headers for event in self._of(number) if isinstance(event, h2.events.TrailersReceived)]
        fields = dict(heads[0].headers) | {name: value for trailers in more for name, value in trailers}
        pieces = (event.data for event in self._of(number) if isinstance(event, h2.events.DataReceived))
        return Heard(int(fields[":status"]), fields, b"".join(pieces))

    def _of(self, number: int) -> list[Any]:
        return [event for event in self._events if getattr(event, "stream_id", None) == number]

    def _read(self) -> None:
        try:
            data = self.sock.recv(65536)
            events = self.h2.receive_data(data) if data else []
        except (OSError, h2.exceptions.ProtocolError):
            data, events = b"", []
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self._events.append(event)
        self.is_over = not data or any(isinstance(event, h2.events.ConnectionTerminated) for event in events)
        if not self.is_over:
            self.flush()

    def close(self) -> None:
        self.sock.close()


class Inside:
    """Makes clients of a gate that trust its authority."""

    def __init__(self, port: int, certificate: str) -> None:
        self.port, self._certificate = port, certificate

    def trust(self, *alpn: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._certificate)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def tls(
        self, host: str, *alpn: str, context: ssl.SSLContext | None = None, sni: str | None = None
    ) -> ssl.SSLSocket:
        sock = tunnel(self.port, host)
        try:
            return (context or self.trust(*alpn)).wrap_socket(sock, server_hostname=sni or host)
        except BaseException:
            sock.close()
            raise

    @contextlib.contextmanager
    def http1(self, host: str) -> Iterator[Http1]:
        with contextlib.closing(Http1(self.tls(host, "http/1.1"))) as client:
            yield client

    @contextlib.contextmanager
    def http2(self, host: str) -> Iterator[Http2]:
        with contextlib.closing(Http2(self.tls(host, "h2"))) as client:
            yield client

    def once(self, version: str, host: str, method: str, path: str, more: Pairs = (), body: bytes = b"") -> Heard:
        """One request, in either version of HTTP."""
        if version == "h2":
            length = [("content-length", str(len(body)))] if body else []
            head = [(":method", method), (":scheme", "https"), (":authority", host), (":path", path), *length, *more]
            with self.http2(host) as two:
                return two.hear(two.ask(head, body=body))
        fields = "".join(f"{name}: {value}\r\n" for name, value in more)
        length1 = f"Content-Length: {len(body)}\r\n" if body else ""
        with self.http1(host) as one:
            one.say(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{length1}{fields}\r\n".encode("latin-1") + body)
            return one.hear(method)


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.running())
        yield


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
