"""A registry: the address of one, read from a tool's setting, and nothing of the credentials in it.

A setting may be `https://user:password@host/path?token=…`. The user information, the query and the fragment
are cut off here and are in no value and no message; what is malformed is named by where it stands, and never
shown.
"""

from __future__ import annotations

import re

from egress.model import Host
from egress.names import Malformed, parse_port, split_authority
from egress.record import NamedTuple

_PORTS = {"https": 443, "http": 80}
_URL = re.compile(r"(?i:(https?))://(?:[^/?#\\\s]*@)?([^/?#@\\\s]+)(/[!-~]*)?")
_LOCAL = re.compile(r"file:|[^:]*$")
_CUT = re.compile(r"[?#]")


class Registry(NamedTuple):
    host: Host
    port: int
    tls: bool
    url: str
    source: str  # the variable or file that named it
    configured: bool  # by a person, and not the tool's own default


def parse_registry(text: str, source: str, configured: bool) -> Registry:
    """Raises `Malformed`, whose message does not say what came: it may hold a password."""
    found = _URL.fullmatch(_CUT.split(text, maxsplit=1)[0])
    if found is None:
        raise Malformed("expected a URL that begins with https:// or http://")
    scheme, authority, path = found[1].lower(), found[2], found[3] or "/"
    try:
        host, port = split_authority(authority)
        number = _PORTS[scheme] if port is None else parse_port(port)
    except Malformed:
        raise Malformed("expected a host, and then a port or none, after the // of the URL") from None
    return Registry(host, number, scheme == "https", f"{scheme}://{_shown(host, port)}{path}", source, configured)


def is_local(text: str) -> bool:
    """A directory of packages on this machine: needs no network."""
    return _LOCAL.match(text) is not None


def _shown(host: Host, port: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"
