"""One request and its answer, on their way through mitmproxy's HTTP layer.

mitmproxy's stream reads a request whole before it lets anyone answer it, and asks many hooks on the way. Ours
asks once, when the head of a request is there. Refused: the answer goes out and the rest of the request is
dropped. Allowed: bodies pass both ways as they come, so that event streams, uploads of any size and gRPC calls
that answer before they were asked all flow, and nothing is kept.

    head ── malformed → 400
      └─ Asking ── refused → the gate's answer, the upload dropped
            └─ up, within its budget ── over it → cut off, 413
                  └─ down, masked ── cannot be masked or is malformed → 502
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mitmproxy.connection import Connection
from mitmproxy.http import HTTPFlow, Response
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import _events as said

from egress.inspection import replies, screening
from egress.inspection.exchange import EXCHANGE, Exchange, Outcome
from egress.inspection.failures import Failure
from egress.inspection.httpends import Back1, Back2, Front1, Front2, reply_for_status, response, silent, windowed
from egress.inspection.replies import Reply
from egress.inspection.websockets import Frames
from egress.inspection.windows import UNSENT, Release, Turn

_LONGEST_MESSAGE = 32 * 1024 * 1024  # of a WebSocket; it is passed on when it is whole


@dataclass
class AskingHook(commands.StartHook):  # type: ignore[no-untyped-call]  # mitmproxy registers it
    """May this request go? The stream goes on when its exchange knows."""

    stream: Stream


class Http(http.HttpLayer):
    """The requests of one client's connection."""

    def __init__(
        self, context: Context, exchange: Callable[[], Exchange], is_full: Callable[[Connection], bool]
    ) -> None:
        super().__init__(context, http.HTTPMode.transparent)
        self.new_exchange, self._is_full = exchange, is_full
        self.front: Front1 | Front2 | None = None
        self.backs: dict[Connection, Back1 | Back2] = {}
        self.failures: dict[str, Failure] = {}  # by what mitmproxy is told

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Start):
            kind = Front2 if self.context.client.alpn == b"h2" else Front1
            self.front = self.connections[self.context.client] = kind(self.context.fork())
        if self._is_known(event):
            yield from super()._handle_event(event)
        if isinstance(event, events.ConnectionClosed):
            self._forget(event.connection)
        for end in [self.front, *self.backs.values()]:
            if isinstance(end, Front2 | Back2) and end.conn.connected:
                yield from self._see_to(end, event)

    def _see_to(self, end: Front2 | Back2, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, Turn) and windowed(end).is_behind:
            yield from self.event_to_child(self.connections[end.conn], Turn())
        if end.conn.connected and windowed(end).can_release:
            yield from self.event_to_child(self.connections[end.conn], Release())

    def _is_known(self, event: events.Event) -> bool:
        if isinstance(event, events.ConnectionEvent):
            return event.connection in self.connections
        return not isinstance(event, Release | Turn)

    def _forget(self, connection: Connection) -> None:
        """A client may have many servers after each other, and mitmproxy would keep them all."""
        if connection not in (self.context.client, *self.waiting_for_establishment) and not connection.connected:
            self.connections.pop(connection, None)

    def make_stream(self, stream_id: int) -> CommandGenerator[None]:
        self.streams[stream_id] = stream = Stream(self.context.fork(), stream_id, self)
        yield from self.event_to_child(stream, events.Start())

    def register_connection(self, command: http.RegisterHttpConnection) -> CommandGenerator[None]:
        yield from super().register_connection(command)
        if command.err:  # else all later requests would fail with it
            self.connections.pop(command.connection, None)

    def is_upload_stuck(self, stream_id: int) -> bool:
        """Does this request wait: for the gate, for its server, or for that to read on?"""
        stream = self.streams.get(stream_id)
        if stream is None:
            return False
        server = stream.context.server
        back = self.backs.get(server)
        return (
            stream._paused is not None
            or self._is_full(server)
            or (back is not None and back.unsent(stream_id) > UNSENT)
        )

    def is_answer_stuck(self, stream_id: int | None) -> bool:
        """Does the client not take what it was sent of this answer?"""
        return self._is_full(self.context.client) or (self.front is not None and self.front.unsent(stream_id) > UNSENT)

    def is_behind(self, connection: Connection) -> bool:
        """Are there frames of it that wait for its next turn?"""
        end = self.front if connection is self.context.client else self.backs.get(connection)
        return isinstance(end, Front2 | Back2) and windowed(end).is_behind

    def reply_for(self, message: str, status: int) -> Reply:
        failure = self.failures.get(message)
        return failure.reply if failure else reply_for_status(status)


