"""A seccomp profile as container engines write it: JSON text in, rules with kernel actions out.

Understood: `defaultAction`, `defaultErrnoRet`, `architectures` or `archMap`, and for each of `syscalls`
its `names` (or `name`), `action`, `errnoRet`, `args`, `includes` and `excludes`. Conditions on
capabilities are judged for a sandbox, which has none. What is not understood is refused: a key that is
passed over may be the one that closed something.

Engines differ in what one call's rules mean together. Here rules with arguments speak first, the
strictest before the others, and the one without is for all other cases; two conditions on one argument
in one rule, which some engines read as "or", are refused. A profile never opens other architectures
than the machine's own.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from launcher.seccomp import SeccompError

# Actions are the values that a filter returns to the kernel; libseccomp uses the same numbers.
ALLOW = 0x7FFF0000
LOG = 0x7FFC0000
ERRNO = 0x00050000
_ACTIONS = {
    "SCMP_ACT_ALLOW": ALLOW,
    "SCMP_ACT_LOG": LOG,
    "SCMP_ACT_ERRNO": ERRNO,
    "SCMP_ACT_TRAP": 0x00030000,
    "SCMP_ACT_KILL": 0x00000000,
    "SCMP_ACT_KILL_THREAD": 0x00000000,
    "SCMP_ACT_KILL_PROCESS": 0x80000000,
}
_NEED_A_SUPERVISOR = ("SCMP_ACT_TRACE", "SCMP_ACT_NOTIFY")
_MAX_ERRNO = 4095
_NAME = re.compile(r"[a-z_][a-z0-9_]*")  # C would cut a name at NUL and find another
_OPERATORS = ("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ")  # libseccomp counts them from 1

_PROFILE_KEYS = {"defaultAction", "defaultErrnoRet", "defaultErrno", "architectures", "archMap", "flags", "syscalls"}
_RULE_KEYS = {"names", "name", "action", "errnoRet", "errno", "args", "comment", "includes", "excludes"}
_WHEN_KEYS = {"caps", "arches", "minKernel"}

# Per machine: its name in `architectures`, in `arches`, and what else its processors would run.
_ARCHITECTURES = {
    "x86_64": ("SCMP_ARCH_X86_64", "amd64", {"SCMP_ARCH_X86", "SCMP_ARCH_X32"}),
    "aarch64": ("SCMP_ARCH_AARCH64", "arm64", {"SCMP_ARCH_ARM"}),
}
_TO_START = {"x86_64": ("execve", "mmap", "arch_prctl", "exit_group"), "aarch64": ("execve", "mmap", "exit_group")}


class Condition(NamedTuple):
    """A comparison of one argument; for MASKED_EQ `value` is the mask and `other` what must remain."""

    argument: int
    operator: int
    value: int
    other: int


class Rule(NamedTuple):
    names: tuple[str, ...]
    action: int
    conditions: tuple[Condition, ...] = ()


class Profile(NamedTuple):
    default: int
    rules: tuple[Rule, ...]
    warnings: tuple[str, ...] = ()


def parse(text: bytes, machine: str, release: str) -> Profile:
    """The rules that hold on this machine and kernel."""
    data = _mapping(_decode(text), "profile", _PROFILE_KEYS)
    default = _action(data, "defaultAction", "defaultErrnoRet", "defaultErrno")
    entries = [_mapping(entry, "syscalls entry", _RULE_KEYS) for entry in _list(data, "syscalls")]
    rules = tuple(_rule(entry) for entry in entries if _applies(entry, machine, release))
    return Profile(default, rules, (*_about_architectures(data, machine), *_about_use(data, default, rules, machine)))


def lenience(action: int) -> int:
    """Greater means more is let through, in the kernel's own order: kill, trap, errno, log, allow."""
    return (action & 0xFFFF0000 ^ 0x80000000) - 0x80000000


