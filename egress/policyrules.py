"""Entries of a policy's lists → rules.

A rule is for a host, or, with `tool:` in place of `host:`, for those that a tool of this machine is set up
to use (`npm config get registry`). What those are is found out by whoever makes the policy: here they stay a
`ToolRule`, and `for_host` makes a rule of it for each.
"""

from __future__ import annotations

from typing import NamedTuple

from egress.model import Host, Source
from egress.names import Malformed, parse_port
from egress.policyfields import Readers, read_boolean, read_fields, read_some, read_text
from egress.policyrequests import REQUESTS, read_requests
from egress.policytree import Node, Pairs, Word, is_null
from egress.problems import near, wrong
from egress.rules import DEFAULT_PORTS, TLS_PORT, Pattern, Rule, parse_pattern, parse_rule
from egress.suffixes import check_base

TOOLS = ("npm", "pip", "apt")
_NO_PATTERN = Pattern(Host(""))  # matches no host


class ToolRule(NamedTuple):
    """A rule for hosts that are not known yet. What was written of ports, `tls` and `private` goes before theirs."""

    tool: str
    rule: Rule

    @property
    def source(self) -> Source:
        return self.rule.source

    def for_host(self, host: Host, port: int, tls: bool, private: bool) -> Rule:
        rule = self.rule
        implied = tls if tls != (port == TLS_PORT) else None
        return rule._replace(
            pattern=Pattern(host),
            ports=frozenset({port}) if rule.all_ports else rule.ports,
            tls=implied if rule.tls is None else rule.tls,
            private=rule.private or private,
        )


def read_allow(node: Node) -> Rule | ToolRule:
    """An entry of an allow list or a group."""
    rule = _word_rule(node) if isinstance(node, Word) else _mapping_rule(node, _RULE)
    return rule if isinstance(rule, ToolRule) else _checked(rule)


def read_deny(node: Node) -> Rule | ToolRule:
    """An entry of a deny list. It may name a public suffix: a denial can only narrow."""
    return _word_rule(node) if isinstance(node, Word) else _mapping_rule(node, _DENIAL)


def read_option(text: str, option: str) -> Rule:
    """A rule from the command line."""
    return _checked(_word_rule(Word(text, Source(option, 0))))


def _checked(rule: Rule) -> Rule:
    try:
        check_base(rule.pattern)
    except Malformed as error:
        raise wrong(rule.source, str(error)) from None
    return rule


def _word_rule(node: Word) -> Rule:
    if is_null(node):
        raise wrong(node.source, "an empty entry; write a host, such as example.com, or take the line away")
    try:
        return parse_rule(node.text, node.source)
    except Malformed as error:
        raise wrong(node.source, str(error)) from None


def _mapping_rule(node: Node, readers: Readers) -> Rule | ToolRule:
    _reject_a_blank_before_the_port(node)
    fields = read_fields(node, readers, "a rule")
    if ("host" in fields) == ("tool" in fields):
        raise wrong(
            node.source, "a rule needs `host:`" if "host" not in fields else "`tool:` stands in place of `host:`"
        )
    pattern, port = fields.get("host", (_NO_PATTERN, None))
    if port is not None and "ports" in fields:
        raise wrong(node.source, f"the port stands twice, in `host: {pattern}:{port}` and in `ports:`")
    rule = Rule(
        pattern,
        fields.get("ports") or (DEFAULT_PORTS if port is None else frozenset({port})),
        tls=fields.get("tls"),
        private=fields.get("private", False),
        requests=read_requests(fields, node.source),
        source=node.source,
        all_ports=port is None and "ports" not in fields,
    )
    return ToolRule(fields["tool"], rule) if "tool" in fields else rule


def _reject_a_blank_before_the_port(node: Node) -> None:
    if isinstance(node, Pairs) and len(node.pairs) == 1:
        key, value = node.pairs[0]
        if "." in key.text and isinstance(value, Word):
            raise wrong(key.source, f"a rule has no blank in it; write {key.text[:80]}:{value.text[:80]}")


def _pattern(node: Node) -> tuple[Pattern, int | None]:
    text = read_text(node, "a host such as example.com or *.example.com")
    try:
        return parse_pattern(text)
    except Malformed as error:
        raise wrong(node.source, str(error)) from None


def _tool(node: Node) -> str:
    text = read_text(node, "a tool such as npm")
    if text not in TOOLS:
        raise wrong(node.source, f"unknown tool {text[:80]!r}{near(text, TOOLS)} (known: {', '.join(TOOLS)})")
    return text


def _ports(node: Node) -> frozenset[int]:
    return frozenset(_port(item) for item in read_some(node, "443 or [443, 8443]"))


def _port(node: Node) -> int:
    try:
        return parse_port(read_text(node, "a port"))
    except Malformed as error:
        raise wrong(node.source, str(error)) from None


_RULE: Readers = {
    "host": _pattern,
    "tool": _tool,
    "ports": _ports,
    "tls": read_boolean,
    "private": read_boolean,
    **REQUESTS,
}
_DENIAL: Readers = {"host": _pattern, "ports": _ports}
