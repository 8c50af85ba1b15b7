"""Our filter in the words of container engines: the same calls pass, and the same do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import seccomp
from launcher.backends.ociseccomp import Cube, engine_profile, narrowed, others
from launcher.seccomp import SeccompError
from launcher.seccomp_profile import ALLOW, ERRNO, Condition, Profile, Rule, parse

KNOWN = ("read", "write", "clone", "clone3", "socket", "socketpair", "ioctl", "mount", "personality", "execve")
NEW_USER, PLAIN_CLONE = 0x10000000, 0x11  # SIGCHLD alone
AF_INET, AF_PACKET = 2, 17


def verdict(profile: dict[str, Any], name: str, *args: int) -> bool:
    """As libseccomp reads such rules: any that matches, and else the default."""
    for rule in profile["syscalls"]:
        if name in rule["names"] and all(_holds(arg, args) for arg in rule.get("args", [])):
            return bool(rule["action"] == "SCMP_ACT_ALLOW")
    return False


def _holds(arg: dict[str, Any], args: tuple[int, ...]) -> bool:
    assert arg["op"] == "SCMP_CMP_MASKED_EQ"
    return args[arg["index"]] & arg["value"] == arg["valueTwo"]


@pytest.fixture(scope="module", params=[seccomp.DEFAULT, seccomp.DEBUG])
def profile(request: pytest.FixtureRequest) -> dict[str, Any]:
    return engine_profile(parse(seccomp.profile_text(request.param), "x86_64", "6.1"), KNOWN)


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        (("read",), True),
        (("execve",), True),
        (("mount",), False),
        (("clone3",), False),
        (("clone", PLAIN_CLONE), True),
        (("clone", PLAIN_CLONE | NEW_USER), False),
        (("socket", AF_INET, 1, 0), True),
        (("socket", AF_INET, 3, 1), False),
        (("socket", AF_PACKET, 3, 0), False),
        (("socketpair", 1, 1, 0), True),
        (("personality", 0), True),
        (("personality", 0x0400000), False),
        (("ioctl", 0, 0x5401), True),
        (("ioctl", 0, 0x5412), False),
        (("ioctl", 0, 0x541C), False),
        (("ioctl", 0, 0x1_0000_5412), False),
        (("a_call_of_tomorrow",), False),
    ],
    ids=str,
)
def test_calls_pass_as_they_do_in_any_sandbox(profile: dict[str, Any], call: tuple[Any, ...], passes: bool) -> None:
    assert verdict(profile, *call) == passes


def test_what_is_not_known_is_said_not_to_exist(profile: dict[str, Any]) -> None:
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)


def test_a_refusal_keeps_its_error(profile: dict[str, Any]) -> None:
    errors = {rule["names"][0]: rule["errnoRet"] for rule in profile["syscalls"] if "errnoRet" in rule}
    assert (errors["mount"], errors["clone3"]) == (1, 38)


@given(st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_all_numbers_but_these(numbers: set[int], probe: int) -> None:
    cubes = others(numbers)
    for number in (probe, *numbers, *(each ^ 1 for each in numbers)):
        matching = [cube for cube in cubes if number & cube.mask == cube.value]
        assert len(matching) == (number not in numbers)


def test_no_number_to_leave_out_is_one_cube() -> None:
    assert others(()) == [Cube(0, 0)]


def test_a_profile_that_refuses_by_default_is_not_ours_to_turn_round() -> None:
    with pytest.raises(SeccompError, match="allows by default"):
        engine_profile(Profile(ERRNO | 1, ()), KNOWN)


def test_rules_that_have_no_words_are_refused() -> None:
    odd = Rule(("read",), ERRNO | 1, (Condition(0, 7, 1, 1),))
    with pytest.raises(SeccompError, match="the rules for 'read' cannot be said"):
        engine_profile(Profile(ALLOW, (odd,)), KNOWN)


def test_the_library_knows_the_calls_of_this_machine() -> None:
    import os

    from launcher.libseccomp import Library
    from launcher.seccomp_bpf import MACHINES

    names = Library(MACHINES[os.uname().machine].token).names()
    assert {"read", "execve", "openat"} <= set(names)


def names(profile: dict[str, Any], action: str) -> set[str]:
    return {name for rule in profile["syscalls"] if rule["action"] == action for name in rule["names"]}


def test_what_a_persona_denies_is_allowed_by_no_rule_and_refused() -> None:
    base = engine_profile(parse(seccomp.profile_text("default"), "x86_64", "6.1"), KNOWN)
    assert "socket" in names(base, "SCMP_ACT_ALLOW")
    made = narrowed(base, ("socket", "ioctl"), None)
    assert names(made, "SCMP_ACT_ALLOW") == names(base, "SCMP_ACT_ALLOW") - {"socket", "ioctl"}
    assert {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1} in made["syscalls"]


def test_of_what_a_persona_allows_only_what_the_profile_allows_is_left() -> None:
    base = engine_profile(parse(seccomp.profile_text("default"), "x86_64", "6.1"), KNOWN)
    made = narrowed(base, ("write",), ("read", "write", "mount", "ioctl"))
    assert names(made, "SCMP_ACT_ALLOW") == {"read", "ioctl"}
    assert all("args" in rule for rule in made["syscalls"] if rule["names"] == ["ioctl"])


def test_without_lists_a_profile_is_as_it_was() -> None:
    base = engine_profile(parse(seccomp.profile_text("default"), "x86_64", "6.1"), KNOWN)
    assert narrowed(base, (), None) == base
