"""One policy file: text → definitions, each with its line. Pure.

    version: 1
    hosts:     name → fixed address
    groups:    name → entries, used as @name
    personas:  name → description, extends, allow, deny, and what `policywalls` reads of their rooms

What a file says is not yet policy: names of groups and personas may lead to other files, and
`policylayers` follows them. An `allow` that is empty, null or missing allows nothing.

A file without `version:` may be another tool's. `foreign` knows some of them, and turns them into this language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from egress.model import Host, Source
from egress.names import Malformed, as_address, parse_host, parse_port, split_authority
from egress.policy import Fixed
from egress.policyfields import Readers, read_fields, read_list, read_text
from egress.policyrules import ToolRule, read_allow, read_deny
from egress.policytree import Node, Pairs, Word, describe, is_null, read_tree
from egress.policywalls import read_environment, read_filesystem, read_tools, read_walls
from egress.problems import PolicyError, Problems, wrong
from egress.rules import Rule
from egress.surroundings import Filesystem, Tools, Walls

if TYPE_CHECKING:
    from egress.foreign.translation import Remark, Translation

VERSION = "1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_JSON = re.compile(r'\s*\{\s*["}]')  # a brace, and then a quoted key or nothing
T = TypeVar("T")


class Ref(NamedTuple):
    """The name of a group or persona, where it was used."""

    name: str
    source: Source


Entry = Rule | ToolRule | Ref
Entries = tuple[Entry, ...]


class Group(NamedTuple):
    name: str
    source: Source
    entries: Entries = ()
    below: Group | None = None  # what it replaced, from the layer below


class Profile(NamedTuple):
    """A persona as written."""

    name: str
    source: Source
    description: str = ""
    extends: Ref | None = None
    allow: Entries = ()
    deny: Entries = ()
    env: tuple[str, ...] = ()
    filesystem: Filesystem = Filesystem()
    tools: Tools = Tools()
    sandbox: Walls = Walls()
    below: Profile | None = None


class Document(NamedTuple):
    file: str
    hosts: Mapping[Host, tuple[Fixed, Source]] = {}
    groups: Mapping[str, Group] = {}
    personas: Mapping[str, Profile] = {}
    remarks: tuple[Remark, ...] = ()  # about another tool's file: what does not hold here as it stands there


def parse_document(text: str, file: str) -> Document:
    """What one file defines; raises `PolicyError` with everything that is wrong in it."""
    root = read_root(text, file)
    if not _is_ours(root):
        from egress.foreign import translate  # only files without a version pay for looking

        if made := translate(root, file):
            return translated(made, file)
    return _document(root, file)


def read_root(text: str, file: str) -> Node:
    """YAML or JSON, by how it begins. A policy of ours is YAML, also where it looks like JSON for a while."""
    if not _JSON.match(text):
        return read_tree(text, file)
    from egress.jsontree import read_json

    try:
        return read_json(text, file)
    except PolicyError:
        with suppress(PolicyError):
            root = read_tree(text, file)
            if _is_ours(root):
                return root
        raise


def _is_ours(root: Node) -> bool:
    return isinstance(root, Pairs) and any(key.text == "version" for key, _ in root.pairs)


def translated(made: Translation, file: str) -> Document:
    """What another tool's file comes to; all that stands against it is raised together."""
    problems = Problems()
    for check in (made.settle, partial(_document, made.root, file)):
        try:
            check()
        except PolicyError as error:
            problems.absorb(error)
    problems.settle()
    return _document(made.root, file)._replace(remarks=made.remarks)


def _document(root: Node, file: str) -> Document:
    fields = read_fields(root, _TOP, "a policy")
    if "version" not in fields:
        raise wrong(root.source, f"no version; a policy begins with `version: {VERSION}`")
    del fields["version"]
    return Document(file, **fields)


def _version(node: Node) -> None:
    text = read_text(node, f"`version: {VERSION}`")
    if text != VERSION:
        raise wrong(node.source, f"version {text[:80]!r} is not known; expected `version: {VERSION}`")


