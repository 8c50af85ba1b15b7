"""The one table of reasons: for each, what HTTP, SOCKS, DNS and a person are told.

The vocabulary is closed: a refusal anywhere names one of these, and the audit log, the 403 text, the
SOCKS reply and the DNS answer all come from its row.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from egress.rules import Rule


class Reason(StrEnum):
    # allowed
    LISTED = "listed"
    OBSERVED = "observed"
    ANSWERED = "answered"
    # refused by name, port or address
    NOT_LISTED = "not_listed"
    DENIED = "denied"
    DECLINED = "declined"
    UNANSWERED = "unanswered"
    PORT_NOT_LISTED = "port_not_listed"
    MALFORMED_HOST = "malformed_host"
    ADDRESS_LITERAL = "address_literal"
    RESOLVED_PRIVATE = "resolved_private"
    METADATA_ADDRESS = "metadata_address"
    OWN_LISTENER = "own_listener"
    NOT_TCP = "not_tcp"
    # refused by what came over the wire
    MALFORMED_REQUEST = "malformed_request"
    TOO_LARGE = "too_large"
    URI_TOO_LONG = "uri_too_long"
    UNSUPPORTED = "unsupported"
    NOT_A_PROXY_REQUEST = "not_a_proxy_request"
    CREDENTIALS = "credentials"
    PEER_NOT_ALLOWED = "peer_not_allowed"
    # refused by TLS
    SNI_MISMATCH = "sni_mismatch"
    NO_SNI = "no_sni"
    BAD_SNI = "bad_sni"
    ECH = "ech"
    NOT_TLS = "not_tls"
    # refused by a look at the request
    NOT_HTTP = "not_http"
    HOST_MISMATCH = "host_mismatch"
    METHOD_NOT_LISTED = "method_not_listed"
    PATH_NOT_LISTED = "path_not_listed"
    HEADER_NOT_LISTED = "header_not_listed"
    AMBIGUOUS_PATH = "ambiguous_path"
    CREDENTIAL_MISMATCH = "credential_mismatch"
    UPLOAD_LIMIT = "upload_limit"
    # refused by circumstance
    LIMIT = "limit"
    TIMEOUT = "timeout"
    AUDIT_UNAVAILABLE = "audit_unavailable"
    INSPECTION_UNAVAILABLE = "inspection_unavailable"
    # allowed, and then it failed
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    BAD_RESPONSE = "bad_response"
    BAD_CERTIFICATE = "bad_certificate"
    # an open tunnel that a policy edit closed
    REVOKED = "revoked"

    @property
    def is_failure(self) -> bool:
        """Policy had said yes; the world said no."""
        return self in (Reason.UNRESOLVED, Reason.UNREACHABLE, Reason.BAD_RESPONSE, Reason.BAD_CERTIFICATE)


class Row(NamedTuple):
    """How a reason is told. `socks`: RFC 1928 section 6. `ede`: RFC 8914 info-code, None for no DNS answer."""

    http: int
    socks: int
    rcode: str
    ede: int | None
    sentence: str  # {target} and {persona} may stand in it


_GENERAL, _NOT_ALLOWED, _UNREACHABLE, _COMMAND = 0x01, 0x02, 0x04, 0x07
_BLOCKED, _PROHIBITED, _NETWORK = 15, 18, 23


def _blocked(sentence: str, http: int = 403) -> Row:
    return Row(http, _NOT_ALLOWED, "REFUSED", _BLOCKED, sentence)


def _unreadable(http: int, sentence: str) -> Row:
    return Row(http, _GENERAL, "FORMERR", None, sentence)


def _failed(http: int, socks: int, sentence: str) -> Row:
    return Row(http, socks, "SERVFAIL", _NETWORK, sentence)


TABLE: dict[Reason, Row] = {
    Reason.LISTED: Row(200, 0x00, "NOERROR", None, "{target} is on the allowlist of persona {persona}"),
    Reason.OBSERVED: Row(200, 0x00, "NOERROR", None, "{target} passed because the gate only observes"),
    Reason.ANSWERED: Row(200, 0x00, "NOERROR", None, "{target} was allowed by a person who was asked"),
    Reason.NOT_LISTED: _blocked("{target} is not on the allowlist of persona {persona}"),
    Reason.DENIED: _blocked("{target} is on the deny list of persona {persona}"),
    Reason.DECLINED: _blocked("a person was asked about {target} and said no"),
    Reason.UNANSWERED: _blocked("a person was asked about {target} and did not answer in time"),
    Reason.PORT_NOT_LISTED: _blocked("persona {persona} may reach the host of {target}, but not that port"),
    Reason.MALFORMED_HOST: _unreadable(400, "{target} is not a well-formed host and port"),
    Reason.ADDRESS_LITERAL: _blocked("{target} is an address that is not on the allowlist of persona {persona}"),
    Reason.RESOLVED_PRIVATE: _blocked("{target} leads to an address that is not public; its rule needs private: true"),
    Reason.METADATA_ADDRESS: _blocked("{target} leads to an address that no rule can allow"),
    Reason.OWN_LISTENER: _blocked("{target} leads back to the gate itself"),
    Reason.NOT_TCP: _blocked("{target} was sent something else than TCP, and only TCP and DNS pass"),
    Reason.MALFORMED_REQUEST: _unreadable(400, "the request is malformed or ambiguous"),
    Reason.TOO_LARGE: _unreadable(431, "the header section of the request is too large"),
    Reason.URI_TOO_LONG: _unreadable(414, "the request line is too long"),
    Reason.UNSUPPORTED: Row(
        405, _COMMAND, "NOTIMP", None, "the gate does not support this method, command or protocol"
    ),
    Reason.NOT_A_PROXY_REQUEST: _unreadable(400, "this is a forward proxy: it takes CONNECT, or absolute http:// URIs"),
    Reason.CREDENTIALS: Row(
        407, _NOT_ALLOWED, "REFUSED", _PROHIBITED, "the gate needs a user name and password it knows"
    ),
    Reason.PEER_NOT_ALLOWED: _blocked("this user of the machine may not use the gate's socket"),
    Reason.SNI_MISMATCH: _blocked("the TLS server name is not the host of {target}"),
    Reason.NO_SNI: _blocked("the TLS handshake for {target} names no server"),
    Reason.BAD_SNI: _blocked("the TLS handshake for {target} has a malformed server name"),
    Reason.ECH: _blocked("the TLS handshake for {target} hides its server name (ECH)"),
    Reason.NOT_TLS: _blocked("{target} expects TLS and something else came; its rule may say tls: false"),
    Reason.NOT_HTTP: _blocked("the rule for {target} looks at HTTP requests and something else came"),
    Reason.HOST_MISMATCH: _blocked("the Host of the request is not the host of {target}", http=421),
    Reason.METHOD_NOT_LISTED: _blocked("no rule for {target} lists this method"),
    Reason.PATH_NOT_LISTED: _blocked("no rule for {target} lists this path"),
    Reason.HEADER_NOT_LISTED: _blocked("no rule for {target} takes a request with, or without, such a header"),
    Reason.AMBIGUOUS_PATH: _blocked("the path of the request to {target} has more than one reading", http=400),
    Reason.CREDENTIAL_MISMATCH: _blocked("the request to {target} carries a credential that is not the persona's own"),
    Reason.UPLOAD_LIMIT: _blocked("the request to {target} sends more than its rule allows", http=413),
    Reason.LIMIT: Row(503, _GENERAL, "REFUSED", _PROHIBITED, "the gate is at one of its limits"),
    Reason.TIMEOUT: _failed(408, _GENERAL, "the request did not come in time"),
    Reason.AUDIT_UNAVAILABLE: _failed(503, _GENERAL, "the audit log cannot be written, and nothing passes unlogged"),
    Reason.INSPECTION_UNAVAILABLE: _failed(503, _GENERAL, "{target} needs inspection, which is not working right now"),
    Reason.UNRESOLVED: _failed(502, _UNREACHABLE, "{target} cannot be resolved"),
    Reason.UNREACHABLE: _failed(502, _UNREACHABLE, "{target} cannot be reached"),
    Reason.BAD_RESPONSE: _failed(502, _GENERAL, "{target} gave an answer that cannot be passed on safely"),
    Reason.BAD_CERTIFICATE: _failed(502, _GENERAL, "{target} has no certificate that can be trusted"),
    Reason.REVOKED: _blocked("{target} is no longer allowed for persona {persona}"),
}


class Refused(Exception):
    """Raised in one layer, told to the client and to the log in another.

    `detail` is for people; `asked` is what the client wrote, where it never became a target; `request` is
    the one that was looked into, as `egress check` takes it. Whoever puts it on record says so (`logged`) and
    by which rule; whoever tells the client, too (`told`).
    """

    def __init__(self, reason: Reason, detail: str = "", asked: str = "") -> None:
        super().__init__(detail or reason.value)
        self.reason = reason
        self.detail = detail
        self.asked = asked
        self.request = ""
        self.rule: Rule | None = None
        self.logged = self.told = False
