"""What a rule says about requests: its keys, each read by its reader.

    methods: [GET, HEAD]
    paths: ["/repos/acme/**"]
    headers: {require: {accept: application/json, x-tenant: "*"}, forbid: [x-debug]}
    upload_limit: 1M                    or {request: 1M, session: 20M}
    secret: {env: GH_TOKEN, header: authorization, format: "Bearer {}"}
    inspect: true

A path that no request has when it is judged is an error: it would be a line that never speaks.
"""

from __future__ import annotations

import re
from typing import Any

from egress.model import Source
from egress.policyfields import Readers, read_boolean, read_fields, read_some, read_text, read_variable
from egress.policytree import Items, Node, Pairs, Word, describe
from egress.problems import wrong
from egress.rules import Headers, Requests, Secret, UploadLimit
from egress.urlpath import Ambiguous, canonical

_METHOD = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110 section 5.1
_FRAMING = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_FORMAT = re.compile(r"[ -z|~]*\{\}[ -z|~]*")  # printable ASCII, one {} and no other brace
_PATH = re.compile(r"(?:/(?:\*\*|(?:[A-Za-z0-9._~!$&'()+,;=:@-]|%[0-9A-Fa-f]{2}|\*(?!\*))*))+")
_SIZE = re.compile(r"(0|[1-9][0-9]{0,14})([KMGTkmgt]?)")  # as --memory is written
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_ANY = "*"
_EXAMPLE = "{env: API_KEY, header: x-api-key}"


def read_requests(fields: dict[str, Any], source: Source) -> Requests | None:
    """What the keys of a rule come to; None for one that looks at no requests."""
    asked = {key: fields[key] for key in REQUESTS if key in fields and key != "inspect"}
    if asked and fields.get("inspect") is False:
        raise wrong(source, f"`{next(iter(asked))}` needs inspection, and `inspect: false` forbids it")
    inspect = fields.get("inspect", False)
    return Requests(**asked, inspect=inspect) if asked or inspect else None


def _methods(node: Node) -> frozenset[str]:
    return frozenset(_method(item) for item in read_some(node, "[GET, HEAD]"))


def _method(node: Node) -> str:
    text = read_text(node, "a method such as GET")
    if not _METHOD.fullmatch(text):
        raise wrong(node.source, f"{text[:80]!r} is not a method in upper case, such as GET")
    return text


def _paths(node: Node) -> tuple[str, ...]:
    return tuple(_path(item) for item in read_some(node, '["/repos/acme/**"]'))


def _path(node: Node) -> str:
    text = read_text(node, "a path such as /repos/acme/**")
    if not text.startswith("/"):
        raise wrong(node.source, f"path {text[:80]!r} does not begin with /")
    if not _PATH.fullmatch(text):
        raise wrong(
            node.source,
            f"path {text[:80]!r} is not URL segments in which * stands for part of a segment and a segment ** for any",
        )
    try:
        path = canonical(text)
    except Ambiguous as error:
        raise wrong(node.source, f"path {text[:80]!r} {error}, and no such request is let through") from None
    if path != text:
        raise wrong(node.source, f"path {text[:80]!r} has escapes that requests are judged without; write {path[:80]}")
    return text


def _headers(node: Node) -> Headers:
    headers = Headers(**read_fields(node, _HEADERS, "`headers`"))
    if headers == Headers():
        raise wrong(node.source, "`headers` needs `require:` or `forbid:`, as in {forbid: [x-debug]}")
    if both := {name for name, _ in headers.require} & set(headers.forbid):
        raise wrong(node.source, f"header {min(both)!r} is both required and forbidden: no request can have it so")
    return headers


def _require(node: Node) -> tuple[tuple[str, str | None], ...]:
    if not isinstance(node, Pairs) or not node.pairs:
        raise wrong(node.source, f'expected a mapping such as {{x-tenant: acme, accept: "*"}}, not {_came(node)}')
    found: dict[str, str | None] = {}
    for key, value in node.pairs:
        name = _header(key, "a rule can ask for, such as accept")
        if name in found:
            raise wrong(key.source, f"header {name!r} stands twice")
        found[name] = _value(value)
    return tuple(found.items())


def _came(node: Node) -> str:
    return "an empty one" if isinstance(node, Pairs) else describe(node)


