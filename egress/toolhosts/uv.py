"""uv: the same indexes as pip, named in its own way.

An index is `URL` or `name=URL`, in variables or as `[[index]]` in uv.toml; `index-url` and `extra-index-url` are
its older spelling. The user's file and the system's are merged: lists are joined, and of single values the user's
counts. A project's uv.toml and pyproject.toml would come before them, and are never read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from egress.record import NamedTuple
from egress.toolhosts.findings import Findings, Setting
from egress.toolhosts.machine import TRUE
from egress.toolhosts.registry import Registry

_NAMED = re.compile(r"([A-Za-z0-9._-]+)=(?=\w+:)")


class OfUv(NamedTuple):
    wants_public: bool
    environment: Mapping[str, str]


class _Indexes(NamedTuple):
    """Each a list, the strongest first; of `default` only the first counts."""

    default: list[Setting]
    further: list[Setting]
    links: list[Setting]


def find(findings: Findings) -> OfUv:
    """Take in uv's indexes. One that is not installed and has no settings asks for nothing."""
    environ = findings.machine.environ
    if environ.get("UV_NO_INDEX", "").lower() in TRUE:
        return OfUv(False, {"UV_NO_INDEX": "1"})
    indexes = _indexes(findings)
    environment = {
        "UV_DEFAULT_INDEX": _take(findings, indexes.default[:1]),
        "UV_INDEX": _take(findings, indexes.further),
        "UV_FIND_LINKS": _take(findings, indexes.links).replace(" ", ","),
    }
    wants_public = not indexes.default and findings.machine.program("uv") is not None
    return OfUv(wants_public, {name: value for name, value in environment.items() if value})


def _take(findings: Findings, settings: Iterable[Setting]) -> str:
    return " ".join(name + registry.url for name, registry in _named(findings, settings))


def _named(findings: Findings, settings: Iterable[Setting]) -> Iterator[tuple[str, Registry]]:
    for setting in settings:
        name = _NAMED.match(setting.value)
        url = setting.value[name.end() :] if name else setting.value
        for registry in findings.listed([Setting(url, setting.source)]):
            yield name[0] if name else "", registry


def _indexes(findings: Findings) -> _Indexes:
    files = (_parsed(findings, path, text) for path, text in _files(findings))
    layers = (_variables(findings.machine.environ), *files)
    return _Indexes(*(list(chain.from_iterable(lists)) for lists in zip(*layers, strict=True)))


def _variables(environ: Mapping[str, str]) -> _Indexes:
    def words(*names: str) -> list[Setting]:
        return [Setting(word, f"${name}") for name in names for word in environ.get(name, "").split()]

    default = words("UV_DEFAULT_INDEX", "UV_INDEX_URL")
    links = [Setting(link, "$UV_FIND_LINKS") for link in environ.get("UV_FIND_LINKS", "").replace(",", " ").split()]
    return _Indexes(default, words("UV_INDEX", "UV_EXTRA_INDEX_URL"), links)


def _files(findings: Findings) -> Iterator[tuple[str, str]]:
    """Configuration files with their text, the strongest first; of the system's the first that is there."""
    machine = findings.machine
    if named := machine.environ.get("UV_CONFIG_FILE"):
        yield from _there(findings, [named])
    elif machine.environ.get("UV_NO_CONFIG", "").lower() not in TRUE:
        system = [os.path.join(directory, "uv/uv.toml") for directory in machine.system_config()]
        yield from _there(findings, machine.config("uv/uv.toml"))
        yield from islice(_there(findings, [*system, machine.system("/etc/uv/uv.toml")]), 1)


def _there(findings: Findings, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        text = findings.read(path)
        if text is not None:
            yield path, text


def _parsed(findings: Findings, path: str, text: str) -> _Indexes:
    import tomllib

    try:
        top = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # whose message may show what is in the file
        findings.report(f"{path!r} is not TOML")
        return _Indexes([], [], [])
    return _from_tables(path, [top, *_tables(top.get("pip"))])


def _from_tables(path: str, tables: list[dict[str, Any]]) -> _Indexes:
    def values(key: str) -> list[Setting]:
        return [Setting(url, f"{key} in {path}") for table in tables for url in _texts(table.get(key))]

    indexes = [index for table in tables for index in _tables(table.get("index"))]
    default = [setting for index in indexes if index.get("default") is True for setting in _index(index, path)]
    further = [setting for index in indexes if index.get("default") is not True for setting in _index(index, path)]
    return _Indexes(default + values("index-url"), further + values("extra-index-url"), values("find-links"))


def _index(index: dict[str, Any], path: str) -> list[Setting]:
    name = "".join(f"{name}=" for name in _texts(index.get("name")))
    return [Setting(name + url, f"index in {path}") for url in _texts(index.get("url"))]


def _tables(value: object) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _texts(value: object) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]
