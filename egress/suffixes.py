"""Names below which anyone may register one of their own: `com`, `co.uk`, `github.io`.

A wildcard on such a name allows the attacker's site along with the meant one, so no policy may have
it. The judge is the Public Suffix List, with its private section, as `publicsuffixlist` ships it, and
it is asked for every wildcard of every file, always: a table of the best known would let their
neighbours through. What that package's own parser costs at each start, 30 ms, goes into converting
every line to IDNA; a set of the lines as they stand takes 3 ms, and an `xn--` base is converted the
other way, by itself. The set is made at the first wildcard that is not `REVIEWED`, and so never for
the policy that ships.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from egress.names import Malformed
from egress.rules import Pattern

# Bases of the shipped wildcards, looked at by hand. githubusercontent.com is on the list so that
# browsers keep its cookies apart; the names below it are GitHub's own and nobody can register one.
REVIEWED = frozenset({"github.com", "githubusercontent.com"})
_ENTRY = re.compile(r"^[^/\s]\S*", re.MULTILINE)


def check_base(pattern: Pattern) -> None:
    """Refuse a wildcard on a public suffix."""
    host = pattern.host
    if pattern.below and is_public_suffix(host):
        raise Malformed(
            f"'{pattern}': anyone may register a name below {host} (a public suffix);"
            f" write the host itself, or *.example.{host} with the name that is meant"
        )


def is_public_suffix(host: str) -> bool:
    if "." not in host:
        return True
    if host in REVIEWED:
        return False
    entries, name = _entries(), _as_listed(host)
    parent = name.partition(".")[2]
    if f"!{name}" in entries:
        return False
    return name in entries or f"*.{name}" in entries or f"*.{parent}" in entries


@cache
def suffixes_below() -> Mapping[str, str]:
    """For each name that has public suffixes below it, one of them: amazonaws.com → s3.amazonaws.com."""
    found: dict[str, str] = {}
    for entry in sorted(_entries(), key=lambda entry: (len(entry), entry)):
        suffix = entry.lstrip("*!.")
        parent = suffix.partition(".")[2]
        while "." in parent:
            found.setdefault(parent, suffix)
            parent = parent.partition(".")[2]
    return found


def _as_listed(host: str) -> str:
    """The list is written in Unicode."""
    if "xn--" not in host:
        return host
    import idna

    return idna.decode(host)


@cache
def _entries() -> frozenset[str]:
    from pathlib import Path

    from publicsuffixlist import PSLFILE

    return frozenset(_ENTRY.findall(Path(PSLFILE).read_text("utf-8")))
