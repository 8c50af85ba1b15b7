"""Our system call filter in the words of container engines, which mean something else by the same JSON. Pure.

In our profiles a rule with arguments speaks before one without. To an engine the one without swallows it, and
rules that say what the default says are dropped: a profile that allows by default cannot say "this call, but only
so". So it is turned round. What is not named is refused as unknown, which libraries know how to live with;
all calls that the library knows are named; those with conditions are allowed under them and refused otherwise.

A call that is refused under a condition, as ioctl is for three of its commands, is allowed under all others. There
is no "not" for a masked comparison, but what differs from a number differs in a first bit: for each bit, allow
what agrees above it and differs in it. For more than one number the same is asked of what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from launcher.seccomp import SeccompError
from launcher.seccomp_profile import ALLOW, ERRNO, Condition, Profile, Rule

_MASKED_EQUAL = 7  # as libseccomp counts
_OPERATORS = ("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ")
_NOT_PERMITTED, _NO_SUCH_CALL = 1, 38
_WORD = 0xFFFFFFFF
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # words put into a terminal's input: refused under every profile


class Cube(NamedTuple):
    """All numbers that have these bits where the mask has ones."""

    mask: int
    value: int


def engine_profile(profile: Profile, known: Iterable[str]) -> dict[str, Any]:
    """For a profile that allows by default."""
    if profile.default != ALLOW:
        raise SeccompError("only a profile that allows by default is turned round for container engines")
    by_name: dict[str, list[Rule]] = {name: [] for name in known}
    for rule in profile.rules:
        for name in rule.names:
            by_name.setdefault(name, []).append(rule)
    rules = [*_free(by_name), *(rule for name, mine in by_name.items() for rule in _bound(name, mine))]
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": _NO_SUCH_CALL, "syscalls": rules}


def narrowed(profile: dict[str, Any], deny: Sequence[str], allow: Sequence[str] | None) -> dict[str, Any]:
    """The profile with a persona's lists on it. An engine takes one filter, so what they forbid is taken out."""

    def is_left(name: str) -> bool:
        return name not in deny and (allow is None or name in allow)

    left = [{**rule, "names": [*filter(is_left, rule["names"])]} for rule in profile["syscalls"]]
    refused = [_refusal(name, _NOT_PERMITTED) for name in deny]
    return {**profile, "syscalls": [*(rule for rule in left if rule["names"]), *refused]}


def _free(by_name: dict[str, list[Rule]]) -> Iterator[dict[str, object]]:
    yield {
        "names": sorted(name for name, rules in by_name.items() if not rules and name != "ioctl"),
        "action": "SCMP_ACT_ALLOW",
    }


def _bound(name: str, rules: Sequence[Rule]) -> Iterator[dict[str, object]]:
    allowed = [rule.conditions for rule in rules if rule.action == ALLOW and rule.conditions]
    flatly = [rule for rule in rules if not rule.conditions]
    if name == "ioctl":
        yield from (_rule(name, (condition,)) for condition in _other_commands(rules))
    elif allowed and flatly:
        yield from (_rule(name, conditions) for conditions in allowed)
    elif flatly and not allowed:
        yield _refusal(name, flatly[0].action & 0xFFFF)
    elif rules:
        raise SeccompError(f"the rules for {name!r} cannot be said to a container engine")


def _rule(name: str, conditions: Iterable[Condition]) -> dict[str, object]:
    args = [
        {
            "index": each.argument,
            "value": each.value,
            "valueTwo": each.other,
            "op": f"SCMP_CMP_{_OPERATORS[each.operator - 1]}",
        }
        for each in conditions
    ]
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": args}


def _refusal(name: str, number: int) -> dict[str, object]:
    return {"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": number}


def _other_commands(rules: Sequence[Rule]) -> Iterator[Condition]:
    """Of ioctl; the kernel looks at 32 bits of the command, so we do."""
    refused = [condition.other for rule in rules if rule.action & 0xFFFF0000 == ERRNO for condition in rule.conditions]
    for mask, value in others({_TIOCSTI, _TIOCLINUX, *refused}):
        yield Condition(1, _MASKED_EQUAL, mask, value)


def others(numbers: Iterable[int]) -> list[Cube]:
    """All 32-bit numbers but these, as cubes that do not meet."""
    left = [Cube(0, 0)]
    for number in sorted(numbers):
        left = [piece for cube in left for piece in _without(cube, number)]
    return left


def _without(cube: Cube, number: int) -> Iterator[Cube]:
    if number & cube.mask != cube.value:
        yield cube
        return
    above = cube.mask
    for bit in (1 << place for place in reversed(range(32))):
        if not cube.mask & bit:
            yield Cube(above | bit, (number & above) | (~number & bit & _WORD))
            above |= bit
