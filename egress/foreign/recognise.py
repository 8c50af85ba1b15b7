"""Whose file is this? By what is in it, never by its name.

A format is known by a setting that only it has. A file with `version:` is a policy of ours and is not asked about.
"""

from __future__ import annotations

from enum import StrEnum

from egress.foreign.settings import under
from egress.policytree import Node, Pairs


class Format(StrEnum):
    CALL_FILTER = "a seccomp profile"
    WORKER = "bwrap-config.json"
    WORKFLOW = "security.sandbox settings"
    WAVE = "wave.yaml"
    CLAUDE = "Claude Code settings"
    RUNTIME = "sandbox-runtime settings"


# The first that fits. In `personas.*` the star is any persona.
_SIGNS: tuple[tuple[Format, str], ...] = (
    (Format.CALL_FILTER, "defaultAction"),
    (Format.WORKER, "defaultConfig"),
    (Format.WORKFLOW, "security.sandbox"),
    (Format.WAVE, "runtime.sandbox personas.*.adapter personas.*.permissions personas.*.sandbox.allowed_domains"),
    (Format.CLAUDE, "sandbox.enabled sandbox.network sandbox.filesystem sandbox.excludedCommands"),
    (Format.CLAUDE, "sandbox.autoAllowBashIfSandboxed sandbox.allowUnsandboxedCommands"),
    (Format.CLAUDE, "permissions.allow permissions.deny permissions.ask permissions.defaultMode"),
    (Format.RUNTIME, "network.allowedDomains network.deniedDomains"),
    (Format.RUNTIME, "filesystem.denyRead filesystem.allowWrite filesystem.denyWrite filesystem.allowRead"),
)


def recognise(root: Node) -> Format | None:
    if not isinstance(root, Pairs) or under(root, "version") is not None:
        return None
    return next((kind for kind, signs in _SIGNS if any(_has(root, sign.split(".")) for sign in signs.split())), None)


def _has(node: Node, names: list[str]) -> bool:
    if names[1:2] == ["*"]:
        inner = under(node, names[0])
        return isinstance(inner, Pairs) and any(_has(value, names[2:]) for _, value in inner.pairs)
    return under(node, *names) is not None
