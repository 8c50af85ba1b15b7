"""What the engine looks at in a head by itself, before it asks and before it passes anything on.

Policy is the gate's. But a request can be well-formed in HTTP/2 and two requests once it is written as
HTTP/1.1, a `Connection` field can name fields that the next hop then drops, and an answer can lead the client
past us. These are matters of framing, the same for every policy: whatever has two readings is malformed.
"""

from __future__ import annotations

import re

from mitmproxy.http import Headers, Request, Response

from egress.inspection.exchange import Exchange
from egress.inspection.messages import Ask, Pairs, Verdict
from egress.limits import LIMITS
from egress.wire.masking import CODINGS, masked

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"/[\x21-\x7e\x80-\xff]*|\*")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_OPTIONS = frozenset({"close", "keep-alive", "upgrade", "te"})  # of a connection, that name no field of substance
_HOP = ("proxy-connection", "proxy-authorization", "keep-alive", "http2-settings")
_PARTS = ("range", "if-range")  # of an answer: a secret that is asked for in two is in neither
_METHODS = frozenset({"CONNECT", "TRACE", "TRACK", "PRI"})  # that have no meaning inside a connection to one host
_VERSIONS = frozenset({"HTTP/1.0", "HTTP/1.1", "HTTP/2.0"})


def is_malformed(request: Request, alpn: bytes | None, *, whole: bool) -> bool:
    """Would it, written anew, perhaps be another request?"""
    data = request.data
    is_h2 = alpn == b"h2"
    return not (
        _TOKEN.fullmatch(data.method)
        and _TARGET.fullmatch(data.path)
        and _VALUE.fullmatch(data.authority)
        and request.http_version in _VERSIONS
        and request.is_http2 == is_h2
        and _are_plain(request.headers)
        and _is_chunked_or_not(request.headers)
        and not (whole and announced(request))
    )


def has_too_many(headers: Headers) -> bool:
    """Each line is looked at by every rule."""
    return len(headers.fields) > LIMITS.header_count


def announced(request: Request) -> int | None:
    """The length of its body, where it has one."""
    length = request.headers.get("content-length")
    return None if length is None else int(length)


def is_broken(response: Response) -> bool:
    return has_too_many(response.headers) or not _are_plain(response.headers)


def _is_chunked_or_not(headers: Headers) -> bool:
    """`gzip, chunked` is a body that one server reads through and another takes as it comes."""
    return [value.lower() for value in headers.get_all("transfer-encoding")] in ([], ["chunked"])


def _are_plain(headers: Headers) -> bool:
    return all(_TOKEN.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers.fields)


def is_unsupported(request: Request) -> bool:
    """Something that would turn the connection into another one."""
    upgrade = request.headers.get("upgrade", "").strip().lower()
    return request.method.upper() in _METHODS or upgrade not in ("", "websocket") or "http2-settings" in request.headers


def is_grpc(request: Request) -> bool:
    kind: str = request.headers.get("content-type", "")
    return kind.lower().startswith("application/grpc")


def question(conn: int, number: int, request: Request, scheme: str, *, whole: bool) -> Ask:
    length = announced(request)
    return Ask(
        conn,
        number,
        request.data.method.decode("latin-1"),  # as it was written, and goes up
        scheme,
        _authority(request),
        request.data.path,
        list(request.headers.fields),
        length if length is not None else 0 if whole else None,
    )


def _authority(request: Request) -> bytes:
    """Who it is for. Several that disagree are told together, which is nobody's name."""
    named = [request.data.authority] if request.data.authority else []
    named += [value for name, value in request.headers.fields if name.lower() == b"host"]
    return named[0] if len({name.lower() for name in named}) == 1 else b", ".join(named)


def admit(request: Request, verdict: Verdict, exchange: Exchange) -> None:
    """Make of an allowed request what goes up."""
    fields = request.headers
    for name in _HOP:
        fields.pop(name, None)
    if "connection" in fields:
        _tame(fields)
    if not request.is_http2:
        request.authority = ""  # in origin-form, whatever it came in
    for put, values in _grouped(verdict.put).items():
        fields.set_all(put, values)
    fields.pop("sec-websocket-extensions", None)  # compression: what it inflates to is known too late
    if exchange.masker is not None:
        fields["accept-encoding"] = "identity"
        for name in _PARTS:
            fields.pop(name, None)


def _tame(fields: Headers) -> None:
    options = [option.strip() for value in fields.get_all("connection") for option in value.split(",")]
    kept = [option for option in options if option.lower() in _OPTIONS]
    if kept:
        fields["connection"] = ", ".join(kept)
    else:
        del fields["connection"]


def _grouped(put: Pairs) -> dict[bytes, list[bytes]]:
    grouped: dict[bytes, list[bytes]] = {}
    for name, value in put:
        grouped.setdefault(name, []).append(value)
    return grouped


def release(request: Request, response: Response, exchange: Exchange, *, whole: bool) -> bool:
    """Make of the server's answer what the client may see; False if that cannot be."""
    fields = response.headers
    if is_broken(response) or (response.status_code == 101 and not _is_websocket(request, response)):
        return False
    fields.pop("alt-svc", None)  # an invitation to another way there
    if exchange.masker is None:
        return True
    fields.fields = masked(fields.fields, exchange.masker)
    response.data.reason = exchange.masker.whole(response.data.reason)
    return whole or _is_legible(request, response, exchange)


def _is_websocket(request: Request, response: Response) -> bool:
    return all(message.headers.get("upgrade", "").strip().lower() == "websocket" for message in (request, response))


def _is_legible(request: Request, response: Response, exchange: Exchange) -> bool:
    """A body that must be masked must be readable."""
    fields = response.headers
    coding = fields.get("content-encoding", "identity").strip().lower()
    if fields.get("transfer-encoding", "chunked").strip().lower() != "chunked":
        return False
    if coding in ("identity", ""):
        return True
    if coding not in CODINGS:
        return False
    exchange.inflate()
    for name in ("content-encoding", "content-length"):
        fields.pop(name, None)
    if response.http_version == "HTTP/1.1" and not request.is_http2:
        fields["transfer-encoding"] = "chunked"
    return True
