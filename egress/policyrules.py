"""Nodes of a policy file → rules.

Each key of the language has one reader that takes its node and returns the value or raises with the
node's line. `read_fields` runs a table of them over a mapping, so a mapping reports everything that is
wrong with it, and the tables are the language.

No list of what a rule restricts itself to may be empty: `methods: []` would read as no restriction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from egress.model import Source
from egress.names import Malformed, parse_port
from egress.policytree import Items, Node, Pairs, Word, describe, is_null
from egress.problems import PolicyError, Problems, near, wrong
from egress.rules import DEFAULT_PORTS, Pattern, Requests, Rule, Secret, parse_pattern, parse_rule
from egress.suffixes import check_base

Readers = Mapping[str, Callable[[Node], Any]]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METHOD = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110 section 5.1
_FRAMING = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})
_FORMAT = re.compile(r"[ -z|~]*\{\}[ -z|~]*")  # printable ASCII, one {} and no other brace
_PATH = re.compile(r"(?:/(?:\*\*|(?:[A-Za-z0-9._~!$&'()+,;=:@-]|%[0-9A-F]{2}|\*(?!\*))*))+")
_DOTS = re.compile(r"/\.{1,2}(?=/|$)")


def read_fields(node: Node, readers: Readers, noun: str) -> dict[str, Any]:
    """The values of a mapping's known keys; all that is wrong with it is raised together."""
    if not isinstance(node, Pairs):
        raise wrong(node.source, f"{noun} is a mapping, not {describe(node)}")
    problems = Problems()
    values = {}
    for key, value in node.pairs:
        try:
            values[key.text] = _reader(key, readers, noun)(value)
        except PolicyError as error:
            problems.absorb(error)
    problems.settle()
    return values


def _reader(key: Word, readers: Readers, noun: str) -> Callable[[Node], Any]:
    if key.text not in readers:
        known = ", ".join(readers)
        suggestion = near(key.text, readers.keys())
        raise wrong(key.source, f"unknown key {key.text[:80]!r} in {noun}{suggestion} (known: {known})")
    return readers[key.text]


def read_text(node: Node, expected: str) -> str:
    if not isinstance(node, Word) or is_null(node):
        raise wrong(node.source, f"expected {expected}, not {describe(node)}")
    return node.text


def read_list(node: Node, expected: str) -> list[Node]:
    if not isinstance(node, Items):
        raise wrong(node.source, f"expected a list such as {expected}, not {describe(node)}")
    return node.items


def read_variable(node: Node) -> str:
    name = read_text(node, "the name of an environment variable")
    if not _VARIABLE.fullmatch(name):
        raise wrong(node.source, f"{name[:80]!r} is not the name of an environment variable, such as GH_TOKEN")
    return name


def read_allow(node: Node) -> Rule:
    """An entry of an allow list or a group."""
    rule = _word_rule(node) if isinstance(node, Word) else _mapping_rule(node, _RULE)
    try:
        check_base(rule.pattern)
    except Malformed as error:
        raise wrong(rule.source, str(error)) from None
    return rule


def read_deny(node: Node) -> Rule:
    """An entry of a deny list. It may name a public suffix: a denial can only narrow."""
    return _word_rule(node) if isinstance(node, Word) else _mapping_rule(node, _DENIAL)


def read_option(text: str, option: str) -> Rule:
    """A rule from the command line."""
    return read_allow(Word(text, Source(option, 0)))


def _word_rule(node: Word) -> Rule:
    if is_null(node):
        raise wrong(node.source, "an empty entry; write a host, such as example.com, or take the line away")
    try:
        return parse_rule(node.text, node.source)
    except Malformed as error:
        raise wrong(node.source, str(error)) from None


def _mapping_rule(node: Node, readers: Readers) -> Rule:
    _reject_a_blank_before_the_port(node)
    fields = read_fields(node, readers, "a rule")
    if "host" not in fields:
        raise wrong(node.source, "a rule needs `host:`")
    pattern, port = fields["host"]
    if port is not None and "ports" in fields:
        raise wrong(node.source, f"the port stands twice, in `host: {pattern}:{port}` and in `ports:`")
    ports = fields.get("ports") or (DEFAULT_PORTS if port is None else frozenset({port}))
    return Rule(
        pattern,
        ports,
        tls=fields.get("tls"),
        private=fields.get("private", False),
        requests=_requests(fields, node.source),
        source=node.source,
        all_ports=port is None and "ports" not in fields,
    )