class Stream(http.HttpStream):
    def __init__(self, context: Context, stream_id: int, above: Http) -> None:
        super().__init__(context, stream_id)
        self.above = above
        self.exchange: Exchange = above.new_exchange()
        self.scheme = "https"

    def state_wait_for_request_headers(self, event: said.RequestHeaders) -> CommandGenerator[None]:
        request, exchange = event.request, self.exchange
        self.flow = HTTPFlow(self.context.client, self.context.server)
        self.flow.request, self.flow.live = request, True
        self.flow.metadata[EXCHANGE] = exchange
        exchange.whole = event.end_stream
        if screening.has_too_many(request.headers):
            yield from self._turn_away(replies.TOO_LARGE)
            return
        if (yield from self.check_invalid(True)):
            yield http.DropStream(self.stream_id)
            return
        if screening.is_malformed(request, self.context.client.alpn, whole=event.end_stream):
            yield from self._turn_away(replies.MALFORMED)
            return
        self._aim(request)
        yield AskingHook(self)
        if (yield from self.check_killed(True)):  # taken back, while the gate was asked
            exchange.finish(Outcome.RESET)
            yield http.DropStream(self.stream_id)
        elif exchange.refusal is not None:
            yield from self._refuse(exchange.refusal)
        else:
            yield from self._let_go(event)

    def _turn_away(self, reply: Reply) -> CommandGenerator[None]:
        self.exchange.whole = False  # where it ends is in doubt
        yield from self._refuse(reply)

    def _aim(self, request: Any) -> None:
        """There is one place it can go to, whatever it says."""
        self.scheme = request.scheme or "https"
        assert self.context.server.address  # noqa: S101  # set for good when the connection was handed over
        request.data.host, request.data.port = self.context.server.address
        request.scheme = "https"

    def _let_go(self, event: said.RequestHeaders) -> CommandGenerator[None]:
        request = event.request
        if request.headers.get("expect", "").lower() == "100-continue":
            interim = Response.make(100)
            interim.headers.clear()
            yield http.SendHttp(said.ResponseHeaders(self.stream_id, interim), self.context.client)
            request.headers.pop("expect")
        self.server_state = self.state_wait_for_response_headers
        if event.end_stream:
            self.client_state = self.state_consume_request_body
        else:
            request.stream = True
            yield from self.start_request_stream()

    def state_stream_request_body(self, event: Any) -> CommandGenerator[None]:
        if isinstance(event, said.RequestEndOfMessage):
            yield from self._sent(event)
        elif isinstance(event, said.RequestTrailers) or not event.data:
            return  # the gate was not asked about trailers; and as a chunk, nothing would read as the end of the body
        elif self.exchange.may_send(len(event.data)):
            yield from super().state_stream_request_body(event)
        else:
            yield from self._overrun()

    def _sent(self, event: said.RequestEndOfMessage) -> CommandGenerator[None]:
        """Short of what it announced, a server would read what comes next as the rest of it."""
        if screening.announced(self.flow.request) in (None, self.exchange.up):
            yield from super().state_stream_request_body(event)
        else:
            yield from self._cut(Outcome.RESET)

    def state_wait_for_response_headers(self, event: said.ResponseHeaders) -> CommandGenerator[None]:
        self.flow.response = event.response
        if (yield from self.check_invalid(False)):
            self.exchange.status = replies.BAD_RESPONSE.status
            self.exchange.finish(Outcome.BAD_RESPONSE)
            yield http.DropStream(self.stream_id)
            return
        if not screening.release(self.flow.request, event.response, self.exchange, whole=event.end_stream):
            yield from self._reject()
            return
        self.exchange.status = event.response.status_code
        if event.end_stream:
            self.server_state = self.state_consume_response_body
        else:
            event.response.stream = self.exchange.download
            yield from self.start_response_stream()

    def state_stream_response_body(self, event: Any) -> CommandGenerator[None]:
        try:
            yield from super().state_stream_response_body(event)
        except ValueError:  # it cannot be read through
            yield from self._cut(Outcome.BAD_RESPONSE)

    def flow_done(self) -> CommandGenerator[None]:
        if not self.flow.websocket:
            self.exchange.finish(Outcome.CLOSED)
        yield from super().flow_done()

    def handle_protocol_error(self, event: Any) -> CommandGenerator[None]:
        exchange = self.exchange
        failure = self.above.failures.get(event.message)
        outcome = Outcome.CLOSED if exchange.answered else Outcome.RESET
        if isinstance(event, said.ResponseProtocolError) and self.flow.response is None:
            outcome = failure.outcome if failure else Outcome.BAD_RESPONSE
            exchange.status = self.above.reply_for(event.message, 502).status
        yield from super().handle_protocol_error(event)
        exchange.finish(outcome)

    def passthrough(self, event: events.Event) -> CommandGenerator[None]:
        """A WebSocket, frame by frame: all that the client sends counts, whatever kind of frame it is."""
        if isinstance(event, said.RequestData) and not self.exchange.may_send(len(event.data)):
            yield from self._cut(Outcome.REFUSED)
            return
        yield from super().passthrough(event)
        if isinstance(self.child_layer, Frames) and _is_bloated(self.child_layer):
            yield from self._cut(Outcome.REFUSED)

    def _refuse(self, reply: Reply) -> CommandGenerator[None]:
        """Answer in the server's place. What the client still sends for this request goes nowhere."""
        whole = self.exchange.whole or any(isinstance(e, said.RequestEndOfMessage) for e in self._paused_event_queue)
        request, client = self.flow.request, self.context.client
        version = b"HTTP/2.0" if isinstance(self.above.front, Front2) else b"HTTP/1.1"
        if version == b"HTTP/2.0" and screening.is_grpc(request):
            reply = replies.as_grpc(reply)
        self.client_state = self.server_state = self.state_errored
        self._handle_event = self.state_errored
        self.flow.live = False
        head = response(reply, version, close=not whole)
        has_body = bool(reply.body) and request.method != "HEAD"
        yield http.SendHttp(said.ResponseHeaders(self.stream_id, head, end_stream=not has_body), client)
        if has_body:
            yield http.SendHttp(said.ResponseData(self.stream_id, reply.body), client)
        yield http.DropStream(self.stream_id)
        yield http.SendHttp(said.ResponseEndOfMessage(self.stream_id), client)
        if not whole and self.above.front is not None:
            yield from self.above.front.drop(self.stream_id)

    def _overrun(self) -> CommandGenerator[None]:
        if self.flow.response is not None:
            yield from self._cut(Outcome.REFUSED)
            return
        yield from self._leave_server()
        self.exchange.status = replies.UPLOAD_LIMIT.status
        self.exchange.finish(Outcome.REFUSED)
        yield from self._refuse(replies.UPLOAD_LIMIT)

    def _reject(self) -> CommandGenerator[None]:
        """The server's answer is not passed on."""
        yield from self._leave_server()
        self.exchange.status = replies.BAD_RESPONSE.status
        self.exchange.finish(Outcome.BAD_RESPONSE)
        yield from self._refuse(replies.BAD_RESPONSE)

    def _cut(self, outcome: Outcome) -> CommandGenerator[None]:
        """An answer is already on its way, so it ends in the middle."""
        self.client_state = self.server_state = self.state_errored
        self._handle_event = self.state_errored
        self.flow.live = False
        self.exchange.finish(outcome)
        yield from self._leave_server()
        cut = said.ResponseProtocolError(self.stream_id, "cut", silent())
        yield http.SendHttp(cut, self.context.client)
        yield http.DropStream(self.stream_id)

    def _leave_server(self) -> CommandGenerator[None]:
        """Over HTTP/1.1 this closes its connection; over HTTP/2, the stream."""
        if self.context.server in self.above.connections:
            cut = said.RequestProtocolError(self.stream_id, "cut", silent())
            yield http.SendHttp(cut, self.context.server)


def _is_bloated(layer: Frames) -> bool:
    ends = (getattr(layer, "client_ws", None), getattr(layer, "server_ws", None))
    return any(sum(map(len, end.frame_buf)) > _LONGEST_MESSAGE for end in ends if end is not None)
