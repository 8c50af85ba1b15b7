"""Plain HTTP requests and their answers, passed on as they stream.

The request goes up in a task of its own only if it has a body, since an answer may come before all of
it was sent. The upstream connection is kept for the next request that the very same rule allows to the
same target. Once an answer has begun, whatever goes wrong can only be told by cutting it off.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import NamedTuple

from egress.gateway import Gateway
from egress.model import Target, Via
from egress.net.relay import Outcome
from egress.net.stream import Closed, Stream
from egress.net.upstream import Upstream
from egress.passage import Passage
from egress.refusals import Reason, Refused
from egress.rules import Rule
from egress.wire.body import request_body, response_body
from egress.wire.http1 import Request, Response, read_response
from egress.wire.rewrite import SWITCHING_PROTOCOLS, check_demands, request_head, response_head, wants_websocket

_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "OPTIONS"})


class Kept(NamedTuple):
    """An upstream connection with nothing in flight, and what it is good for."""

    upstream: Stream
    target: Target
    rule: Rule
    ip: str | None
    proxy: Upstream | None


class Forwarder:
    """The plain HTTP requests of one client connection."""

    def __init__(self, gate: Gateway, client: Stream) -> None:
        self._gate, self._client = gate, client
        self._kept: Kept | None = None

    async def exchange(self, request: Request, persona: str, target: Target, path: str) -> bool:
        """Decide, send, answer; whether the client may send another request."""
        check_demands(request)
        passage = self._gate.decide(self._client, persona, Via.HTTP, target)
        self._client.expire_in(None)
        try:
            return await self._attempt(passage, request, path)
        except Refused as refused:
            self._gate.fail(passage, refused)
            raise
        finally:
            self._gate.leave(passage, Outcome.RESET)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.upstream.close()
            self._kept = None

    async def _attempt(self, passage: Passage, request: Request, path: str) -> bool:
        """A kept connection may die just as it is used: what is safe to repeat is then sent once more."""
        upstream = self._take_kept(passage)
        if upstream is not None:
            try:
                return await self._converse(passage, upstream, request, path)
            except Refused as refused:
                upstream.close()
                if refused.told or passage.is_stopped or request.length or request.method not in _SAFE_TO_REPEAT:
                    raise
        return await self._converse(passage, await self._gate.reach(passage), request, path)

    def _take_kept(self, passage: Passage) -> Stream | None:
        """The kept connection, if it is for this and alive."""
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        if (kept.target, kept.rule) == (passage.target, passage.rule) and _is_quiet(kept.upstream):
            passage.connected(kept.upstream, kept.ip)
            passage.proxy = kept.proxy
            return kept.upstream
        kept.upstream.close()
        return None

    async def _converse(self, passage: Passage, upstream: Stream, request: Request, path: str) -> bool:
        head = request_head(request, passage.target, path, passage.proxy)
        upload = None
        try:
            await upstream.send(head)
            passage.up += len(head)
            if request.length:
                upload = asyncio.create_task(self._upload(passage, upstream, request.length))
            response = await self._response(passage, upstream, request)
        except OSError as error:
            await _raise_upload_error(upload)
            raise Refused(Reason.BAD_RESPONSE, _silence(error)) from None
        else:
            return await self._pass_on(passage, upstream, request, response, upload)
        finally:
            await _cancel(upload)

    async def _upload(self, passage: Passage, upstream: Stream, length: int) -> None:
        """The request's body, as it comes. A client that breaks off takes the upstream with it."""
        body = request_body(length)
        try:
            while True:
                if piece := body.take(self._client.buffer):
                    with contextlib.suppress(ConnectionError):  # it stopped reading: its answer may tell why
                        await upstream.send(piece)
                        passage.up += len(piece)
                if body.done:
                    return
                if not await self._client.fill():
                    body.end()
        except (Refused, OSError):
            upstream.abort()
            raise

    async def _response(self, passage: Passage, upstream: Stream, request: Request) -> Response:
        """The final answer's head; interim ones are passed on as they come."""
        upstream.expire_in(self._gate.limits.response)
        for _ in range(self._gate.limits.interim_responses):
            response = await upstream.run(read_response(upstream.buffer, request.method, self._gate.limits))
            if response.status == SWITCHING_PROTOCOLS and not wants_websocket(request):
                raise Refused(Reason.BAD_RESPONSE, "it switched protocols unasked")
            if response.status >= 200 or response.status == SWITCHING_PROTOCOLS:
                upstream.expire_in(None)
                return response
            if request.minor:
                await self._tell(passage, response_head(response, chunked=False, stays=True))
        raise Refused(Reason.BAD_RESPONSE, "too many interim responses")

    async def _pass_on(
        self,
        passage: Passage,
        upstream: Stream,
        request: Request,
        response: Response,
        upload: asyncio.Task[None] | None,
    ) -> bool:
        """The answer's head and body. From here on an error cuts the client off."""
        sent = upload is None or upload.done()
        chunked = request.minor == 1
        stays = sent and request.keeps_alive and (chunked or response.length >= 0)
        try:
            await self._tell(passage, response_head(response, chunked=chunked, stays=stays))
            if response.status == SWITCHING_PROTOCOLS:
                self._gate.leave(passage, await self._gate.traffic.relay(passage))
                return False
            await self._download(passage, upstream, response, chunked)
        except (Refused, OSError) as error:
            self._client.abort()
            raise _cut_off(error) from None
        self._gate.depart(passage, Outcome.CLOSED)
        self._keep(passage, upstream, sent and response.keeps_alive)
        return stays

    async def _download(self, passage: Passage, upstream: Stream, response: Response, chunked: bool) -> None:
        body = response_body(response.length, chunked)
        while not body.done:
            if piece := body.take(upstream.buffer):
                await self._tell(passage, piece)
            elif not await upstream.fill():
                await self._tell(passage, body.end())

    async def _tell(self, passage: Passage, data: bytes) -> None:
        await self._client.send(data)
        passage.down += len(data)

    def _keep(self, passage: Passage, upstream: Stream, alive: bool) -> None:
        if alive and not upstream.buffer:
            self._kept = Kept(upstream, passage.target, passage.rule, passage.ip, passage.proxy)
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


async def _raise_upload_error(upload: asyncio.Task[None] | None) -> None:
    """If it was the client's side that broke, that is the error to tell."""
    if upload is not None and upload.done():
        await upload


async def _cancel(upload: asyncio.Task[None] | None) -> None:
    if upload is not None:
        upload.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError, Refused):
            await upload


def _silence(error: OSError) -> str:
    return "no answer came in time" if isinstance(error, TimeoutError) else "it closed the connection before answering"


def _cut_off(error: Exception) -> Exception:
    if isinstance(error, Refused):
        failure = Refused(Reason.BAD_RESPONSE, error.detail)
        failure.told = True
        return failure
    return Closed("cut off in the middle of an answer")
