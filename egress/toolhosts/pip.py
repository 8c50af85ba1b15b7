"""pip and uv: an index, further ones, and pages of links.

pip's settings come from, the first wins: variables; the file that PIP_CONFIG_FILE names; the user's file; the
system's. An environment's own pip.conf would stand among them and is not read: the environment is often the
project's. uv has its own variables and files and reads none of pip's, so for uv the same is done again.

Where one of them names no index it uses the public one. Which that is, and the other host that the files lie on,
pip's own source says in one line, and there is a pip with every Python: installed, or packed for new environments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from egress.toolhosts import uv
from egress.toolhosts.findings import Findings, Found, Setting
from egress.toolhosts.machine import TRUE, Machine
from egress.toolhosts.pipsource import public_index

Settings = dict[str, Setting]

_SECTIONS = ("global", "install")  # the stronger last; what other commands have to themselves is not asked for
_LISTS = ["index-url", "extra-index-url", "find-links"]
_VARIABLES = {key: f"PIP_{key.upper().replace('-', '_')}" for key in (*_LISTS, "no-index")}
_NO = Setting("no", "")


def find(machine: Machine) -> Found:
    findings = Findings(machine)
    settings = _settings(findings)
    no_index = settings.pop("no-index", _NO).value.lower() in TRUE
    wanted = ["find-links"] if no_index else _LISTS
    environment = {_VARIABLES[key]: _take(findings, settings[key]) for key in wanted if key in settings}
    if no_index:
        environment["PIP_NO_INDEX"] = "1"
    of_uv = uv.find(findings)
    _take_public(findings, needed=of_uv.wants_public or not (no_index or "index-url" in settings))
    return findings.done({name: value for name, value in {**environment, **of_uv.environment}.items() if value})


def _take(findings: Findings, setting: Setting) -> str:
    words = (Setting(word, setting.source) for word in setting.value.split())
    return " ".join(registry.url for registry in findings.listed(words))


def _settings(findings: Findings) -> Settings:
    environ = findings.machine.environ
    variables = {key: Setting(environ[name], f"${name}") for key, name in _VARIABLES.items() if environ.get(name)}
    files = (_file(findings, path) for path in _files(findings.machine))
    return _merged([*files, variables])


def _merged(layers: Iterable[Settings]) -> Settings:
    return {key: setting for layer in layers for key, setting in layer.items()}


def _files(machine: Machine) -> list[str]:
    """Configuration files, the weakest first."""
    named = machine.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    system = [os.path.join(directory, "pip/pip.conf") for directory in machine.system_config()]
    system.append(machine.system("/etc/pip.conf"))
    if named and os.path.exists(named):
        return [*system, named]
    return [*system, *machine.below_home(".pip/pip.conf"), *machine.config("pip/pip.conf")]


def _file(findings: Findings, path: str) -> Settings:
    from configparser import Error, RawConfigParser

    parser = RawConfigParser(strict=False)
    try:
        parser.read_string(findings.read(path) or "")
    except Error:  # whose message shows the line, and so what is in it
        findings.report(f"{path!r} is not a configuration that pip would read")
        return {}
    sections = (parser[name] for name in _SECTIONS if parser.has_section(name))
    pairs = ((_key(name), value) for section in sections for name, value in section.items())
    return {key: Setting(value, f"{key} in {path}") for key, value in pairs if key in _VARIABLES and value}


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _take_public(findings: Findings, needed: bool) -> None:
    """The public index with the host of its files, if it is needed or was named; a mirror has its files itself."""
    public = public_index(findings.machine)
    if public is None:
        if needed:
            findings.report("no pip was found that could tell its own index; name one, as in PIP_INDEX_URL")
        return
    if needed:
        findings.take(public.simple)
    if findings.has(public.simple.host):
        findings.take(public.files)
