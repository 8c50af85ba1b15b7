"""Points that a request passes on its way, at which its exchange is brought up to date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mitmproxy.http import HTTPFlow
from mitmproxy.proxy.layers.http._hooks import HttpResponseHook
from mitmproxy.proxy.layers.websocket import WebsocketEndHook, WebsocketMessageHook

from egress.inspection.exchange import EXCHANGE, Exchange, Outcome
from egress.wire.masking import masked


def _exchange(flow: HTTPFlow) -> Exchange:
    return flow.metadata[EXCHANGE]  # type: ignore[no-any-return]


def _answered(hook: HttpResponseHook) -> None:
    """The body is through, and trailers are to follow."""
    exchange, answer = _exchange(hook.flow), hook.flow.response
    exchange.answered = True
    if exchange.masker is not None and answer is not None and answer.trailers:
        answer.trailers.fields = masked(answer.trailers.fields, exchange.masker)


def _message(hook: WebsocketMessageHook) -> None:
    assert hook.flow.websocket is not None  # noqa: S101  # it is a message of one
    message = hook.flow.websocket.messages.pop()  # none is kept
    exchange = _exchange(hook.flow)
    if message.from_client:
        return
    exchange.down += len(message.content)
    if exchange.masker is not None:
        message.content = exchange.masker.whole(message.content)


def _parted(hook: WebsocketEndHook) -> None:
    _exchange(hook.flow).finish(Outcome.CLOSED)


HOOKS: dict[type, Callable[[Any], None]] = {
    HttpResponseHook: _answered,
    WebsocketMessageHook: _message,
    WebsocketEndHook: _parted,
}
