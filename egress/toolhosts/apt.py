"""apt: the sources of /etc/apt, in either of their formats.

    deb [options] URI suite components          sources.list, sources.list.d/*.list
    URIs: URI URI                               sources.list.d/*.sources, stanzas of fields as in RFC 822

`mirror+file:` leads to a list of mirrors on this machine, which is followed. A list that has to be fetched from
a server names hosts that nobody knows before, so only its server is taken in, and that is reported.
All of /etc is seen inside too, so apt needs no telling. Every source counts as configured by a person: a mirror of
one's own network looks like any other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from egress.toolhosts.findings import Findings, Found, Setting
from egress.toolhosts.machine import Machine

_ONE_LINE = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s*)?(\S+)")
_FILE_NAME = re.compile(r"[A-Za-z0-9_.-]+\.(?:list|sources)")  # others apt passes over
_MIRRORS = re.compile(r"mirror(?:\+[a-z]+)?:")
_LOCAL = ("cdrom:", "file:", "copy:")
_NO = frozenset({"no", "false", "without", "off", "disable"})


def find(machine: Machine) -> Found:
    findings = Findings(machine)
    for path in _files(findings):
        text = findings.read(path) or ""
        for uri in _stanzas(text, path) if path.endswith(".sources") else _lines(text, path):
            _take(findings, uri)
    if not findings.done({}).registries:
        findings.report("apt has no sources in /etc/apt that are on a network")
    return findings.done({})


def _files(findings: Findings) -> Iterator[str]:
    machine = findings.machine
    yield machine.system("/etc/apt/sources.list")
    directory = machine.system("/etc/apt/sources.list.d")
    findings.watch(directory)
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    yield from (os.path.join(directory, name) for name in names if _FILE_NAME.fullmatch(name))


def _lines(text: str, path: str) -> Iterator[Setting]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := _ONE_LINE.match(line.partition("#")[0]):
            yield Setting(found[1], f"{path}:{number}")


def _stanzas(text: str, path: str) -> Iterator[Setting]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n[ \t]*\n", "\n".join(lines)):
        fields = _fields(stanza)
        if fields.get("enabled", "yes").strip().lower() not in _NO:
            yield from (Setting(uri, f"{path} (URIs)") for uri in fields.get("uris", "").split())


def _fields(stanza: str) -> dict[str, str]:
    """The fields of a stanza; what is indented belongs to the field above."""
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        begins = not line.startswith((" ", "\t"))
        if begins:
            name = line.partition(":")[0].strip().lower()
        fields[name] = f"{fields.get(name, '')} {line.partition(':')[2] if begins else line}"
    return fields


def _take(findings: Findings, uri: Setting) -> None:
    if found := _MIRRORS.match(uri.value):
        _take_mirrors(findings, uri._replace(value=uri.value[found.end() :]), found[0])
    elif not uri.value.startswith(_LOCAL):
        findings.named(uri)


def _take_mirrors(findings: Findings, rest: Setting, method: str) -> None:
    if method == "mirror+file:":
        path = "/" + rest.value.lstrip("/")
        for number, line in enumerate((findings.read(findings.machine.system(path)) or "").splitlines(), 1):
            if words := line.partition("#")[0].split():
                findings.named(Setting(words[0], f"{path}:{number}"))
        return
    scheme = method.removeprefix("mirror+") if "+" in method else "http:"
    if findings.named(rest._replace(value=scheme + rest.value)):
        findings.report(f"{rest.source}: the mirrors that this list will name are not known; allow them by name")
