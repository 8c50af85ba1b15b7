"""A worker's `bwrap-config.json`: `defaultConfig`, and `profiles` that vary it.

`default` is the persona of the defaults, and there is one for each profile. Profiles are written out and do not
extend it, since what a parent refuses a child cannot allow again.
"""

from __future__ import annotations

from egress.foreign import paths
from egress.foreign.settings import Setting, Table, listed, switch, take, told, under, words
from egress.foreign.translation import Draft, Remark, Severity, Translation, document
from egress.policytree import Node, Pairs, Word, describe

_NOTE, _WARNING = Severity.NOTE, Severity.WARNING
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt")
_TRACING = ("ptrace", "process_vm_readv", "process_vm_writev")


def _paths(draft: Draft, setting: Setting) -> None:
    for word in words(draft, setting):
        if not any(word.text == top or word.text.startswith(f"{top}/") for top in _SYSTEM):
            paths.read(draft, word)
    message = "the rest of the system can be read as well, without its secrets and without the home directory"
    draft.say(_WARNING, setting.source, f"{setting.path}: {message}")


def _milliseconds(draft: Draft, setting: Setting) -> None:
    if not setting.text.isascii() or not setting.text.isdigit() or len(setting.text) > 12:
        came = describe(setting.value)
        draft.say(Severity.ERROR, setting.source, f"{setting.path} is a number of milliseconds, not {came}")
        return
    seconds, rest = divmod(int(setting.text), 1000)
    draft.put("sandbox.timeout", f"{seconds}.{rest:03}".rstrip("0").rstrip("."), setting.source)


def _processes(draft: Draft, setting: Setting) -> None:
    draft.put("sandbox.pids", setting.text, setting.source)
    draft.say(_NOTE, setting.source, f"{setting.path}: threads count as well")


def _allow_tracing(draft: Draft, setting: Setting) -> None:
    switch(true=(_WARNING, "the default filter refuses it; choose --seccomp debug"))(draft, setting)
    if setting.text == "true":
        calls = draft.lists.get("sandbox.deny_calls", [])
        kept = [node for node in calls if not isinstance(node, Word) or node.text not in _TRACING]
        draft.lists["sandbox.deny_calls"] = kept


DEFAULTS: Table = {
    "defaultConfig.allowNetworking": switch(
        true=(_WARNING, "that is all of the internet, and none of it is allowed; list hosts, or add --allow HOST")
    ),
    "defaultConfig.timeoutMs": _milliseconds,
    "defaultConfig.maxProcesses": _processes,
    "defaultConfig.readOnlySystemPaths": _paths,
    "defaultConfig.blockedSyscalls": listed("sandbox.deny_calls"),
    "defaultConfig.maxSandboxStartupMs": told(_NOTE, "a start takes as long as it takes; --timeout bounds the whole"),
    "profiles": lambda _draft, _setting: None,  # one by one, below
}
PROFILE: Table = {
    "strict": switch(false=(_NOTE, "walls are the same for all")),
    "allowPtrace": _allow_tracing,
}


def translate(root: Pairs, _name: str) -> Translation:
    remarks: list[Remark] = []
    common = Draft("", root.source, remarks)
    take(common, root, DEFAULTS)
    default = Word("default", (under(root, "defaultConfig") or root).source), Pairs([], root.source)
    drafts = [_profile(key, node, common) for key, node in (default, *_profiles(root))]
    return Translation("a sandboxing worker", document(drafts, root.source), tuple(remarks))


def _profile(key: Word, node: Node, common: Draft) -> Draft:
    draft = Draft(key.text, key.source, common.remarks)
    draft.inherit(common, "filesystem.read", "sandbox.deny_calls")
    take(draft, node, PROFILE)
    return draft


def _profiles(root: Pairs) -> list[tuple[Word, Node]]:
    found = under(root, "profiles")
    return found.pairs if isinstance(found, Pairs) else []