def _value(node: Node) -> str | None:
    text = read_text(node, f'the value of a header, or "{_ANY}" for any')
    if not _VALUE.fullmatch(text):
        raise wrong(node.source, f"{text[:80]!r} is not the value of a header: printable ASCII, no blanks around it")
    return None if text == _ANY else text


def _forbid(node: Node) -> tuple[str, ...]:
    names = (_header(item, "a rule can forbid, such as x-debug") for item in read_some(node, "[x-debug]"))
    return tuple(dict.fromkeys(names))


def _header(node: Node, use: str) -> str:
    text = read_text(node, "the name of a header")
    if not _HEADER.fullmatch(text) or text.lower() in _FRAMING:
        raise wrong(node.source, f"{text[:80]!r} is not a header that {use}")
    return text.lower()


def _upload_limit(node: Node) -> UploadLimit:
    if isinstance(node, Word):
        return UploadLimit(request=_size(node))
    limit = UploadLimit(**read_fields(node, _LIMITS, "`upload_limit`"))
    if limit == UploadLimit():
        raise wrong(node.source, "`upload_limit` needs a size such as 1M, or {request: 1M, session: 20M}")
    return limit


def _size(node: Node) -> int:
    text = read_text(node, "a size such as 64K or 1M")
    found = _SIZE.fullmatch(text)
    if not found:
        raise wrong(node.source, f"{text[:80]!r} is not a size such as 500, 64K, 1M or 2G")
    return int(found[1]) * _UNITS[found[2].upper()]


def _secret(node: Node) -> Secret:
    fields = read_fields(node, _SECRET, "a secret")
    if "header" not in fields:
        raise wrong(node.source, f"a secret needs `header:`, as in {_EXAMPLE}")
    if not fields.keys() & {"env", "file", "command"}:
        raise wrong(node.source, f"a secret needs `env:`, `file:` or `command:`, as in {_EXAMPLE}")
    if {"file", "command"} <= fields.keys():
        raise wrong(node.source, "a secret comes from `file:` or from `command:`, not from both")
    if "user" in fields and fields["header"] != "authorization":
        raise wrong(node.source, f"`user:` is for a secret in authorization, not in {fields['header']}")
    return Secret(**fields)


def _secret_header(node: Node) -> str:
    return _header(node, "can carry a secret, such as x-api-key")


def _format(node: Node) -> str:
    text = read_text(node, 'a format such as "Bearer {}"')
    if not _FORMAT.fullmatch(text):
        raise wrong(node.source, f"format {text[:80]!r} is not printable ASCII with one {{}} in it")
    return text


def _user(node: Node) -> str:
    text = read_text(node, "a user name such as me@example.com")
    if not _VALUE.fullmatch(text) or ":" in text:
        raise wrong(node.source, f"{text[:80]!r} is not a user name: printable ASCII, no `:` and no blanks around it")
    return text


def _file(node: Node) -> str:
    path = read_text(node, "a path such as ~/.config/token")
    if not path.startswith(("/", "~/")) or "\0" in path:
        raise wrong(node.source, f"{path[:80]!r} is not a path of the host: absolute, or below ~/")
    return path


def _command(node: Node) -> tuple[str, ...]:
    """A list of words, or a line that is split as a shell would; no shell ever sees it."""
    if isinstance(node, Items):
        words = [read_text(item, "a word of the command") for item in node.items]
    else:
        words = _split(node)
    if not words or not words[0] or any("\0" in word for word in words):
        raise wrong(node.source, "an empty command; write one such as [gh, auth, token]")
    return tuple(words)


def _split(node: Node) -> list[str]:
    import shlex

    text = read_text(node, "a command such as [gh, auth, token]")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise wrong(node.source, f"command {text[:80]!r} cannot be split into words: {str(error).lower()}") from None


_HEADERS: Readers = {"require": _require, "forbid": _forbid}
_LIMITS: Readers = {"request": _size, "session": _size}
_SECRET: Readers = {
    "env": read_variable,
    "file": _file,
    "command": _command,
    "header": _secret_header,
    "format": _format,
    "optional": read_boolean,
    "allow_other": read_boolean,
    "user": _user,
}
REQUESTS: Readers = {
    "methods": _methods,
    "paths": _paths,
    "headers": _headers,
    "upload_limit": _upload_limit,
    "secret": _secret,
    "inspect": read_boolean,
}
