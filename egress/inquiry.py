"""What a person asks about, before anyone has: a host, a URL, or a request.

github.com  github.com:22  ssh://github.com        may it be reached?
https://github.com/acme/x                          the same, and GET
POST https://github.com/acme/x/git-receive-pack    in one word of the shell or in two
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from egress.requestpolicy import Asked

PLAIN = frozenset({"http", "ws"})
OVER_TLS = frozenset({"https", "wss"})
_METHOD = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([ -~]*)")
_AFTER_HOST = re.compile(r"[/?#]")


class NoInquiry(ValueError):
    """Nothing that has an answer; the message says what was expected."""


class Inquiry(NamedTuple):
    place: str  # host, host:port, or the scheme and authority of a URL
    scheme: str = ""
    request: Asked | None = None
    explicit: bool = False  # a method or a header was written: it is the request that is asked about


def read_inquiry(words: Iterable[str], headers: Iterable[str] = ()) -> Inquiry:
    """`NoInquiry` for what is none; whether a host is one is for the answer to say."""
    text = " ".join(words)
    if not text.strip():
        raise NoInquiry("nothing to check")
    method, rest = _split(text)
    fields = tuple(map(_field, headers))
    scheme, slashes, after = rest.partition("://")
    if not slashes:
        scheme, after = "", rest
    explicit = bool(method or fields)
    if explicit or scheme.lower() in PLAIN | OVER_TLS:
        return _request(method or "GET", scheme.lower(), after, fields)._replace(explicit=explicit)
    return Inquiry(text, scheme.lower())


def _split(text: str) -> tuple[str, str]:
    """The method, if one is there, and what stands behind it."""
    method, _, rest = text.partition(" ")
    if not rest.strip() or not (_METHOD.fullmatch(method) or "://" in rest):
        return "", text
    if not _METHOD.fullmatch(method):
        raise NoInquiry(f"{method[:80]!r} is not a method in upper case, such as GET")
    if rest.split() != [rest.strip()]:
        raise NoInquiry(f"{rest[:80]!r} is not a URL: it has a blank in it")
    return method, rest.strip()


def _request(method: str, scheme: str, after: str, fields: tuple[tuple[str, str], ...]) -> Inquiry:
    if scheme and scheme not in PLAIN | OVER_TLS:
        raise NoInquiry(f"{scheme[:80]!r} has no requests that are looked at; expected https or http")
    end = found.start() if (found := _AFTER_HOST.search(after)) else len(after)
    path = after[end:].partition("#")[0]  # a fragment is never sent
    place = f"{scheme}://{after[:end]}" if scheme else after[:end]
    return Inquiry(place, scheme, Asked(method, path if path.startswith("/") else f"/{path}", fields))


def _field(text: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(text)
    if not found:
        raise NoInquiry(f"{text[:80]!r} is not a header such as 'accept: application/json'")
    return found[1].lower(), found[2].strip()
