"""What a request says a second time: its method, its path, its host. Pure.

Frameworks let a header or a parameter take the place of the request line, for clients that can only GET and
POST; proxies write down in headers what a request was before they changed it, and servers behind them believe
it. So whoever writes a request can say one thing to us and another to the server, and the lists here are of
the names that servers are known to obey.

CGI and its descendants do not tell `_` from `-` in the name of a header, so neither do we. PHP takes blanks,
dots and an opening bracket in the name of a parameter for `_`, and cuts it off at a NUL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from egress.model import Target
from egress.names import Malformed, parse_authority
from egress.refusals import Reason, Refused

Pairs = Iterable[tuple[str, str]]

METHOD_HEADERS = frozenset({
    "x-http-method-override", "x-http-method", "x-method-override", "x-method", "x-http-verb", "x-override-method",
    "method-override", "http-method-override", "x-rest-method",
})  # fmt: skip
METHOD_PARAMETERS = frozenset({"_method", "_httpmethod", "x-http-method-override"})
PATH_HEADERS = frozenset({
    "x-original-url", "x-rewrite-url", "x-original-uri", "x-rewrite-uri", "x-original-path", "x-forwarded-uri",
    "x-forwarded-path", "x-replaced-path", "x-envoy-original-path", "x-waws-unencoded-url",
})  # fmt: skip
HOST_HEADERS = frozenset({"x-forwarded-host", "x-host", "x-original-host", "x-http-host-override"})
FORWARDED = "forwarded"  # RFC 7239, which has a host among other things

_AS_PHP = str.maketrans(" .[-", "____")
_PARAMETERS = frozenset(name.translate(_AS_PHP) for name in METHOD_PARAMETERS)


def folded(name: str) -> str:
    return name.replace("_", "-")


def methods(path: str, fields: Pairs) -> Iterator[str]:
    """Those that a server may take for the method of a request, each as often as it is said."""
    for name, value in fields:
        if folded(name) in METHOD_HEADERS:
            yield from (word.strip().upper() for word in value.split(","))
    query = path.partition("?")[2]
    if query:
        yield from _methods_in(query)


def has_path(fields: Pairs) -> bool:
    """Whether a header gives the path again."""
    return any(folded(name) in PATH_HEADERS for name, _ in fields)


def check_hosts(fields: Pairs, target: Target) -> None:
    """Refused, if a header gives the host again, and it is another."""
    for name, value in fields:
        for host in _hosts_in(folded(name), value):
            if not _is(host, target):
                raise Refused(Reason.HOST_MISMATCH, f"its {name} header names another host")


def _hosts_in(name: str, value: str) -> Iterator[str]:
    if name in HOST_HEADERS:
        yield from value.split(",")
    elif name == FORWARDED:
        for pair in value.replace(",", ";").split(";"):
            key, _, host = pair.partition("=")
            if key.strip(" \t").lower() == "host":
                yield host.strip(' \t"')


def _is(host: str, target: Target) -> bool:
    try:
        return parse_authority(host.strip(" \t"), target.port) == target
    except Malformed:
        return False


def _methods_in(query: str) -> Iterator[str]:
    lowered = query.lower()
    if "method" not in lowered and "%" not in lowered:  # as nearly always
        return
    from urllib.parse import unquote_plus

    for parameter in query.replace(";", "&").split("&"):
        name, _, value = parameter.partition("=")
        if _plain(unquote_plus(name)) in _PARAMETERS:
            yield unquote_plus(value).strip().upper()


def _plain(name: str) -> str:
    return name.partition("\0")[0].strip().lower().translate(_AS_PHP)
