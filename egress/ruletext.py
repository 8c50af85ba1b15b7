"""Rules as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from egress.model import Target
from egress.names import as_address
from egress.rules import DEFAULT_PORTS, Headers, Requests, Rule, Secret, UploadLimit

_UNITS = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


def ports_of(rule: Rule) -> str:
    return ",".join(map(str, sorted(rule.ports)))


def terms_of(rule: Rule) -> str:
    """What a rule says beyond host and ports."""
    return " ".join(_terms(rule))


def requests_of(rule: Rule) -> str:
    """Which requests a rule allows: `GET,HEAD /v1/**`."""
    requests = rule.requests or Requests()
    methods = ",".join(sorted(requests.methods)) or "any"
    return " ".join([methods, ",".join(requests.paths) or "/**", *_conditions(requests)])


def as_json(rule: Rule) -> dict[str, Any]:
    """A rule of an allow list."""
    requests = rule.requests or Requests()
    headers, limit, secret = requests.headers, requests.upload_limit, requests.secret
    return {
        "host": str(rule.pattern),
        "ports": sorted(rule.ports),
        "tls": rule.tls,
        "private": rule.private,
        "methods": sorted(requests.methods),
        "paths": list(requests.paths),
        "headers": headers and {"require": dict(headers.require), "forbid": list(headers.forbid)},
        "upload_limit": limit and limit._asdict(),
        "secret": secret and secret._asdict(),
        "inspect": rule.needs_inspection,
        "source": str(rule.source),
    }


def denial_as_json(rule: Rule) -> dict[str, Any]:
    """A rule of a deny list; `ports` is null where it denies them all."""
    return {
        "host": str(rule.pattern),
        "ports": None if rule.all_ports else sorted(rule.ports),
        "source": str(rule.source),
    }


def as_word(target: Target) -> str:
    """The rule that would allow a target, as one word."""
    if target.port not in DEFAULT_PORTS:
        return str(target)
    return f"[{target.host}]" if ":" in target.host else target.host


def as_yaml(target: Target, private: bool) -> str:
    """The same as an entry of a list."""
    word = as_word(target)
    quoted = f'"{word}"' if as_address(target.host) else word
    return f"{{host: {quoted}, private: true}}" if private else quoted


def _terms(rule: Rule) -> Iterator[str]:
    if rule.tls is not None:
        yield "tls" if rule.tls else "raw"
    if rule.private:
        yield "private"
    if rule.requests is not None:
        yield from _request_terms(rule.requests)


def _request_terms(requests: Requests) -> Iterator[str]:
    yield "inspected"
    if requests.methods:
        yield "methods=" + ",".join(sorted(requests.methods))
    if requests.paths:
        yield "paths=" + ",".join(requests.paths)
    yield from _conditions(requests)
    if requests.secret:
        yield f"secret={_origin(requests.secret)}"


def _conditions(requests: Requests) -> Iterator[str]:
    if requests.headers:
        yield from _header_terms(requests.headers)
    if requests.upload_limit:
        yield from _limit_terms(requests.upload_limit)


def _header_terms(headers: Headers) -> Iterator[str]:
    if headers.require:
        yield "require=" + ",".join(f"{name}:{'*' if value is None else value}" for name, value in headers.require)
    if headers.forbid:
        yield "forbid=" + ",".join(headers.forbid)


def _limit_terms(limit: UploadLimit) -> Iterator[str]:
    if limit.request is not None:
        yield f"upload_limit={_size(limit.request)}"
    if limit.session is not None:
        yield f"session_limit={_size(limit.session)}"


def _origin(secret: Secret) -> str:
    """One word: the variable, the file, or the program that is asked."""
    if secret.command:
        return f"command:{secret.command[0]}"
    return f"file:{secret.file}" if secret.file else secret.env or secret.header


def _size(size: int) -> str:
    """As it would be written in a policy."""
    return next((f"{size // unit}{name}" for name, unit in _UNITS if size and size % unit == 0), str(size))