def _reject_a_blank_before_the_port(node: Node) -> None:
    if isinstance(node, Pairs) and len(node.pairs) == 1:
        key, value = node.pairs[0]
        if "." in key.text and isinstance(value, Word):
            raise wrong(key.source, f"a rule has no blank in it; write {key.text[:80]}:{value.text[:80]}")


def _requests(fields: dict[str, Any], source: Source) -> Requests | None:
    asked = {key: fields[key] for key in ("methods", "paths", "secret") if key in fields}
    if asked and fields.get("inspect") is False:
        raise wrong(source, f"`{next(iter(asked))}` needs inspection, and `inspect: false` forbids it")
    inspect = fields.get("inspect", False)
    return Requests(**asked, inspect=inspect) if asked or inspect else None


def _pattern(node: Node) -> tuple[Pattern, int | None]:
    text = read_text(node, "a host such as example.com or *.example.com")
    try:
        return parse_pattern(text)
    except Malformed as error:
        raise wrong(node.source, str(error)) from None


def _ports(node: Node) -> frozenset[int]:
    return frozenset(_port(item) for item in _some(node, "443 or [443, 8443]"))


def _port(node: Node) -> int:
    try:
        return parse_port(read_text(node, "a port"))
    except Malformed as error:
        raise wrong(node.source, str(error)) from None


def _boolean(node: Node) -> bool:
    text = read_text(node, "true or false")
    if text not in ("true", "false"):
        raise wrong(node.source, f"expected true or false, not {text[:80]!r}")
    return text == "true"


def _methods(node: Node) -> frozenset[str]:
    return frozenset(_method(item) for item in _some(node, "[GET, HEAD]"))


def _method(node: Node) -> str:
    text = read_text(node, "a method such as GET")
    if not _METHOD.fullmatch(text):
        raise wrong(node.source, f"{text[:80]!r} is not a method in upper case, such as GET")
    return text


def _paths(node: Node) -> tuple[str, ...]:
    return tuple(_path(item) for item in _some(node, '["/repos/acme/**"]'))


def _path(node: Node) -> str:
    text = read_text(node, "a path such as /repos/acme/**")
    if not text.startswith("/"):
        raise wrong(node.source, f"path {text[:80]!r} does not begin with /")
    if not _PATH.fullmatch(text):
        raise wrong(
            node.source,
            f"path {text[:80]!r} is not URL segments in which * stands for part of a segment and a segment ** for any",
        )
    if _DOTS.search(text) or "//" in text:
        raise wrong(node.source, f"path {text[:80]!r} has an empty, . or .. segment, which no request has when judged")
    return text


def _secret(node: Node) -> Secret:
    fields = read_fields(node, _SECRET, "a secret")
    missing = [key for key in ("env", "header") if key not in fields]
    if missing:
        raise wrong(node.source, f"a secret needs `{missing[0]}:`, as in {{env: API_KEY, header: x-api-key}}")
    return Secret(**fields)


def _header(node: Node) -> str:
    text = read_text(node, "the name of a header")
    if not _HEADER.fullmatch(text) or text.lower() in _FRAMING:
        raise wrong(node.source, f"{text[:80]!r} is not a header that can carry a secret, such as x-api-key")
    return text


def _format(node: Node) -> str:
    text = read_text(node, 'a format such as "Bearer {}"')
    if not _FORMAT.fullmatch(text):
        raise wrong(node.source, f"format {text[:80]!r} is not printable ASCII with one {{}} in it")
    return text


def _some(node: Node, expected: str) -> list[Node]:
    """A list with something in it, or the one thing by itself."""
    if isinstance(node, Word) and not is_null(node):
        return [node]
    items = read_list(node, expected)
    if not items:
        raise wrong(node.source, f"an empty list; write {expected}, or leave the key out")
    return items


_SECRET: Readers = {"env": read_variable, "header": _header, "format": _format}
_RULE: Readers = {
    "host": _pattern,
    "ports": _ports,
    "tls": _boolean,
    "private": _boolean,
    "methods": _methods,
    "paths": _paths,
    "secret": _secret,
    "inspect": _boolean,
}
_DENIAL: Readers = {"host": _pattern, "ports": _ports}
