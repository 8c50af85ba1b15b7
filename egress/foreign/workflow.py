"""A workflow engine's settings: `security.sandbox`, with a block each for its two kinds of steps.

They name no hosts, so the personas `claude_code` and `shell` reach none. `network_isolation: false` is all of the
internet, and is not carried.
"""

from __future__ import annotations

from egress.foreign import hosts
from egress.foreign.settings import Setting, Table, nothing, others, switch, take, told, under
from egress.foreign.translation import Draft, Remark, Severity, Translation, document
from egress.policytree import Node, Pairs
from egress.surroundings import FALLBACKS

_NOTE, _WARNING = Severity.NOTE, Severity.WARNING
_SWITCHED_OFF = switch(false=(_WARNING, "there is a sandbox all the same"))
_STEPS = ("claude_code", "shell")
_OWN = others("the workflow engine")


def _fallback(draft: Draft, setting: Setting) -> None:
    if setting.text in FALLBACKS:
        draft.put("sandbox.fallback", setting.text, setting.source)
    else:
        known = " or ".join(FALLBACKS)
        draft.say(Severity.ERROR, setting.source, f"{setting.path} is {setting.text[:80]!r}, expected {known}")


TABLE: Table = {
    "security.sandbox.enabled": _SWITCHED_OFF,
    "security.sandbox.claude_code": nothing,  # one by one, below
    "security.sandbox.shell": nothing,
    "security.*": _OWN,
    "*": _OWN,
}
STEP: Table = {
    "enabled": _SWITCHED_OFF,
    "permission_mode": told(_NOTE, "it is the agent's own, and changes no wall"),
    "auto_allow_bash_if_sandboxed": nothing,
    "fallback_behavior": _fallback,
    "network_isolation": switch(
        false=(_WARNING, "that is all of the internet, and none of it is allowed; list hosts, or add --allow HOST")
    ),
}


def translate(root: Pairs, _name: str) -> Translation:
    remarks: list[Remark] = []
    take(Draft("", root.source, remarks), root, TABLE)
    sandbox = under(root, "security", "sandbox")
    drafts = [_step(name, under(sandbox, name) or Pairs([], root.source), remarks) for name in _STEPS]
    hosts.mention_agent(drafts[0])
    return Translation("the workflow engine", document(drafts, root.source), tuple(remarks))


def _step(name: str, node: Node, remarks: list[Remark]) -> Draft:
    draft = Draft(name, node.source, remarks)
    take(draft, node, STEP)
    return draft
