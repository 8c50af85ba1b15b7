"""npm: one registry, and one more for every scope that has its own.

Settings come from, the first wins: variables `npm_config_*` in any case; the user's npmrc; the global one below
npm's prefix; the one beside npm itself. A project's npmrc would stand after the variables, and is never read.
Where none names a registry, npm is asked for its default, once per installation of npm.
"""

from __future__ import annotations

import os
import re

from egress.toolhosts.answers import remembered, run
from egress.toolhosts.findings import Findings, Found, Setting
from egress.toolhosts.machine import Machine

Settings = dict[str, Setting]

_PREFIX = "npm_config_"
_REGISTRY = re.compile(r"(?:@[^/:\s]+:)?registry")
_KEY = re.compile(rf"{_REGISTRY.pattern}|prefix|userconfig|globalconfig")
_VARIABLE = re.compile(r"\$\{([^${}?]+)(\??)\}")
_COMMENT = re.compile(r"[;#]")
# Nothing of the user's, and nothing written: these cannot be files or directories.
_BARE = {
    "HOME": "/dev/null",
    "npm_config_userconfig": "/dev/null/user",
    "npm_config_globalconfig": "/dev/null/global",
    "npm_config_cache": "/dev/null/cache",
    "npm_config_logs_max": "0",
    "npm_config_update_notifier": "false",
}


def find(machine: Machine) -> Found:
    findings = Findings(machine)
    npm = machine.program("npm")
    settings = _settings(findings, npm)
    environment = {}
    for key, setting in settings.items():
        if _REGISTRY.fullmatch(key) and (registry := findings.named(setting)):
            environment[f"{_PREFIX}{key}"] = registry.url
    if "registry" not in settings:
        _take_default(findings, npm)
    return findings.done(environment)


def _settings(findings: Findings, npm: str | None) -> Settings:
    """All layers over each other, the weakest first."""
    variables = _variables(findings.machine)
    user = _user_file(findings, variables)
    builtin = _file(findings, os.path.join(_home_of(npm), "npmrc")) if npm else {}
    merged = {**builtin, **user, **variables}
    return {**builtin, **_global_file(findings, merged), **user, **variables}


def _variables(machine: Machine) -> Settings:
    named = ((name[len(_PREFIX) :], name, value) for name, value in machine.environ.items() if value)
    return {
        key.lower(): Setting(value, f"${name}")
        for key, name, value in named
        if name.lower().startswith(_PREFIX) and _KEY.fullmatch(key.lower())
    }


def _user_file(findings: Findings, variables: Settings) -> Settings:
    if named := variables.get("userconfig"):
        return _file(findings, _path(findings.machine, named))
    home = findings.machine.below_home(".npmrc")
    return _file(findings, home[0]) if home else {}


def _global_file(findings: Findings, settings: Settings) -> Settings:
    if named := settings.get("globalconfig"):
        return _file(findings, _path(findings.machine, named))
    prefix = _global_prefix(findings.machine, settings)
    return _file(findings, os.path.join(prefix, "etc/npmrc")) if prefix else {}


def _global_prefix(machine: Machine, settings: Settings) -> str | None:
    if prefix := settings.get("prefix"):
        return _path(machine, prefix)
    if named := machine.environ.get("PREFIX"):
        return named
    node = machine.program("node")
    return os.path.dirname(os.path.dirname(os.path.realpath(node))) if node else None


def _path(machine: Machine, setting: Setting) -> str:
    inside, tilde, rest = setting.value.partition("~/")
    return os.path.join(machine.home or "", rest) if tilde and not inside else setting.value


def _file(findings: Findings, path: str) -> Settings:
    text = findings.read(path) or ""
    environ = findings.machine.environ

    def value(match: re.Match[str]) -> str:
        return environ.get(match[1], "" if match[2] else match[0])

    pairs = _pairs(text)
    return {key: Setting(_VARIABLE.sub(value, raw), f"{path}:{line}") for key, (raw, line) in pairs.items()}


def _pairs(text: str) -> dict[str, tuple[str, int]]:
    """The lines `key = value` before the first section; npm has no settings in sections."""
    pairs = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            break
        key, equals, value = line.partition("=")
        if equals and _KEY.fullmatch(_unquoted(key)):  # tokens and passwords are not even kept
            pairs[_unquoted(key)] = _unquoted(value), number
    return pairs


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return _COMMENT.split(text, maxsplit=1)[0].strip()


def _home_of(npm: str) -> str:
    """Where npm is installed: its program is a link to bin/npm-cli.js there."""
    return os.path.dirname(os.path.dirname(os.path.realpath(npm)))


def _take_default(findings: Findings, npm: str | None) -> None:
    if npm is None:
        findings.report("npm is neither installed nor configured here: no registry is known")
        return
    findings.watch(npm)
    answer = remembered(findings.machine, npm, lambda: _ask(findings.machine, npm))
    if answer is None:
        findings.report(f"{npm!r} did not tell its registry: `npm config get registry` failed")
    else:
        findings.named(Setting(answer, "npm's own default"), configured=False)


def _ask(machine: Machine, npm: str) -> str | None:
    return run((npm, "config", "get", "registry"), {**_BARE, "PATH": ":".join(machine.search_path())})
