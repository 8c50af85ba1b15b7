"""A proxy between the gate and the internet: which targets go through it, and how.

For a target that does, our policy has spoken on the name, and the proxy gets the name: it resolves, so
there is no address of ours to vet. What is an address already is vetted by its kind before it comes
here. The proxy itself is the operator's choice, so its address is dialled as `dialer.operator_chose`.

`--upstream env` reads the variables that other programs read. No two of them agree on NO_PROXY; here an
entry is a name and all below it (with or without a leading dot or star), an address, a network, or `*`,
each with an optional port. What cannot be read as one of these matches nothing.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple

from egress.limits import LIMITS, Limits
from egress.model import Host, Target
from egress.names import Malformed, as_address, parse_authority, parse_port, split_authority
from egress.net.stream import Closed, Stream
from egress.refusals import Reason, Refused
from egress.wire.connect import connect

_DEFAULT_PORT = 80
_SEPARATORS = re.compile(r"[,\s]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_USERINFO = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})+")  # RFC 3986 section 3.2.1
_ESCAPE = re.compile(rb"%(..)")


class Upstream(NamedTuple):
    """Its text, in messages and logs, has no credentials."""

    host: Host
    port: int
    authorization: str | None = None  # the value of Proxy-Authorization

    def __str__(self) -> str:
        return str(self.target)

    def __repr__(self) -> str:
        return f"Upstream({str(self)!r})"

    @property
    def target(self) -> Target:
        return Target(self.host, self.port)


class Exempt(NamedTuple):
    """An entry of NO_PROXY. No suffix and no network: everything."""

    suffix: str = ""
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None

    def covers(self, target: Target) -> bool:
        host, port = target
        if self.port not in (None, port):
            return False
        if self.network is not None:
            address = as_address(host)
            return address is not None and address in self.network
        return not self.suffix or host == self.suffix or host.endswith(f".{self.suffix}")


class Upstreams(NamedTuple):
    """The proxy for targets that expect TLS, the one for all others, and who goes without."""

    tls: Upstream | None = None
    plain: Upstream | None = None
    exempt: tuple[Exempt, ...] = ()


NO_UPSTREAM = Upstreams()
_THIS_HOST = (
    Exempt("localhost"),
    Exempt(network=IPv4Network("127.0.0.0/8")),
    Exempt(network=IPv6Network("::1/128")),
)


def route(upstreams: Upstreams, target: Target, tls: bool) -> Upstream | None:
    """The proxy that the target goes through; None: directly."""
    upstream = upstreams.tls if tls else upstreams.plain
    if upstream is None or any(exempt.covers(target) for exempt in upstreams.exempt):
        return None
    return upstream


def always(upstream: Upstream) -> Upstreams:
    return Upstreams(upstream, upstream)


def from_environment(environ: Mapping[str, str]) -> Upstreams:
    """The usual variables, lower case before upper, an empty one as if it were not there.

    What is on this host is not asked of a proxy, which would look on its own.
    """

    def variable(*names: str) -> str:
        return next((environ[spelt] for name in names for spelt in (name, name.upper()) if environ.get(spelt)), "")

    tls, plain = variable("https_proxy", "all_proxy"), variable("http_proxy", "all_proxy")
    return Upstreams(
        _parse_loosely(tls) if tls else None,
        _parse_loosely(plain) if plain else None,
        _THIS_HOST + parse_no_proxy(variable("no_proxy")),
    )


def parse_upstream(text: str) -> Upstream:
    """`http://proxy.example:3128`, with an optional `user:password@`."""
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        raise Malformed(f"upstream proxy {_discreet(text)!r} has no scheme; write http://host:port")
    if scheme.lower() != "http":
        raise Malformed(f"upstream proxy {_discreet(text)!r}: only http:// proxies are supported")
    userinfo, at, authority = rest.removesuffix("/").rpartition("@")
    try:
        host, port = parse_authority(authority, _DEFAULT_PORT)
    except Malformed as error:
        raise Malformed(f"upstream proxy {_discreet(text)!r}: {error}; write http://host:port") from None
    return Upstream(host, port, _basic(userinfo, text) if at else None)


def parse_no_proxy(text: str) -> tuple[Exempt, ...]:
    return tuple(exempt for entry in _SEPARATORS.split(text) if entry and (exempt := _exempt(entry)))


async def open_tunnel(stream: Stream, upstream: Upstream, target: Target, limits: Limits = LIMITS) -> None:
    """Have the proxy connect the stream to the target; what the target says first stays in its buffer."""
    stream.expire_in(limits.resolve + limits.connect)  # the proxy has to do both
    try:
        reply = await stream.run(connect(stream.buffer, target, upstream.authorization, limits))
    except Refused as refused:
        raise _failed(upstream, refused.detail) from None
    except TimeoutError:
        raise _failed(upstream, f"did not answer in {limits.resolve + limits.connect:g} s") from None
    except Closed:
        raise _failed(upstream, "closed the connection without an answer") from None
    except OSError as error:
        raise _failed(upstream, f"broke off: {(error.strerror or str(error)).lower()}") from None
    finally:
        stream.expire_in(None)
    if reply.status != 200:
        raise _failed(upstream, f"answered {reply}")


def _failed(upstream: Upstream, what: str) -> Refused:
    return Refused(Reason.UNREACHABLE, f"the upstream proxy {upstream} {what}")


def _parse_loosely(text: str) -> Upstream:
    """In the environment a proxy is often written without its scheme."""
    return parse_upstream(text if "://" in text else f"http://{text}")


def _basic(userinfo: str, text: str) -> str:
    """RFC 7617."""
    if not _USERINFO.fullmatch(userinfo):
        raise Malformed(f"upstream proxy {_discreet(text)!r}: write odd signs in its password as %XX, @ as %40")
    user, _, password = userinfo.encode("ascii").partition(b":")
    plain = b":".join(_ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()), part) for part in (user, password))
    return f"Basic {b64encode(plain).decode()}"


def _discreet(text: str) -> str:
    """As written, but for what stands between the scheme and the last @."""
    scheme = _SCHEME.match(text)
    _, at, authority = text.rpartition("@")
    return f"{scheme[0] if scheme else ''}***@{authority}" if at else text


def _exempt(entry: str) -> Exempt | None:
    if entry == "*":
        return Exempt()
    bare_v6 = entry.count(":") > 1 and not entry.startswith("[")
    try:
        if "/" in entry:
            return Exempt(network=ip_network(entry, strict=False))
        host, written = split_authority(f"[{entry}]" if bare_v6 else entry.removeprefix("*.").removeprefix("."))
        port = None if written is None else parse_port(written)
    except ValueError:
        return None
    return Exempt(host, None, port) if as_address(host) is None else Exempt("", ip_network(host), port)
