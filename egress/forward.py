"""Plain HTTP requests and their answers, passed on as they stream.

What has come of a body is read before anything is decided, so that one that begins badly goes nowhere.
The rest goes up in a task of its own, since an answer may come before all of it was sent. The upstream
connection is kept for the next request that the very same rule allows to the same target. Once an answer
has begun, whatever goes wrong can only be told by cutting it off.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import NamedTuple

from egress.errand import Errand, prepare
from egress.gateway import Gateway
from egress.model import Target, Via
from egress.net.relay import Outcome
from egress.net.stream import Closed, Stream
from egress.net.upstream import Upstream
from egress.passage import Passage
from egress.refusals import Reason, Refused
from egress.requestdesk import HTTP
from egress.requestpolicy import Asked
from egress.rules import Rule
from egress.wire.body import Body, request_body
from egress.wire.http1 import Request, Response, read_response
from egress.wire.rewrite import SWITCHING_PROTOCOLS, check_demands, request_head, response_head, wants_websocket

Upload = asyncio.Task[None] | None


class Lost(Refused):
    """The upstream went away without a word of an answer."""


class Kept(NamedTuple):
    """An upstream connection with nothing in flight, and what it is good for."""

    upstream: Stream
    target: Target
    rule: Rule
    ip: str | None
    proxy: Upstream | None
    generation: int  # of the policy, which may say elsewhere by now


class Forwarder:
    """The plain HTTP requests of one client connection."""

    def __init__(self, gate: Gateway, client: Stream, via: Via = Via.HTTP) -> None:
        self._gate, self._client, self._via = gate, client, via
        self._kept: Kept | None = None
        self._answered = False
        self.current: Passage | None = None  # the request being served
        self._moved = 0, 0  # by those before it

    def counts(self) -> tuple[int, int]:
        up, down = self._moved
        now_up, now_down = (0, 0) if self.current is None else self.current.counts()
        return up + now_up, down + now_down

    async def exchange(self, request: Request, persona: str, target: Target, path: str) -> bool:
        """Decide, send, answer; whether the client may send another request."""
        check_demands(request)
        body = request_body(request.length)
        errand = Errand(request, path, body, body.take(self._client.buffer))
        passage, errand = await self._admit(errand, persona, target)
        self.current = passage
        self._client.expire_in(None)
        try:
            stays = await self._attempt(passage, errand)
        except Refused as refused:
            self._gate.fail(passage, refused)
            raise
        finally:
            self._gate.leave(passage, Outcome.RESET)
            self._moved, self.current = self.counts(), None
        if not stays and (self._client.buffer or not body.done):
            await self._client.part()  # a close with input unread would take the answer back
        return stays

    async def _admit(self, errand: Errand, persona: str, target: Target) -> tuple[Passage, Errand]:
        gate, request = self._gate, errand.request
        asked = Asked(request.method, errand.path, request.fields)
        ruling = await gate.weigh(self._client, persona, self._via, target, asked, max(request.length, 0))
        looked_into = ruling.decision.rule is not None and ruling.decision.rule.needs_inspection
        try:
            if wants_websocket(request) and (ruling.budget or ruling.exchange.masks):
                raise Refused(Reason.UNSUPPORTED, "a WebSocket in the clear cannot be held to this rule")
            shown = gate.desk.shown(asked) if looked_into else None
            passage = gate.admit(self._client, persona, self._via, target, ruling.decision, shown)
            return passage, prepare(errand, ruling, gate.desk.uploads)
        except Refused as refused:
            refused.detail = refused.detail or ruling.detail
            refused.request = gate.desk.named(HTTP, target, asked) if looked_into else ""
            raise

    def close(self) -> None:
        if self._kept is not None:
            self._kept.upstream.close()
            self._kept = None

    async def _attempt(self, passage: Passage, errand: Errand) -> bool:
        """A kept connection may die just as it is used: what is safe to repeat is then sent once more."""
        upstream = self._take_kept(passage)
        if upstream is not None:
            try:
                return await self._converse(passage, upstream, errand)
            except Lost:
                upstream.close()
                if passage.is_stopped or not errand.may_be_repeated:
                    raise
        return await self._converse(passage, await self._gate.reach(passage), errand)

    def _take_kept(self, passage: Passage) -> Stream | None:
        """The kept connection, if it is for this and alive."""
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        now = (passage.target, passage.rule, self._gate.live.generation)
        if (kept.target, kept.rule, kept.generation) == now and _is_quiet(kept.upstream):
            passage.connected(kept.upstream, kept.ip)
            passage.proxy = kept.proxy
            return kept.upstream
        kept.upstream.close()
        return None

    async def _converse(self, passage: Passage, upstream: Stream, errand: Errand) -> bool:
        upload: Upload = None
        head = request_head(errand.request, passage.target, errand.path, passage.proxy)
        try:
            await _send(passage, upstream, head + errand.counted(errand.first))
            if not errand.body.done:
                upload = asyncio.create_task(self._upload(passage, upstream, errand))
            response = await self._response(passage, upstream, errand, upload)
        except OSError as error:
            await _raise_upload_error(upload)
            raise _silence(error, upstream) from None
        else:
            return await self._pass_on(passage, upstream, errand, response, upload)
        finally:
            await _cancel(upload)

    async def _upload(self, passage: Passage, upstream: Stream, errand: Errand) -> None:
        """The rest of the request's body, as it comes. A client that breaks off takes the upstream with it."""
        body = errand.body
        try:
            while not body.done:
                if not await self._client.fill():
                    body.end()
                await _send(passage, upstream, errand.counted(body.take(self._client.buffer)))
        except (Refused, OSError):
            upstream.abort()
            raise
        if not self._answered:
            upstream.expire_in(self._gate.limits.response)

    async def _response(self, passage: Passage, upstream: Stream, errand: Errand, upload: Upload) -> Response:
        """The final answer's head, due when all was sent; interim ones are passed on as they come."""
        request, self._answered = errand.request, False
        upstream.expire_in(self._gate.limits.response if upload is None else None)
        for _ in range(self._gate.limits.interim_responses):
            response = await upstream.run(read_response(upstream.buffer, request.method, self._gate.limits))
            if response.status == SWITCHING_PROTOCOLS and not wants_websocket(request):
                raise Refused(Reason.BAD_RESPONSE, "it switched protocols unasked")
            if response.status >= 200 or response.status == SWITCHING_PROTOCOLS:
                self._answered = True
                passage.status = response.status
                upstream.expire_in(None)
                return errand.cover(response)
            if request.minor:
                await self._tell(passage, response_head(errand.cover(response), chunked=False, stays=True))
        raise Refused(Reason.BAD_RESPONSE, "too many interim responses")

    async def _pass_on(
        self, passage: Passage, upstream: Stream, errand: Errand, response: Response, upload: Upload
    ) -> bool:
        """The answer's head and body. From here on an error cuts the client off."""
        request = errand.request
        sent = errand.body.done and (upload is None or upload.done())
        chunked = request.minor == 1
        stays = sent and request.keeps_alive and (chunked or response.length >= 0)
        body = errand.answer_body(response, chunked)
        first = _beginning(body, upstream.buffer)
        try:
            await self._tell(passage, response_head(response, chunked=chunked, stays=stays) + first)
            if response.status == SWITCHING_PROTOCOLS:
                self._gate.leave(passage, await self._gate.traffic.relay(passage))
                return False
            await self._download(passage, upstream, body)
        except (Refused, OSError) as error:
            self._client.abort()
            raise _cut_off(error) from None
        self._gate.depart(passage, Outcome.CLOSED)
        self._keep(passage, upstream, sent and response.keeps_alive)
        return stays

    async def _download(self, passage: Passage, upstream: Stream, body: Body) -> None:
        while not body.done:
            if await upstream.fill():
                await self._tell(passage, body.take(upstream.buffer))
            else:
                await self._tell(passage, body.end())

    async def _tell(self, passage: Passage, data: bytes) -> None:
        await self._client.send(data)
        passage.down += len(data)

    def _keep(self, passage: Passage, upstream: Stream, alive: bool) -> None:
        if alive and not upstream.buffer:
            self._kept = Kept(
                upstream, passage.target, passage.rule, passage.ip, passage.proxy, self._gate.live.generation
            )
            passage.upstream = None


