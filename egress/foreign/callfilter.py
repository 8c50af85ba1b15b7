"""A seccomp profile of container engines, as a persona's `deny_calls` or `allow_calls`.

A list of names is all that a persona has. Rules that look at arguments, machines or kernels would come to mean
something else, so a profile with such rules is refused here; `--seccomp FILE` knows all of it, and replaces the
default filter where a persona's lists stand on top of it.
"""

from __future__ import annotations

from egress.foreign.settings import Setting, Table, nothing, take, told, words
from egress.foreign.translation import Draft, Severity, Translation, document
from egress.policytree import Items, Node, Pairs, Word, describe

_OPEN = ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG")
_CLOSED = ("SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_TRAP")
_CONDITIONS = ("args", "includes", "excludes")


def _default(draft: Draft, setting: Setting) -> None:
    if setting.text not in (*_OPEN, *_CLOSED):
        known = ", ".join((*_OPEN, *_CLOSED))
        draft.say(Severity.ERROR, setting.source, f"defaultAction is {setting.text[:80]!r}, expected one of {known}")


def _rules(draft: Draft, setting: Setting) -> None:
    for rule in setting.value.items if isinstance(setting.value, Items) else ():
        _rule(draft, rule)


def _rule(draft: Draft, rule: Node) -> None:
    if not isinstance(rule, Pairs):
        draft.say(Severity.ERROR, rule.source, f"an entry of syscalls is an object, not {describe(rule)}")
        return
    fields = {key.text: Setting(key.text, key.source, value) for key, value in rule.pairs}
    for name in _CONDITIONS:
        if name in fields and _has_something(fields[name].value):
            message = f"{name!r} cannot be carried over: give the file itself, --seccomp {rule.source.file}"
            draft.say(Severity.ERROR, fields[name].source, message)
    action = fields.get("action")
    opens = action is not None and action.text in _OPEN
    if action is None or action.text not in (*_OPEN, *_CLOSED):
        draft.say(
            Severity.ERROR,
            rule.source,
            f"the action is {action and action.text!r}, expected SCMP_ACT_ALLOW or SCMP_ACT_ERRNO",
        )
    for word in _names(draft, fields):
        draft.add("opened" if opens else "closed", word)


def _names(draft: Draft, fields: dict[str, Setting]) -> list[Word]:
    if "names" in fields:
        return words(draft, fields["names"])
    return [fields["name"].value] if "name" in fields and isinstance(fields["name"].value, Word) else []


def _has_something(node: Node) -> bool:
    return bool(node.items if isinstance(node, Items) else node.pairs if isinstance(node, Pairs) else False)


TABLE: Table = {
    "defaultAction": _default,
    "defaultErrnoRet": told(Severity.NOTE, "what is not allowed fails with EPERM"),
    "defaultErrno": told(Severity.NOTE, "what is not allowed fails with EPERM"),
    "architectures": nothing,
    "archMap": told(Severity.NOTE, "system calls of other architectures than the machine's own stay refused"),
    "flags": told(Severity.NOTE, "flags of the filter are not used"),
    "syscalls": _rules,
    "listenerPath": told(Severity.ERROR, "nobody listens to a filter here"),
}


def translate(root: Pairs, name: str) -> Translation:
    draft = Draft(name, root.source, [])
    take(draft, root, TABLE)
    _decide(draft, root)
    message = "a filter says nothing of hosts, so none is allowed; list them, or add --allow HOST"
    draft.say(Severity.WARNING, root.source, message)
    return Translation("a container engine", document([draft], root.source), tuple(draft.remarks))


def _decide(draft: Draft, root: Pairs) -> None:
    default = next(
        (value.text for key, value in root.pairs if key.text == "defaultAction" and isinstance(value, Word)), ""
    )
    closed = draft.texts("closed")
    if default in _OPEN:
        for node in draft.lists.get("closed", ()):
            draft.add("sandbox.deny_calls", node)
        return
    kept = [node for node in draft.lists.get("opened", ()) if isinstance(node, Word) and node.text not in closed]
    for node in kept:
        draft.add("sandbox.allow_calls", node)
    if not kept:
        draft.say(Severity.ERROR, root.source, "the profile allows no system call, so that nothing could run")
