"""Credentials: the sandbox holds a placeholder, and the real value is put in on the way out. Pure.

A placeholder is not secret: it is only good for the one header of the one host whose rule names it, and
anywhere else it goes out as it stands. A host that has a secret takes no other credential, in that header
or in another that servers usually take one from: a stolen file would leave by way of somebody's own key. Such
headers are known by their names, in which every service has words of its own and all have a few in common.
A WebSocket of a browser cannot set headers, so some services take a key among its subprotocols.

HTTP clients write a token in several ways into `Authorization` (RFC 6750, and RFC 7617, where git has it
as a password); the one that the client chose is kept. Some services look at the user name of `Basic` alone, so
it is one of those that stand for nobody, or the one that the rule names.

Of an answer that has a value in base64, in whichever of the three alignments, everything is masked that does
not depend on what stands around it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from egress.overrides import folded
from egress.refusals import Reason, Refused
from egress.rules import Rule, Secret

AUTHORIZATION = "authorization"
SUBPROTOCOLS = "sec-websocket-protocol"
NOBODY = frozenset({
    "", "x", "git", "token", "oauth", "oauth2", "api", "apikey", "__token__", "x-access-token", "x-token-auth",
    "x-oauth-basic", "gitlab-ci-token",
})  # fmt: skip
_SCHEMES = ("Bearer {}", "bearer {}", "token {}", "Token {}")
_BASIC = "basic "
_LEAST_MASKED = 4  # anything shorter would be found everywhere
_LEAST_ENCODED = 8
_CREDENTIAL = re.compile(
    r"authorization|authentication|password|secret|token\Z|(?:\A|-)auth\Z|\A(?:x-)?key\Z"
    r"|(?:access|account|admin|api|app|application|auth|client|license|master|private|service|subscription|user)-?key"
)
_NO_CREDENTIAL = re.compile(
    r"(?:csrf|xsrf|verification|continuation|page|idempotency)-?token\Z|\Aproxy-authorization\Z"
)
_KEY_IN_SUBPROTOCOL = re.compile(r"authorization|bearer|basic|jwt|secret|token|auth|key|[^.+/, \t-]{25}", re.IGNORECASE)


class Known(NamedTuple):
    """A secret and its value."""

    secret: Secret
    value: str

    def __repr__(self) -> str:
        return f"Known({self.secret.header})"


class Exchange(NamedTuple):
    """What changes in a request: fields with their new values; and what must not be seen in its answer."""

    put: tuple[tuple[str, str], ...] = ()
    masks: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"Exchange({[name for name, _ in self.put]})"


NOTHING_TO_EXCHANGE = Exchange()


def exchange(known: Sequence[Known], fields: Iterable[tuple[str, str]]) -> Exchange:
    """Placeholders for values; Refused if the request brings a credential of its own."""
    if not known:
        return NOTHING_TO_EXCHANGE
    put: dict[str, str] = {}
    for name, value in fields:
        plain = folded(name)
        owners = [one for one in known if folded(one.secret.header) == plain]
        if not owners and not _may_carry_a_key(plain, value):
            continue
        written = _written(known, name, value)
        if written is not None:
            put[name] = _once(put, name, written)
        elif not _others_pass(owners, known):
            raise Refused(Reason.CREDENTIAL_MISMATCH, f"in its {name} header")
    return Exchange(tuple(put.items()), _masks(known, put))


def _may_carry_a_key(name: str, value: str) -> bool:
    return _is_for_credentials(name) or (name == SUBPROTOCOLS and _KEY_IN_SUBPROTOCOL.search(value) is not None)


@lru_cache(maxsize=1024)
def _is_for_credentials(name: str) -> bool:
    return _CREDENTIAL.search(name) is not None and _NO_CREDENTIAL.search(name) is None


def _others_pass(owners: Sequence[Known], known: Sequence[Known]) -> bool:
    """A header's own secrets say so, each of which might be meant; one that has none is everyone's concern."""
    return any(one.secret.allow_other for one in owners) if owners else all(one.secret.allow_other for one in known)


def keep_from_the_open(known: Sequence[Known], rules: Iterable[Rule], fields: Iterable[tuple[str, str]]) -> None:
    """A credential is not sent in the clear, where anyone on the way reads it, unless its rule wants just that."""
    bringing = (rule for rule in rules if rule.requests is not None and rule.requests.secret is not None)
    if not all(rule.tls is False for rule in bringing) and has_placeholder(known, fields):
        raise Refused(Reason.NOT_TLS, "a secret is not put into a request that goes out in the clear")


def has_placeholder(known: Sequence[Known], fields: Iterable[tuple[str, str]]) -> bool:
    """Whether a request asks for a value to be put in."""
    return any(_written(known, name, value) is not None for name, value in fields)


def _once(put: dict[str, str], name: str, written: str) -> str:
    if name in put:
        raise Refused(Reason.CREDENTIAL_MISMATCH, f"it has more than one {name} header")
    return written


def _written(known: Sequence[Known], name: str, value: str) -> str | None:
    """A field's value with what a placeholder in it stands for; None if there is none."""
    for secret, real in known:
        if secret.header == name:
            written = _in_format(secret, real, value)
            if written is not None:
                return written
    return None


def _in_format(secret: Secret, real: str, value: str) -> str | None:
    formats = (secret.format, *_SCHEMES) if secret.header == AUTHORIZATION else (secret.format,)
    for form in formats:
        if value == form.format(secret.placeholder):
            return form.format(real)
    if secret.header == AUTHORIZATION and value[: len(_BASIC)].lower() == _BASIC:
        return _in_basic(secret, real, value[len(_BASIC) :].strip())
    return None


def _in_basic(secret: Secret, real: str, encoded: str) -> str | None:
    try:
        user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    if password == secret.placeholder and (user in NOBODY or user == secret.user or secret.allow_other):
        password = real
    elif user == secret.placeholder and password in ("", "x-oauth-basic"):  # as in https://TOKEN@host/
        user = real
    else:
        return None
    return "Basic " + b64encode(f"{user}{colon}{password}".encode()).decode()


def _masks(known: Sequence[Known], put: dict[str, str]) -> tuple[bytes, ...]:
    """The values, what was sent in their place, and the values in base64; the longest first."""
    texts = {one.value for one in known} | {value.rpartition(" ")[2] for value in put.values()}
    found = {text.encode() for text in texts if len(text) >= _LEAST_MASKED}
    found.update(core for one in known for core in _in_base64(one.value.encode()))
    return tuple(sorted(found, key=len, reverse=True))


def _in_base64(value: bytes) -> Iterator[bytes]:
    """What every base64 has of it, whatever stands before and behind it."""
    encoders: tuple[Callable[[bytes], bytes], ...] = (b64encode, urlsafe_b64encode)
    for before in range(3):  # bytes of the group that it begins in
        first, end = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        if end - first >= _LEAST_ENCODED:
            yield from (encode(bytes(before) + value)[first:end] for encode in encoders)
