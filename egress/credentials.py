"""Credentials: the sandbox holds a placeholder, and the real value is put in on the way out. Pure.

A placeholder is not secret: it is only good for the one header of the one host whose rule names it, and
anywhere else it goes out as it stands. A host that has a secret takes no other credential, in that header
or in another that servers usually take one from: a stolen file would leave by way of somebody's own key.

HTTP clients write a token in several ways into `Authorization` (RFC 6750, and RFC 7617, where git has it
as a password); the one that the client chose is kept.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from egress.refusals import Reason, Refused
from egress.rules import Rule, Secret

AUTHORIZATION = "authorization"
CREDENTIAL_HEADERS = frozenset({
    AUTHORIZATION, "x-api-key", "api-key", "apikey", "x-goog-api-key", "x-auth-token", "private-token", "job-token",
    "x-amz-security-token", "x-access-token",
})  # fmt: skip
_SCHEMES = ("Bearer {}", "bearer {}", "token {}", "Token {}")
_BASIC = "basic "
_LEAST_MASKED = 4  # anything shorter would be found everywhere


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
    watched = CREDENTIAL_HEADERS | {one.secret.header for one in known}
    others_pass = any(one.secret.allow_other for one in known)
    put: dict[str, str] = {}
    for name, value in fields:
        if name.replace("_", "-") in watched:  # CGI and its descendants do not tell them apart
            written = _written(known, name, value)
            if written is None and not others_pass:
                raise Refused(Reason.CREDENTIAL_MISMATCH, f"in its {name} header")
            if written is not None:
                put[name] = _once(put, name, written)
    return Exchange(tuple(put.items()), _masks(known, put))


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
        return _in_basic(secret.placeholder, real, value[len(_BASIC) :].strip())
    return None


def _in_basic(placeholder: str, real: str, encoded: str) -> str | None:
    try:
        user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    if password == placeholder:
        password = real
    elif user == placeholder and password in ("", "x-oauth-basic"):  # as in https://TOKEN@host/
        user = real
    else:
        return None
    return "Basic " + b64encode(f"{user}{colon}{password}".encode()).decode()


def _masks(known: Sequence[Known], put: dict[str, str]) -> tuple[bytes, ...]:
    """The values, and in base64 if that is how one was sent; the longest first."""
    texts = {one.value for one in known} | {value.rpartition(" ")[2] for value in put.values()}
    return tuple(sorted((text.encode() for text in texts if len(text) >= _LEAST_MASKED), key=len, reverse=True))