def _is_quiet(upstream: Stream) -> bool:
    """Nothing to read: an upstream that closed, or speaks unasked, is not used again."""
    try:
        upstream.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


async def _send(passage: Passage, upstream: Stream, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # it stopped reading: its answer may tell why
        await upstream.send(data)
        passage.up += len(data)


async def _raise_upload_error(upload: Upload) -> None:
    """If it was the client's side that broke, that is the error to tell."""
    if upload is not None and upload.done():
        await upload


async def _cancel(upload: Upload) -> None:
    """Unlike awaiting it, waiting for it leaves apart its cancellation and our own."""
    if upload is not None:
        upload.cancel()
        await asyncio.wait((upload,))
        if not upload.cancelled():
            upload.exception()  # told by now, if it concerned anyone


def _beginning(body: Body, buffer: bytearray) -> bytes:
    """What of an answer's body came with its head; if that is bad already, the answer is."""
    try:
        return body.take(buffer)
    except Refused as refused:
        raise Refused(Reason.BAD_RESPONSE, refused.detail) from None


def _silence(error: OSError, upstream: Stream) -> Refused:
    if isinstance(error, TimeoutError):
        return Refused(Reason.BAD_RESPONSE, "no answer came in time")
    kind = Refused if upstream.buffer else Lost
    return kind(Reason.BAD_RESPONSE, "it closed the connection before answering")


def _cut_off(error: Exception) -> Exception:
    if isinstance(error, Refused):
        failure = Refused(Reason.BAD_RESPONSE, error.detail)
        failure.told = True
        return failure
    return Closed("cut off in the middle of an answer")
