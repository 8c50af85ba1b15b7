"""Rules as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from egress.model import Target
from egress.names import as_address
from egress.rules import DEFAULT_PORTS, Requests, Rule


def ports_of(rule: Rule) -> str:
    return ",".join(map(str, sorted(rule.ports)))


def terms_of(rule: Rule) -> str:
    """What a rule says beyond host and ports."""
    return " ".join(_terms(rule))


def as_json(rule: Rule) -> dict[str, Any]:
    """A rule of an allow list."""
    requests = rule.requests or Requests()
    return {
        "host": str(rule.pattern),
        "ports": sorted(rule.ports),
        "tls": rule.tls,
        "private": rule.private,
        "methods": sorted(requests.methods),
        "paths": list(requests.paths),
        "secret": requests.secret and requests.secret._asdict(),
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
    if requests.secret:
        yield f"secret={requests.secret.env}"
