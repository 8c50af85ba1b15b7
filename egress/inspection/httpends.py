"""The HTTP ends of an inspected connection: mitmproxy's, with the bounds and the words of the gate.

mitmproxy has a class for each end and version of HTTP, and the layer above it names some of them itself. The
only way to put others in their place is to set those names, which is done once, at the end of this module.
What is different here: header sections and what may wait have a size; interim answers are skipped and
trailers of HTTP/1.1 and of requests dropped, as every hop may (RFC 9110 section 6.5.1); what is written as HTTP/1.1 has
unmistakable borders, also if it came as HTTP/2; and an error is told in the gate's words, with nothing in
it of what a peer sent.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, cast

import h11
from h2.events import StreamReset
from h11._readers import ChunkedReader
from mitmproxy.connection import ConnectionState
from mitmproxy.http import Headers, Response
from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import _events as said
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp

from egress.inspection import replies
from egress.inspection.replies import Reply
from egress.inspection.toll import Flooded
from egress.inspection.windows import Release, Turn, Windowed
from egress.limits import LIMITS

if TYPE_CHECKING:
    from egress.inspection.httpstream import Http

_WAITING = 4 * LIMITS.header_bytes  # of a peer that speaks out of turn
_HEAD_END = re.compile(rb"\n\r?\n")
# Of a request, as the gate reads it in the clear: single blanks, lines that end in CRLF, no other control characters.
_REQUEST_HEAD = re.compile(rb"[\x21-\xff]+ [\x21-\xff]+ [\x21-\xff]+\r\n(?:[^\x00-\x08\x0a-\x1f\x7f]+\r\n)*\r\n")
_BY_STATUS = {reply.status: reply for reply in (replies.MALFORMED, replies.UPLOAD_LIMIT, replies.BAD_RESPONSE)}


def silent() -> Any:
    """The code of an error that is not told: the peer is simply cut off. An enumeration from mitmproxy 12 on."""
    return said.ErrorCode.KILL if hasattr(said, "ErrorCode") else 444


def response(reply: Reply, version: bytes, *, close: bool = False) -> Response:
    fields = list(reply.fields)
    if close and version != b"HTTP/2.0":
        fields = [field for field in fields if field[0].lower() != b"connection"] + [(b"connection", b"close")]
    reason = next((value for name, value in fields if name.lower() == b"x-egress-reason"), b"")
    now = time.time()
    phrase = b"Refused by egress: " + reason if reason else b"Refused by egress"
    return Response(version, reply.status, phrase, Headers(fields), None, None, now, now)


def _told(layer: Any, event: said.ResponseProtocolError) -> Reply | None:
    """What the client reads of an error; None: nothing."""
    code: Any = event.code
    status = code.http_status_code() if hasattr(code, "http_status_code") else {444: None, 499: None}.get(code, code)
    return None if status is None else _layer_above(layer).reply_for(event.message, status)


def reply_for_status(status: int) -> Reply:
    return _BY_STATUS.get(status, replies.BAD_RESPONSE if status >= 500 else replies.MALFORMED)


def _layer_above(layer: Any) -> Http:
    return cast("Http", next(each for each in layer.context.layers if isinstance(each, http.HttpLayer)))


class _Bounded(_http1.Http1Connection):
    """Nothing waits in the buffer but a head that is not yet whole, and what a peer sends before its turn."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if self.state == self.read_headers and isinstance(event, events.DataReceived) and self._is_too_long(event.data):
            yield from self.too_long()
            return
        yield from super()._handle_event(event)
        if len(self.buf) > _WAITING:
            yield commands.CloseConnection(self.conn)

    def _is_too_long(self, data: bytes) -> bool:
        if len(self.buf) + len(data) <= LIMITS.header_bytes:
            return False
        return not _HEAD_END.search((bytes(self.buf) + data)[: LIMITS.header_bytes])

    def too_long(self) -> CommandGenerator[None]:
        raise NotImplementedError


class Front1(_Bounded, _http1.Http1Server):
    """Towards a client that speaks HTTP/1.1."""

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        if isinstance(event, events.DataReceived) and self._is_loose(event.data):
            yield from self._part(replies.MALFORMED)
        else:
            yield from super().read_headers(event)

    def _is_loose(self, last: bytes) -> bool:
        """Is there a whole head, and is it one that mitmproxy would forgive for how it is written?"""
        if last and b"\n" not in last:
            return False
        head = bytes(self.buf)
        return _HEAD_END.search(head) is not None and not _REQUEST_HEAD.match(head)

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, said.ResponseProtocolError):
            yield from self._end(event)
        elif not isinstance(event, said.ResponseTrailers):
            yield from super().send(event)

    def _end(self, event: said.ResponseProtocolError) -> CommandGenerator[None]:
        if not self.conn.state & ConnectionState.CAN_WRITE:
            return
        reply = _told(self, event)
        if reply is not None and (self.response is None or self.response.status_code == 100):
            yield commands.SendData(self.conn, _written(reply))
        yield commands.CloseConnection(self.conn)

    def too_long(self) -> CommandGenerator[None]:
        yield from self._part(replies.TOO_LARGE)

    def _part(self, reply: Reply) -> CommandGenerator[None]:
        yield commands.SendData(self.conn, _written(reply))
        yield commands.CloseConnection(self.conn)
        self.state = self.done

    def drop(self, stream_id: int) -> CommandGenerator[None]:
        """The rest of this request is not wanted, and with it nothing that could follow."""
        yield commands.CloseConnection(self.conn)

    def unsent(self, stream_id: int | None) -> int:
        return 0  # its socket says so


