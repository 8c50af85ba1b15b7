"""A client's connection that is inspected, from the hand-over to its end.

mitmproxy's protocol layers do no IO: they take events and give commands. This drives them, in place of
mitmproxy's own proxy server, because here nothing may be resolved or dialled, a question to the gate must hold
up only its own request, and there is no task per hook and no lock: events wait in a queue, and each is
worked off before the next. If the layers fail, the connection is cut; nothing passes that they did not let
through.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mitmproxy.connection import Client, Connection, ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers import tls

from egress.inspection import failures, milestones, replies, screening
from egress.inspection.exchange import Exchange, Outcome
from egress.inspection.failures import Failure
from egress.inspection.house import House
from egress.inspection.httpends import Front2
from egress.inspection.httpstream import AskingHook, Http, Stream
from egress.inspection.messages import Closed, Done, Moved, Open, Reach, Unreached, Verdict
from egress.inspection.pace import Pace
from egress.inspection.peer import Peer
from egress.inspection.tlsends import ClientTls
from egress.inspection.windows import Release, Turn
from egress.limits import LIMITS

_SOMEWHERE = ("client", 0)  # mitmproxy wants an address to show


class _Ground(Layer):
    """mitmproxy looks at what is below TLS, and there must be something."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        yield from ()


class Inspected:
    """`over` is called when nothing of it is left."""

    def __init__(self, house: House, opened: Open, over: Callable[[int], None]) -> None:
        self.conn, self.host = opened.conn, opened.host
        self._house, self._over, self._seen = house, over, opened.seen
        client = Client(
            peername=_SOMEWHERE, sockname=_SOMEWHERE, timestamp_start=time.time(), state=ConnectionState.OPEN
        )
        context = Context(client, house.settings)
        context.server.address, context.server.sni, context.server.tls = (opened.host, opened.port), opened.host, True
        _Ground(context)
        self._layer = ClientTls(context)
        self._http = self._layer.child_layer = Http(context, self._new_exchange, self._is_full)
        self._client = Peer(client, self, house.loop)
        self._client.deadline = house.loop.time() + LIMITS.handshake
        self._peers: dict[Connection, Peer] = {client: self._client}
        self._queue: deque[events.Event] = deque()
        self._running = False
        self._exchanges: dict[int, Exchange] = {}
        self._asking: dict[int, AskingHook] = {}
        self._reaching: dict[int, commands.OpenConnection] = {}
        self._opening: set[Connection] = set()
        self._pace = Pace(self._http, self._client, self._peers, self._asking, lambda: self.feed(Turn()), house.loop)
        self._requests = self._serial = self._told = 0
        self._failure: str | None = None
        self._is_over = False
        self._quiet = house.loop.time()  # since when there is no request

    # ---- what the gate says

    def start(self, fd: int) -> None:
        self._house.attach(socket.socket(fileno=fd), self._client, self._begin)

    def _begin(self) -> None:
        self.feed(events.Start())
        seen, self._seen = self._seen, b""
        self._client.data_received(seen)

    def decided(self, verdict: Verdict) -> None:
        hook = self._asking.pop(verdict.request, None)
        if hook is None:
            return
        stream = hook.stream
        stream.exchange.decided(verdict)
        if stream.exchange.allowed:
            self._exchanges[verdict.request] = stream.exchange
            _let(stream, verdict)
        self.feed(events.HookCompleted(hook))
        self._settle()
        self._pace.answered()

    def reached(self, serial: int, fd: int) -> None:
        command = self._reaching.pop(serial, None)
        if command is None or self._client.is_closing:
            os.close(fd)
            return
        server = command.connection
        server.peername = server.sockname = _SOMEWHERE
        server.timestamp_start = server.timestamp_tcp_setup = time.time()
        peer = self._peers[server] = Peer(server, self, self._house.loop)
        peer.deadline = self._house.loop.time() + LIMITS.handshake
        server.state = ConnectionState.OPEN
        self._house.attach(
            socket.socket(fileno=fd), peer, lambda: self.feed(events.OpenConnectionCompleted(command, None))
        )

    def unreached(self, answer: Unreached) -> None:
        command = self._reaching.pop(answer.serial, None)
        if command is not None:
            self._fail(command.connection, failures.of_dialling(answer))
            self.feed(events.OpenConnectionCompleted(command, command.connection.error))

    def stop(self, failure: str | None = None) -> None:
        self._failure = self._failure or failure
        self._client.abort()

    # ---- what the sockets say

    def received(self, peer: Peer, data: bytes) -> None:
        if peer is self._client and (self._asking or self._opening):
            self._pace.early += len(data)
        self.feed(events.DataReceived(peer.connection, data))
        self.balance()

    def ended(self, peer: Peer) -> None:
        self.feed(events.ConnectionClosed(peer.connection))

    def lost(self, peer: Peer) -> None:
        self._http.backs.pop(peer.connection, None)
        if self._peers.pop(peer.connection, None) is not None:
            self.feed(events.ConnectionClosed(peer.connection))
        if peer is self._client:
            self._finish()

    def balance(self) -> None:
        self._pace.balance()

    def relieved(self) -> None:
        """A socket takes data again."""
        self.feed(Release())
        self.balance()

    def look(self, now: float) -> None:
        """Once a second: tell what moved, and end what takes too long."""
        moved = self._client.received + self._client.sent
        if moved != self._told:
            self._told = moved
            self._house.tell(Moved(self.conn, self._client.received, self._client.sent))
        if self._exchanges or self._asking or self._opening:
            self._quiet = now
        elif now - self._quiet > LIMITS.keep_alive:  # also a head that never comes to its end
            self.stop("no request came in time")
        for peer in list(self._peers.values()):
            if peer.deadline is not None and now > peer.deadline:
                self._failure = self._failure or "the TLS handshake did not come to its end in time"
                peer.abort()

    # ---- what the layers want

    def feed(self, event: events.Event) -> None:
        self._queue.append(event)
        if self._running or self._is_over:
            return
        self._running = True
        try:
            while self._queue:
                for command in self._layer.handle_event(self._queue.popleft()):
                    self._do(command)
        except Exception as error:  # whatever it is, nothing more may pass
            self._queue.clear()
            self.stop(f"the engine failed ({type(error).__name__})")
        finally:
            self._running = False

    def _do(self, command: commands.Command) -> None:
        act = _ACTS.get(type(command))
        if act is not None:
            act(self, command)
        elif isinstance(command, commands.StartHook):
            if type(command) in _HOOKS:
                _HOOKS[type(command)](self, command)
            elif type(command) in milestones.HOOKS:
                milestones.HOOKS[type(command)](command)
            self._queue.append(events.HookCompleted(command))

    def _send(self, command: commands.SendData) -> None:
        peer = self._peers.get(command.connection)
        if peer is not None:
            peer.send(command.data)

    def _close(self, command: commands.CloseConnection) -> None:
        connection = command.connection
        if getattr(command, "half_close", False):
            if connection in self._peers:
                self._peers[connection].finish_sending()
            return
        peer = self._peers.pop(connection, None)
        if peer is not None:
            peer.close(gently=peer is self._client)
            self._queue.append(events.ConnectionClosed(connection))

    def _reach(self, command: commands.OpenConnection) -> None:
        self._serial += 1
        self._reaching[self._serial] = command
        self._opening.add(command.connection)
        self._house.tell(Reach(self.conn, self._serial))

    def _ask(self, hook: AskingHook) -> None:
        stream, number = hook.stream, hook.stream.exchange.number
        self._asking[number] = hook
        whole = stream.exchange.whole
        self._house.tell(screening.question(self.conn, number, stream.flow.request, stream.scheme, whole=whole))

    def _client_tls(self, hook: tls.TlsStartClientHook) -> None:
        hook.data.ssl_conn = self._house.ends.towards_client(self.host)

    def _server_tls(self, hook: tls.TlsStartServerHook) -> None:
        hook.data.ssl_conn = self._house.ends.towards_server(self.host, hook.data.context.client.alpn)

    def _established(self, hook: tls.TlsEstablishedClientHook | tls.TlsEstablishedServerHook) -> None:
        connection = hook.data.conn
        self._opened(connection)
        if connection in self._peers:
            self._peers[connection].deadline = None

    def _client_failed(self, hook: tls.TlsFailedClientHook) -> None:
        self._failure = failures.of_client(hook.data.conn.error or "")

    def _server_failed(self, hook: tls.TlsFailedServerHook) -> None:
        failure = failures.of_server(self.host, hook.data.conn.error or "")
        self._failure = "no TLS with the server" if failure.reply is replies.BAD_RESPONSE else failure.words
        self._fail(hook.data.conn, failure)

    # ---- bookkeeping

    def _new_exchange(self) -> Exchange:
        self._requests += 1
        return Exchange(self.conn, self._requests, self._house.counts, self._done)

    def _done(self, done: Done) -> None:
        self._exchanges.pop(done.request, None)
        self._house.tell(done)

    def _is_full(self, connection: Connection) -> bool:
        peer = self._client if connection is self._client.connection else self._peers.get(connection)
        return peer is not None and peer.is_full

    def _fail(self, server: Connection, failure: Failure) -> None:
        server.error = failure.words
        self._http.failures[failure.words] = failure
        self._opened(server)

    def _opened(self, connection: Connection) -> None:
        self._opening.discard(connection)
        self._settle()

    def _settle(self) -> None:
        if not self._opening and not self._asking:
            self._pace.early = 0

    def _finish(self) -> None:
        peers = list(self._peers.values())
        self._peers.clear()
        for peer in peers:
            peer.abort()
        for exchange in list(self._exchanges.values()):
            exchange.finish(Outcome.CLOSED if exchange.answered else Outcome.RESET)
        flooded = isinstance(self._http.front, Front2) and self._http.front.is_flooded
        self._house.tell(Closed(self.conn, self._client.received, self._client.sent, self._failure, flooded))
        self._over(self.conn)
        self._let_go()

    def _let_go(self) -> None:
        """Layers refer to each other in circles, and would keep OpenSSL's memory until someone looks."""
        self._is_over = True
        for layer in (self._layer, *self._http.connections.values()):
            if isinstance(layer, tls.TLSLayer):
                layer.tls = None  # type: ignore[assignment]  # as it begins
        self._http.connections.clear()
        self._http.streams.clear()
        self._http.backs.clear()
        self._queue.clear()


def _let(stream: Stream, verdict: Verdict) -> None:
    """The gate allows it. What no policy can allow is still refused, and the log says so."""
    request, exchange = stream.flow.request, stream.exchange
    if screening.is_unsupported(request):
        exchange.refusal, exchange.status = replies.UNSUPPORTED, replies.UNSUPPORTED.status
        exchange.finish(Outcome.REFUSED)
    else:
        screening.admit(request, verdict, exchange)


_ACTS: dict[type, Callable[[Inspected, Any], None]] = {
    commands.SendData: Inspected._send,
    commands.CloseConnection: Inspected._close,
    commands.CloseTcpConnection: Inspected._close,
    commands.OpenConnection: Inspected._reach,
    AskingHook: Inspected._ask,
}
_HOOKS: dict[type, Callable[[Inspected, Any], None]] = {
    tls.TlsStartClientHook: Inspected._client_tls,
    tls.TlsStartServerHook: Inspected._server_tls,
    tls.TlsEstablishedClientHook: Inspected._established,
    tls.TlsEstablishedServerHook: Inspected._established,
    tls.TlsFailedClientHook: Inspected._client_failed,
    tls.TlsFailedServerHook: Inspected._server_failed,
}