def _decode(text: bytes) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise SeccompError(f"seccomp profile is not JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"an object has one key twice, among {[key for key, _ in pairs]}")
    return made


def _rule(entry: Mapping[str, object]) -> Rule:
    names = tuple(_words(entry, "names") or [str(entry.get("name"))])
    if wrong := [name for name in names if not _NAME.fullmatch(name)]:
        raise SeccompError(f"seccomp rule names {wrong[0]!r}, expected a system call such as 'mount'")
    conditions = tuple(_condition(arg) for arg in _list(entry, "args"))
    if len({condition.argument for condition in conditions}) < len(conditions):
        raise SeccompError(
            f"seccomp rule for {names[0]!r} compares one argument twice",
            "write one rule for each comparison: any of them may match",
        )
    return Rule(names, _action(entry, "action", "errnoRet", "errno"), conditions)


def _condition(arg: object) -> Condition:
    given = _mapping(arg, "args entry", {"index", "value", "valueTwo", "op"})
    operator = given.get("op")
    known = [f"SCMP_CMP_{word}" for word in _OPERATORS]
    if operator not in known:
        raise SeccompError(f"seccomp comparison {operator!r} is not one of {', '.join(known)}")
    argument = _number(given, "index", 5)
    return Condition(argument, known.index(operator) + 1, _number(given, "value"), _number(given, "valueTwo"))


def _action(data: Mapping[str, object], key: str, number: str, word: str) -> int:
    name = data.get(key)
    if name in _NEED_A_SUPERVISOR:
        raise SeccompError(f"seccomp action {name!r} needs a supervising process, and there is none", "use errno")
    if not isinstance(name, str) or name not in _ACTIONS:
        raise SeccompError(f"seccomp {key} is {name!r}, expected one of {', '.join(_ACTIONS)}")
    return ERRNO | _errno(data, number, word) if _ACTIONS[name] == ERRNO else _ACTIONS[name]


def _errno(data: Mapping[str, object], number: str, word: str) -> int:
    if data.get(number) is not None:
        return _number(data, number, _MAX_ERRNO)
    name = data.get(word) or "EPERM"
    value = getattr(errno, str(name), None)
    if not isinstance(value, int):
        raise SeccompError(f"seccomp {word} is {name!r}, expected a name such as 'EPERM'")
    return value


def _applies(entry: Mapping[str, object], machine: str, release: str) -> bool:
    """Whether a rule's `includes` and `excludes` hold here: all of the one, and none of the other."""
    includes = _mapping(entry.get("includes") or {}, "includes", _WHEN_KEYS)
    excludes = _mapping(entry.get("excludes") or {}, "excludes", _WHEN_KEYS)
    _words(excludes, "caps")  # a sandbox has none to be excluded for
    arch = _ARCHITECTURES[machine][1]
    wanted = _words(includes, "arches")
    return (
        not _words(includes, "caps")
        and (not wanted or arch in wanted)
        and arch not in _words(excludes, "arches")
        and _reached(includes.get("minKernel"), release, absent=True)
        and not _reached(excludes.get("minKernel"), release, absent=False)
    )


def _reached(wanted: object, release: str, absent: bool) -> bool:
    """Whether the kernel is at least the wanted one; `absent` is the answer where none is named."""
    if not wanted:
        return absent
    if not isinstance(wanted, str) or not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}", wanted):
        raise SeccompError(f"seccomp minKernel is {wanted!r}, expected a version such as '4.8'")
    running = re.match(r"([0-9]+)\.([0-9]+)", release)
    if running is None:
        raise SeccompError(f"kernel release {release!r} has no version to compare minKernel {wanted!r} with")
    return tuple(map(int, running.groups())) >= tuple(map(int, wanted.split(".")))


def _about_architectures(data: Mapping[str, object], machine: str) -> Iterable[str]:
    own, _, foreign = _ARCHITECTURES[machine]
    listed = set(_words(data, "architectures"))
    for given in _list(data, "archMap"):
        entry = _mapping(given, "archMap entry", {"architecture", "subArchitectures"})
        listed |= {str(entry.get("architecture")), *_words(entry, "subArchitectures")}
    if listed & foreign:
        yield f"the profile lists {', '.join(sorted(listed & foreign))}: their system calls stay denied"
    if listed and own not in listed:
        yield f"the profile does not list {own}: its rules hold for it all the same"


def _about_use(data: Mapping[str, object], default: int, rules: tuple[Rule, ...], machine: str) -> Iterable[str]:
    if _words(data, "flags"):
        yield f"the profile's flags are ignored: {', '.join(_words(data, 'flags'))}"
    passing = {name for rule in rules if lenience(rule.action) >= lenience(LOG) for name in rule.names}
    missing = [name for name in _TO_START[machine] if name not in passing]
    if missing and lenience(default) < lenience(LOG):
        yield f"the profile does not allow {', '.join(missing)}: programs will not start"


def _mapping(value: object, what: str, keys: set[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SeccompError(f"seccomp {what} is {str(value)[:64]!r}, expected an object")
    if unknown := sorted(value.keys() - keys):
        raise SeccompError(f"seccomp {what} has unknown key {unknown[0]!r}, expected {', '.join(sorted(keys))}")
    return value


def _list(data: Mapping[str, object], key: str) -> list[object]:
    value = data.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise SeccompError(f"seccomp {key} is {str(value)[:64]!r}, expected a list")
    return value


def _words(data: Mapping[str, object], key: str) -> list[str]:
    words = _list(data, key)
    if not all(isinstance(word, str) for word in words):
        raise SeccompError(f"seccomp {key} is {words!r}, expected a list of words")
    return words  # type: ignore[return-value]  # just checked


def _number(data: Mapping[str, object], key: str, most: int = 2**64 - 1) -> int:
    value = data.get(key, 0)
    if type(value) is not int or not 0 <= value <= most:
        raise SeccompError(f"seccomp {key} is {value!r}, expected a whole number from 0 to {most}")
    return value
