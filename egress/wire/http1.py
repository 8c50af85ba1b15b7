"""HTTP/1.x heads, read strictly (RFC 9112).

Request smuggling lives where two parsers read one message differently. So there is one reading or
none: lines end in CRLF, names are tokens and touch their colon, nothing is folded, a message has one
framing, and what goes upstream is written anew from what was understood, never copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from egress.limits import LIMITS, Limits
from egress.names import Malformed, parse_authority
from egress.refusals import Reason, Refused
from egress.wire.handshake import NOTHING, Handshake

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rf"({_WORD}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD = re.compile(rf"({_WORD}):([\t\x20-\x7e\x80-\xff]*)\r\n")
_FIELDS = re.compile(rf"(?:{_WORD}:[\t\x20-\x7e\x80-\xff]*\r\n)*")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,17}")
_END = b"\r\n\r\n"

# What speaks about this connection only, and what the gate writes itself (RFC 9110 section 7.6.1).
HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "alt-svc",
})  # fmt: skip
# `Connection: host` must not strip what routes or frames a message.
_NEVER_STRIPPED = frozenset({"host", "content-length", "transfer-encoding"})
_OPTIONS = frozenset({"close", "keep-alive", "upgrade", "te"})  # of a connection, that name no field of substance
CHUNKED = -1
UNTIL_CLOSE = -2


class Field(NamedTuple):
    name: str  # lower case
    value: str


class Fields(tuple[Field, ...]):  # noqa: SLOT001  # what is cached must stand somewhere
    """Header lines in their order. Much is asked of them by name, and mostly of names that are not there."""

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self:
            found.setdefault(name, []).append(value)
        return found


class Request(NamedTuple):
    method: str
    uri: str
    minor: int
    fields: Fields
    length: int  # of the body, or CHUNKED

    @property
    def keeps_alive(self) -> bool:
        return _keeps_alive(self.fields, self.minor)


class Response(NamedTuple):
    status: int
    phrase: str
    minor: int
    fields: Fields
    length: int  # of the body, or CHUNKED, or UNTIL_CLOSE

    @property
    def keeps_alive(self) -> bool:
        """Chunks under the banner of HTTP/1.0 are read, and not trusted further (RFC 9112 section 6.1)."""
        framed = self.length != UNTIL_CLOSE and (self.minor == 1 or self.length != CHUNKED)
        return framed and _keeps_alive(self.fields, self.minor)


def read_request(buffer: bytearray, limits: Limits = LIMITS) -> Handshake[Request]:
    text = yield from _head(buffer, limits, limits.request_line)
    line, _, rest = text.partition("\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise _malformed(f"request line {line[:80]!r} is not METHOD URI HTTP/1.1")
    method, uri, major, minor = match.groups()
    if major != "1" or minor not in "01":
        raise _malformed(f"HTTP/{major}.{minor} is not spoken here, only HTTP/1.1 and HTTP/1.0")
    fields = parse_fields(rest, limits)
    _check_host(fields, int(minor))
    return Request(method, uri, int(minor), fields, _request_length(method, fields, int(minor)))


def read_response(buffer: bytearray, method: str, limits: Limits = LIMITS) -> Handshake[Response]:
    """The head of an answer to `method`; whatever is wrong with it is a bad response, not a bad request."""
    try:
        text = yield from _head(buffer, limits, limits.header_bytes)
        line, _, rest = text.partition("\r\n")
        match = _STATUS_LINE.fullmatch(line)
        if match is None:
            raise _malformed(f"status line {line[:80]!r} is not HTTP/1.1 and a status")
        fields = parse_fields(rest, limits)
        status = int(match[2])
        return Response(status, match[3] or "", int(match[1]), fields, _response_length(method, status, fields))
    except Refused as error:
        raise Refused(Reason.BAD_RESPONSE, error.detail) from None


def parse_fields(text: str, limits: Limits = LIMITS) -> Fields:
    if not _FIELDS.fullmatch(text):
        raise _malformed("a header line is not `name: value` ended by CRLF")
    found = _FIELD.findall(text)
    if len(found) > limits.header_count:
        raise Refused(Reason.TOO_LARGE, f"more than {limits.header_count} header lines")
    return Fields([Field(name.lower(), value.strip(" \t")) for name, value in found])


def values(fields: Fields, name: str) -> Sequence[str]:
    return fields.by_name.get(name, ())


def tokens(fields: Fields, name: str) -> list[str]:
    """The comma-separated members of a list header, in lower case."""
    if name not in fields.by_name:
        return []
    members = ",".join(fields.by_name[name]).lower().split(",")
    return [token for member in members if (token := member.strip(" \t"))]


def end_to_end(fields: Fields) -> list[Field]:
    """The fields that may be passed on: not hop-by-hop, not named by Connection."""
    named = tokens(fields, "connection")
    dropped = HOP_BY_HOP.union(named) - _NEVER_STRIPPED | {"transfer-encoding"} if named else HOP_BY_HOP
    return [field for field in fields if field.name not in dropped]


def tamed(fields: Fields) -> Fields:
    """The fields of a request that were judged, so that `Connection` takes none of them away again."""
    options = tokens(fields, "connection")
    if _OPTIONS.issuperset(options):
        return fields
    kept = ", ".join(option for option in options if option in _OPTIONS)
    others = [field for field in fields if field.name != "connection"]
    return Fields([*others, Field("connection", kept)] if kept else others)


def write_head(first_line: str, fields: list[Field]) -> bytes:
    lines = [first_line, *(f"{name}: {value}" for name, value in fields), "\r\n"]
    return "\r\n".join(lines).encode("latin-1")


def _head(buffer: bytearray, limits: Limits, first_line: int) -> Handshake[str]:
    """Everything up to the empty line, which is consumed too; refused as soon as it is over its bounds."""
    searched = 0
    while (end := buffer.find(_END, searched)) < 0:
        _check_size(buffer, limits, first_line)
        _check_lines(buffer, searched)
        searched = max(0, len(buffer) - 3)
        yield NOTHING
    if end + 4 > min(first_line, limits.header_bytes):  # a head as short as that is within all bounds
        _check_size(buffer[: end + 4], limits, first_line)
    head = buffer[: end + 2].decode("latin-1")
    del buffer[: end + 4]
    return head


def _check_size(head: bytearray, limits: Limits, first_line: int) -> None:
    line_end = head.find(b"\r\n", 0, first_line + 2)
    if line_end < 0 and len(head) > first_line + 1:  # of a line just as long, its CR may stand there
        raise Refused(Reason.URI_TOO_LONG, f"the first line is longer than {first_line} bytes")
    if len(head) > limits.header_bytes:
        raise Refused(Reason.TOO_LARGE, f"the header section is larger than {limits.header_bytes} bytes")


def _check_lines(head: bytearray, start: int) -> None:
    """A client that ends its lines in LF thinks that its head is whole: say so now, not when time is up."""
    if head.count(b"\n", start) != head.count(b"\r\n", max(0, start - 1)):
        raise _malformed("a line ends in a bare LF")


def _check_host(fields: Fields, minor: int) -> None:
    hosts = values(fields, "host")
    if len(hosts) > 1 or (minor == 1 and not hosts):
        raise _malformed(f"expected one Host header, got {len(hosts)}")
    try:
        for host in hosts:
            parse_authority(host, default_port=80)
    except Malformed as error:
        raise Refused(Reason.MALFORMED_HOST, str(error), asked=hosts[0]) from None


def _request_length(method: str, fields: Fields, minor: int) -> int:
    length = _framing(fields)
    if length == CHUNKED and minor == 0:
        raise _malformed("HTTP/1.0 has no Transfer-Encoding")
    if method == "CONNECT" and length is not None:
        raise _malformed("CONNECT has no body")
    return length or 0


def _response_length(method: str, status: int, fields: Fields) -> int:
    length = _framing(fields)
    if status < 200 or status in (204, 304) or method == "HEAD":
        return 0
    return UNTIL_CLOSE if length is None else length


def _framing(fields: Fields) -> int | None:
    """The body's length, CHUNKED, or None where nothing is said; anything with two readings is refused."""
    lengths, codings = values(fields, "content-length"), values(fields, "transfer-encoding")
    if codings:
        if lengths or len(codings) > 1 or codings[0].lower() != "chunked":
            raise _malformed(f"Transfer-Encoding {codings!r} with Content-Length {lengths!r} is ambiguous")
        return CHUNKED
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise _malformed(f"Content-Length {lengths!r} is not one number")
    return int(lengths[0])


def _keeps_alive(fields: Fields, minor: int) -> bool:
    options = tokens(fields, "connection") + tokens(fields, "proxy-connection")
    return "keep-alive" in options if minor == 0 else "close" not in options


def _malformed(detail: str) -> Refused:
    return Refused(Reason.MALFORMED_REQUEST, detail)