class _InTurns(_http2.Http2Connection):
    """An end that speaks HTTP/2: its frames, and what it may send more of."""

    is_flooded = False

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, Release):
            yield commands.SendData(self.conn, windowed(self).release())
        else:
            yield from super()._handle_event(events.DataReceived(self.conn, b"") if isinstance(event, Turn) else event)

    def handle_h2_event(self, event: Any) -> CommandGenerator[bool]:
        if not isinstance(event, Flooded):
            return (yield from super().handle_h2_event(event))
        self.is_flooded = True
        yield commands.SendData(self.conn, self.h2_conn.data_to_send())  # h2 said ENHANCE_YOUR_CALM
        yield from self.close_connection("flooded")
        return True


class Front2(_InTurns, _http2.Http2Server):
    """Towards a client that speaks HTTP/2."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        windowed(self).holds = _layer_above(self).is_upload_stuck

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, said.ResponseProtocolError) and self._is_unanswered(event.stream_id):
            reply = _told(self, event)
            if reply is not None:
                yield from self._answer(event.stream_id, reply)
                return
        yield from super()._handle_event(event)

    def handle_h2_event(self, event: Any) -> CommandGenerator[bool]:
        """mitmproxy forgets a stream that is whole and reset in one read, and would let the request go on."""
        if isinstance(event, StreamReset) and event.stream_id in _layer_above(self).streams:
            self.streams.setdefault(event.stream_id, _http2.StreamState.HEADERS_RECEIVED)
        return (yield from super().handle_h2_event(event))

    def _is_unanswered(self, stream_id: int) -> bool:
        return self.is_open_for_us(stream_id) and not self.h2_conn.streams[stream_id].state_machine.headers_sent

    def _answer(self, stream_id: int, reply: Reply) -> CommandGenerator[None]:
        head = response(reply, b"HTTP/2.0")
        yield from super()._handle_event(said.ResponseHeaders(stream_id, head))
        yield from super()._handle_event(said.ResponseData(stream_id, reply.body))
        yield from super()._handle_event(said.ResponseEndOfMessage(stream_id))

    def drop(self, stream_id: int) -> CommandGenerator[None]:
        """The answer is whole; the rest of the request is not wanted (RFC 9113 section 8.1: NO_ERROR)."""
        if not self.is_closed(stream_id) and stream_id not in self.h2_conn.stream_buffers:
            self.h2_conn.reset_stream(stream_id, 0)
            self.streams.pop(stream_id, None)
            yield commands.SendData(self.conn, self.h2_conn.data_to_send())

    def unsent(self, stream_id: int | None) -> int:
        return windowed(self).unsent(stream_id)


class Back1(_Bounded, _http1.Http1Client):
    """Towards a server that speaks HTTP/1.1."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._interim = 0
        _layer_above(self).backs[self.conn] = self

    def unsent(self, stream_id: int) -> int:
        return 0

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, said.RequestHeaders) and not event.end_stream:
            _give_borders(event)
        yield from super().send(event)

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        while self.request is not None and (size := _interim_head(bytes(self.buf))):
            self._interim += 1
            if self._interim > LIMITS.interim_responses:
                yield from self.too_long()
                return
            self.buf.maybe_extract_at_most(size)
        yield from super().read_headers(event)

    def too_long(self) -> CommandGenerator[None]:
        yield commands.CloseConnection(self.conn)
        if self.stream_id is not None:
            code = cast("Any", said.ResponseProtocolError.code)
            yield ReceiveHttp(said.ResponseProtocolError(self.stream_id, "too long", code))


class Back2(_InTurns, _http2.Http2Client):
    """Towards a server that speaks HTTP/2."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        above = _layer_above(self)
        above.backs[self.conn] = self
        windowed(self).holds = lambda ours: above.is_answer_stuck(self.their_stream_id.get(ours))

    def unsent(self, stream_id: int) -> int:
        """Of a request, by the number that its client gave it."""
        waiting = (event for event in self.stream_queue.get(stream_id, ()) if isinstance(event, said.RequestData))
        return sum(len(event.data) for event in waiting) + windowed(self).unsent(self.our_stream_id.get(stream_id))


class _WithoutTrailers(ChunkedReader):
    def __call__(self, buffer: Any) -> Any:
        event = super().__call__(buffer)
        return h11.EndOfMessage() if isinstance(event, h11.EndOfMessage) else event


def _give_borders(event: said.RequestHeaders) -> None:
    """A body of unknown length has its end marked. mitmproxy writes one that came as HTTP/2 with no mark at all."""
    fields = event.request.headers
    if "content-length" not in fields and "transfer-encoding" not in fields:
        fields["transfer-encoding"] = "chunked"


def _interim_head(buffer: bytes) -> int:
    """The size of an interim answer at the front, 101 excepted, which is final for us (RFC 9110 section 15.2)."""
    if not re.match(rb"HTTP/1\.[01] 1(?!01)\d\d[ \r\n]", buffer):
        return 0
    end = _HEAD_END.search(buffer)
    return end.end() if end else 0


def windowed(end: _http2.Http2Connection) -> Windowed:
    return cast("Windowed", end.h2_conn)


def _written(reply: Reply) -> bytes:
    head: bytes = http1.assemble_response_head(response(reply, b"HTTP/1.1", close=True))  # type: ignore[no-untyped-call]
    return head + reply.body


def _body_reader(size: int | None) -> Any:
    return _WithoutTrailers() if size is None else _sized_reader(size)


def _error_response(status: int, message: str = "") -> bytes:
    return _written(reply_for_status(status))


_sized_reader = _http1.make_body_reader
_http1.make_body_reader = _body_reader  # type: ignore[assignment]
_http1.make_error_response = _error_response  # type: ignore[assignment]
http.Http1Client = Back1  # type: ignore[attr-defined]
http.Http2Client = Back2  # type: ignore[attr-defined]
