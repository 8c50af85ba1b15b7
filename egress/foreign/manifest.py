"""Wave's manifest: a persona for each of its personas, within what `runtime.sandbox` says for all.

A persona's own `allowed_domains` stand in place of the default ones, also where its list is empty. A file that has
no personas comes to one, with the defaults.
"""

from __future__ import annotations

from egress.foreign import hosts, paths, toolrules
from egress.foreign.settings import Setting, Table, each, listed, nothing, others, switch, take, under
from egress.foreign.translation import Draft, Remark, Severity, Translation, document
from egress.foreign.variables import pass_in
from egress.policytree import Node, Pairs, Word, is_null

_WARNING = Severity.WARNING
_BACKENDS = {"docker": "docker", "podman": "podman", "bubblewrap": "bwrap", "bwrap": "bwrap"}
_OWN = others("Wave")


def _backend(draft: Draft, setting: Setting) -> None:
    if setting.text in _BACKENDS:
        draft.put("sandbox.backend", _BACKENDS[setting.text], setting.source)
    elif setting.text in ("none", ""):
        draft.say(_WARNING, setting.source, f"{setting.path} is {setting.text!r}: there is a sandbox all the same")
    else:
        known = ", ".join(_BACKENDS)
        draft.say(Severity.ERROR, setting.source, f"{setting.path} is {setting.text[:80]!r}, expected one of {known}")


def _image(draft: Draft, setting: Setting) -> None:
    draft.put("sandbox.image", setting.text, setting.source)


RUNTIME: Table = {
    "runtime.sandbox.enabled": switch(false=(_WARNING, "there is a sandbox all the same")),
    "runtime.sandbox.allow_unsandboxed_commands": switch(true=(_WARNING, "no command runs outside of the sandbox")),
    "runtime.sandbox.default_allowed_domains": hosts.allow,
    "runtime.sandbox.deny_read_paths": each(paths.hide),
    "runtime.sandbox.env_passthrough": listed("env"),
    "runtime.sandbox.backend": _backend,
    "runtime.sandbox.docker_image": _image,
    "runtime.*": _OWN,
    "personas": nothing,  # one by one, below
    "*": _OWN,
}
PERSONA: Table = {
    "permissions.allowed_tools": toolrules.allow,
    "permissions.deny": toolrules.deny,
    "sandbox.allowed_domains": hosts.allow,
    "description": lambda draft, setting: draft.put("description", setting.text, setting.source),
    "*": _OWN,
}


def translate(root: Pairs, name: str) -> Translation:
    remarks: list[Remark] = []
    common = Draft("", root.source, remarks)
    take(common, root, RUNTIME)
    drafts = [_persona(key, node, common) for key, node in _personas(root)] or [_alone(name, common)]
    for draft in drafts:
        pass_in(draft, [word for word in common.lists.get("env", ()) if isinstance(word, Word)])
    return Translation("Wave", document(drafts, root.source), tuple(remarks))


def _persona(key: Word, node: Node, common: Draft) -> Draft:
    draft = Draft(key.text, key.source, common.remarks)
    if not is_null(node):
        take(draft, node, PERSONA)
    draft.inherit(common, "filesystem.hide", *(() if _lists_domains(node) else ("allow",)))
    return draft


def _alone(name: str, common: Draft) -> Draft:
    draft = Draft(name, common.source, common.remarks)
    draft.inherit(common, "filesystem.hide", "allow")
    return draft


def _personas(root: Pairs) -> list[tuple[Word, Node]]:
    node = under(root, "personas")
    return node.pairs if isinstance(node, Pairs) else []


def _lists_domains(node: Node) -> bool:
    return under(node, "sandbox", "allowed_domains") is not None
