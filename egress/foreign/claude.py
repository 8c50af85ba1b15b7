"""Claude Code's settings: its `sandbox` and `permissions` blocks. Everything else in them is its own affair.

Its sandbox stands around single commands, which can leave it; here walls stand around the agent as a whole, and
nothing leaves. Relative paths are those of the project, as in its project settings.
"""

from __future__ import annotations

from egress.foreign import hosts, paths, toolrules
from egress.foreign.runtime import FILESYSTEM, NETWORK, WALLS
from egress.foreign.settings import Table, each, nothing, others, switch, take, told
from egress.foreign.translation import Draft, Severity, Translation, document
from egress.policytree import Pairs

_NOTE, _WARNING = Severity.NOTE, Severity.WARNING

TABLE: Table = {
    **{f"sandbox.{path}": taker for path, taker in {**NETWORK, **FILESYSTEM, **WALLS}.items()},
    "sandbox.enabled": switch(false=(_WARNING, "there is a sandbox all the same")),
    "sandbox.failIfUnavailable": switch(false=(_NOTE, "without a sandbox nothing starts")),
    "sandbox.autoAllowBashIfSandboxed": nothing,
    "sandbox.excludedCommands": told(_WARNING, "these run inside as well, where docker and the like do not work"),
    "sandbox.allowUnsandboxedCommands": switch(true=(_WARNING, "no command runs outside of the sandbox")),
    "sandbox.enabledPlatforms": nothing,
    "permissions.allow": toolrules.allow,
    "permissions.deny": toolrules.deny,
    "permissions.ask": told(_WARNING, "who runs inside is not asked by the walls; the agent itself may ask"),
    "permissions.additionalDirectories": each(paths.write),
    "permissions.defaultMode": told(_NOTE, "it is the agent's own, and changes no wall"),
    "permissions.disableBypassPermissionsMode": nothing,
    "permissions.disableAutoMode": nothing,
    "permissions.skipDangerousModePermissionPrompt": nothing,
    "permissions.blockReadsOutsideWorkingDirectories": switch(
        true=(_NOTE, "the home directory is empty inside, and the rest of the machine can be read, without its secrets")
    ),
    "*": others("Claude Code"),
}


def translate(root: Pairs, name: str) -> Translation:
    draft = Draft(name, root.source, [])
    ordered = sorted(
        root.pairs, key=lambda pair: pair[0].text == "sandbox"
    )  # hosts of permissions, before keys for them
    take(draft, Pairs(ordered, root.source), TABLE)
    hosts.mention_agent(draft)
    return Translation("Claude Code", document([draft], root.source), tuple(draft.remarks))