def _named(node: Node, noun: str, read: Callable[[Word, Node], T]) -> dict[str, T]:
    """A mapping whose keys are the author's own names."""
    if is_null(node):
        return {}
    if not isinstance(node, Pairs):
        raise wrong(node.source, f"expected a mapping from {noun} to what it stands for, not {describe(node)}")
    problems = Problems()
    values = {}
    for key, value in node.pairs:
        try:
            values[key.text] = read(key, value)
        except PolicyError as error:
            problems.absorb(error)
    problems.settle()
    return values


def _check_name(key: Word, noun: str) -> None:
    if not _NAME.fullmatch(key.text):
        raise wrong(key.source, f"{key.text[:80]!r} is no name for a {noun}: letters, digits, - _ and . are")


def _group(key: Word, node: Node) -> Group:
    _check_name(key, "group")
    return Group(key.text, key.source, _entries(node, read_allow))


def _profile(key: Word, node: Node) -> Profile:
    _check_name(key, "persona")
    fields = {} if is_null(node) else read_fields(node, _PERSONA, f"persona {key.text!r}")
    return Profile(key.text, key.source, **fields)


def _description(node: Node) -> str:
    text = "" if is_null(node) else read_text(node, "a line of text")
    return " ".join(text.split())


def _extends(node: Node) -> Ref:
    return Ref(read_text(node, "the name of a persona"), node.source)


def _entries(node: Node, read: Callable[[Node], Rule | ToolRule]) -> Entries:
    """Rules, and @groups in their place among them."""
    if is_null(node):
        return ()
    problems = Problems()
    entries: list[Entry] = []
    for item in read_list(node, '[example.com, "@group"]'):
        try:
            entries.append(_entry(item, read))
        except PolicyError as error:
            problems.absorb(error)
    problems.settle()
    return tuple(entries)


def _entry(node: Node, read: Callable[[Node], Rule | ToolRule]) -> Entry:
    if isinstance(node, Word) and node.text.startswith("@"):
        return Ref(node.text[1:], node.source)
    return read(node)


def _hosts(node: Node) -> dict[Host, tuple[Fixed, Source]]:
    hosts: dict[Host, tuple[Fixed, Source]] = {}
    for host, fixed, source in _named(node, "a host", _fixed).values():
        if host in hosts:
            raise wrong(source, f"host {host!r} stands twice, first on line {hosts[host][1].line}")
        hosts[host] = fixed, source
    return hosts


def _fixed(key: Word, node: Node) -> tuple[Host, Fixed, Source]:
    address = read_text(node, "an address such as 10.0.0.7 or 10.0.0.7:8443")
    try:
        return _host_name(key.text), _address(address), key.source
    except Malformed as error:
        raise wrong(key.source, str(error)) from None


def _host_name(text: str) -> Host:
    host = parse_host(text)
    if as_address(host):
        raise Malformed(f"{text!r} is an address; `hosts:` gives an address to a name")
    return host


def _address(text: str) -> Fixed:
    bare = text.count(":") > 1 and not text.startswith("[")
    host, port = (parse_host(text), None) if bare else split_authority(text)
    if not as_address(host):
        raise Malformed(
            f"{text!r} is a name; `hosts:` needs an address such as 10.0.0.7, 10.0.0.7:8443 or [fd00::7]:443"
        )
    return Fixed(host, None if port is None else parse_port(port))


_PERSONA: Readers = {
    "description": _description,
    "extends": _extends,
    "allow": partial(_entries, read=read_allow),
    "deny": partial(_entries, read=read_deny),
    "env": read_environment,
    "filesystem": read_filesystem,
    "tools": read_tools,
    "sandbox": read_walls,
}
_TOP: dict[str, Callable[[Node], Any]] = {
    "version": _version,
    "hosts": _hosts,
    "groups": partial(_named, noun="a group", read=_group),
    "personas": partial(_named, noun="a persona", read=_profile),
}
