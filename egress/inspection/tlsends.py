"""The two TLS ends of an inspected connection.

Towards the client we are the server, with a leaf of the session's authority for the one host that the gate let
it reach. Towards the server we are a client like any other: its certificate must be valid for that host, by
the system's roots and those that the operator named, and there is no option that says otherwise. Contexts
are made once, per host and for all upstreams: reading the roots takes milliseconds, and clients resume
sessions only with the context that they began with.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import certifi
from mitmproxy.proxy import commands
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers import tls
from OpenSSL import SSL, crypto

from egress.inspection.authority import Authority

_HOSTS = 256  # with a context of their own
_H2, _H1 = b"h2", b"http/1.1"
# A wildcard stands for a whole label, and a common name is no name (RFC 6125 section 6.4, RFC 9525 section 6.3).
_NAMES: Any = SSL._lib  # type: ignore[attr-defined]  # what pyOpenSSL has no method for
_STRICT_NAMES = _NAMES.X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | getattr(_NAMES, "X509_CHECK_FLAG_NEVER_CHECK_SUBJECT", 0)


class Ends:
    def __init__(self, authority: Authority, roots: Sequence[bytes], more: Sequence[str]) -> None:
        """`roots` are the system's, in DER; `more` are files."""
        self._authority = authority
        self._upstream = _upstream_context(roots, more)
        self._context_for = lru_cache(_HOSTS)(self._client_context)

    def towards_client(self, host: str) -> SSL.Connection:
        connection = SSL.Connection(self._context_for(host))
        connection.set_accept_state()
        return connection

    def towards_server(self, host: str, client_alpn: bytes | None) -> SSL.Connection:
        """With the client's protocol, so that what one of them can say the other can hear."""
        connection = SSL.Connection(self._upstream)
        _expect(connection, host)
        if client_alpn == _H2:
            connection.set_alpn_protos([_H2, _H1])
        elif client_alpn == _H1:
            connection.set_alpn_protos([_H1])
        connection.set_connect_state()
        return connection

    def _client_context(self, host: str) -> SSL.Context:
        key, chain = self._authority.leaf(host)
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_PEM, key))
        leaf, *issuers = _certificates(chain)
        context.use_certificate(leaf)
        for issuer in issuers:
            context.add_extra_chain_cert(issuer)
        context.set_alpn_select_callback(_select)
        context.set_session_id(host.encode()[:32])
        return context


class ClientTls(tls.ClientTLSLayer):
    def send_close(self, command: commands.CloseConnection) -> CommandGenerator[None]:
        """Say goodbye: clients take an answer that ends with the connection for cut short otherwise."""
        try:
            if self.tls:
                self.tls.shutdown()
                yield from self.tls_interact()
        except SSL.Error:
            pass
        yield from super().send_close(command)


def _select(_: SSL.Connection, offered: list[bytes]) -> Any:
    for protocol in offered:  # in the client's order
        if protocol in (_H2, _H1):
            return protocol
    return SSL.NO_OVERLAPPING_PROTOCOLS


def _certificates(chain: bytes) -> list[crypto.X509]:
    end = b"-----END CERTIFICATE-----\n"
    pieces = [piece + end for piece in chain.split(end) if piece.strip()]
    return [crypto.load_certificate(crypto.FILETYPE_PEM, piece) for piece in pieces]


def _upstream_context(roots: Sequence[bytes], more: Sequence[str]) -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_verify(SSL.VERIFY_PEER)
    store = context.get_cert_store()
    assert store is not None  # noqa: S101  # every context has one
    for root in roots:
        with suppress(crypto.Error):  # a system's file may hold one that is not understood; it is then not trusted
            store.add_cert(crypto.load_certificate(crypto.FILETYPE_ASN1, root))
    for file in (*more, *(() if roots else (certifi.where(),))):
        context.load_verify_locations(file)
    return context


def _expect(connection: SSL.Connection, host: str) -> None:
    """Ask for this host, and take no certificate but its."""
    param = _NAMES.SSL_get0_param(connection._ssl)
    _NAMES.X509_VERIFY_PARAM_set_hostflags(param, _STRICT_NAMES)
    try:
        address = ipaddress.ip_address(host).packed
    except ValueError:
        name = host.encode("ascii")
        connection.set_tlsext_host_name(name)
        done = _NAMES.X509_VERIFY_PARAM_set1_host(param, name, len(name))
    else:  # an address is never in the name extension (RFC 6066 section 3)
        done = _NAMES.X509_VERIFY_PARAM_set1_ip(param, address, len(address))
    if done != 1:
        raise ValueError(f"cannot verify certificates for {host!r}")
