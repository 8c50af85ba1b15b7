"""Heads as they are passed on: written anew for the next hop, with what routes and frames being ours."""

from __future__ import annotations

from typing import Protocol

from egress.model import Target
from egress.refusals import Reason, Refused
from egress.wire.http1 import CHUNKED, UNTIL_CLOSE, Field, Request, Response, end_to_end, tokens, values, write_head

SWITCHING_PROTOCOLS = 101
_HTTP_PORT = 80


def check_demands(request: Request) -> None:
    """Refuse what a request asks of its next hop and the gate cannot grant."""
    if any(value.lower() != "100-continue" for value in values(request.fields, "expect")):
        raise Refused(Reason.MALFORMED_REQUEST, "an expectation other than 100-continue")
    wanted = _upgrade(request)
    if wanted and (wanted != ["websocket"] or request.method != "GET" or request.length):
        raise Refused(Reason.UNSUPPORTED, f"upgrade to {wanted!r}; only a GET to websocket is passed on")


def wants_websocket(request: Request) -> bool:
    return _upgrade(request) == ["websocket"]


def _upgrade(request: Request) -> list[str]:
    """What it would rather speak; it counts only where Connection names it."""
    wanted = tokens(request.fields, "upgrade")
    return wanted if wanted and "upgrade" in tokens(request.fields, "connection") else []


class NextProxy(Protocol):
    """What must be known of a proxy that plain requests go through."""

    @property
    def authorization(self) -> str | None: ...


def request_head(request: Request, target: Target, path: str, proxy: NextProxy | None = None) -> bytes:
    fields = [Field("Host", _host(target))]
    fields += [field for field in end_to_end(request.fields) if field.name != "host"]
    if request.length == CHUNKED:
        fields.append(Field("Transfer-Encoding", "chunked"))
    if wants_websocket(request):
        fields += [Field("Connection", "Upgrade"), Field("Upgrade", "websocket")]
    if proxy is not None and proxy.authorization:
        fields.append(Field("Proxy-Authorization", proxy.authorization))
    uri = path if proxy is None else f"http://{_host(target)}{path.removeprefix('*')}"
    return write_head(f"{request.method} {uri} HTTP/1.1", fields)


def response_head(response: Response, *, chunked: bool, stays: bool) -> bytes:
    fields = end_to_end(response.fields)
    if response.status < 200 or response.status == 204:
        fields = [field for field in fields if field.name != "content-length"]
    if chunked and response.length in (CHUNKED, UNTIL_CLOSE):
        fields.append(Field("Transfer-Encoding", "chunked"))
    if response.status == SWITCHING_PROTOCOLS:
        fields += [Field("Connection", "Upgrade"), Field("Upgrade", "websocket")]
    elif response.status >= 200:
        fields.append(Field("Connection", "keep-alive" if stays else "close"))
    return write_head(f"HTTP/1.1 {response.status} {response.phrase}", fields)


def _host(target: Target) -> str:
    return str(target).removesuffix(f":{_HTTP_PORT}") if target.port == _HTTP_PORT else str(target)
