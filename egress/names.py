"""One spelling of a host.

Every name that reaches policy, from HTTP, CONNECT, SOCKS, SNI, Host headers, DNS or a policy file,
passes through here and comes out canonical or not at all. Nothing is repaired: two parsers that
repair differently are how allowlists are bypassed. So a name is LDH ASCII labels, lower-cased, with
at most one trailing dot dropped; an address is a canonical literal; all else is malformed.

Python's own helpers are traps here: `getaddrinfo` stops at NUL and takes `127.1`, `encodings.idna`
maps one name to another, `str.lower` turns the Kelvin sign into `k`, `int` takes `+443` and `４４３`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from egress.model import Host, Target

MAX_NAME = 253
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
# What inet_aton and browsers would read as (part of) an address: 127.1, 0x7f.1, 2130706433.
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")

Address = IPv4Address | IPv6Address


class Malformed(ValueError):
    """Not a host, a port or an authority; the message says what was expected."""


@lru_cache(maxsize=4096)
def parse_host(text: str) -> Host:
    """The canonical host that `text` spells, a name or an address without brackets."""
    if not text.isascii():
        raise Malformed(f"host {text[:MAX_NAME]!r} is not ASCII (write an international name as xn--…)")
    if ":" in text:
        return Host(str(_ipv6(text)))
    name = text.lower().removesuffix(".")
    if len(name) > MAX_NAME:
        raise Malformed(f"host {name[:32]!r}… is longer than {MAX_NAME} characters")
    if not _NAME.fullmatch(name):
        raise Malformed(f"host {text!r} is not letters, digits and hyphens between dots")
    if _NUMERIC.fullmatch(name.rpartition(".")[2]):
        return _ipv4(text)
    if "xn--" in name:
        for label in name.split("."):
            _check_a_label(label)
    return Host(name)


def parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or (port := int(text)) > 65535:
        raise Malformed(f"port {text[:16]!r} is not a number from 1 to 65535")
    return port


@lru_cache(maxsize=4096)
def parse_authority(text: str, default_port: int | None = None) -> Target:
    """`host:port`, `host` where a default is given, `[v6]:port`. No userinfo, no zone, no blanks."""
    host, port = split_authority(text)
    if port is None and default_port is None:
        raise Malformed(f"{text[:MAX_NAME]!r} names no port")
    return Target(host, default_port if port is None else parse_port(port))  # type: ignore[arg-type]  # one of the two is set


def split_authority(text: str) -> tuple[Host, str | None]:
    """The host of an authority, and its port as written (None where there is no colon)."""
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in inside or (rest and rest[0] != ":"):
            raise Malformed(f"{text[:MAX_NAME]!r}: brackets hold an IPv6 address, then an optional port")
        return parse_host(inside), rest[1:] if rest else None
    host, colon, port = text.partition(":")
    return parse_host(host), port if colon else None


@lru_cache(maxsize=4096)
def as_address(host: Host) -> Address | None:
    """The address that a canonical host is, or None for a name."""
    if ":" in host:
        return IPv6Address(host)
    return IPv4Address(host) if host[-1].isdigit() and host.rpartition(".")[2].isdigit() else None


def _ipv4(text: str) -> Host:
    try:
        return Host(str(IPv4Address(text)))
    except AddressValueError:
        raise Malformed(f"host {text!r} is numeric but not a dotted-quad IPv4 address") from None


def _ipv6(text: str) -> IPv6Address:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise Malformed(f"host {text[:MAX_NAME]!r} is not an IPv6 address") from None
    if address.scope_id is not None:
        raise Malformed(f"host {text!r} has a zone id")
    return address


def _check_a_label(label: str) -> None:
    """An `xn--` label must decode, and encode back to itself: else it is another name in disguise."""
    if not label.startswith("xn--"):
        return
    import idna  # only for the rare name that needs it: 7 ms

    try:
        honest = idna.alabel(idna.ulabel(label)).decode() == label
    except (idna.IDNAError, UnicodeError):
        honest = False
    if not honest:
        raise Malformed(f"label {label!r} is not a valid international label")
