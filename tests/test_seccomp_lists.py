"""A persona's lists of system calls, as one more filter."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from test_seccomp import ALLOW, BOTH, ENOSYS, EPERM, TOKENS, execute, number_of

from launcher.seccomp import DEFAULT, Filter, SeccompError, load
from launcher.seccomp_lists import narrowed

ENOUGH = ("execve", "wait4", "arch_prctl", "exit_group")
LOADING = ("openat", "read", "close", "mmap", "mprotect", "pread64", "newfstatat")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def verdict(made: Filter, machine: str, name: str) -> int:
    """As the kernel does: the strictest, and of equals the one that was loaded last."""
    number = number_of(name, machine)
    answers = [execute(code, TOKENS[machine], number) for code in reversed(made.programs)]
    return min(answers, key=lambda answer: answer & 0x7FFF0000)


@BOTH
def test_what_is_denied_is_refused_with_eperm_and_nothing_else_changes(machine: str) -> None:
    chosen = load(DEFAULT, machine)
    made = narrowed(chosen, ("mkdirat", "ptrace", "cachestat"), None, machine)
    assert [verdict(made, machine, name) for name in ("mkdirat", "ptrace", "cachestat")] == [EPERM] * 3
    for name in ("read", "openat", "mount", "clone3", "io_uring_setup", "mseal"):
        assert verdict(made, machine, name) == verdict(chosen, machine, name)


@BOTH
def test_only_what_is_allowed_passes_and_only_if_the_chosen_filter_lets_it(machine: str) -> None:
    made = narrowed(load(DEFAULT, machine), (), (*ENOUGH, "mount", "cachestat"), machine)
    assert [verdict(made, machine, name) for name in ("execve", "wait4", "cachestat")] == [ALLOW] * 3
    assert [verdict(made, machine, name) for name in ("read", "mount", "mkdirat", "mseal")] == [EPERM] * 4


@BOTH
def test_calls_that_libraries_have_another_way_for_are_as_if_they_were_not_there(machine: str) -> None:
    made = narrowed(load(DEFAULT, machine), (), ENOUGH, machine)
    assert [verdict(made, machine, name) for name in ("clone3", "statx", "rseq", "faccessat2")] == [ENOSYS] * 4


def test_the_lists_are_the_last_to_be_loaded() -> None:
    chosen = load(DEFAULT, "x86_64")
    made = narrowed(chosen, ("ptrace",), (*ENOUGH, *LOADING), "x86_64")
    assert made.programs[0] == chosen.programs[0]
    assert len(made.programs) == 3
    assert made.doubts == ()


@pytest.mark.parametrize("deny", [True, False])
def test_a_name_that_nobody_knows_is_an_error(deny: bool) -> None:
    lists = (("ptraec",), None) if deny else ((), (*ENOUGH, "ptraec"))
    with pytest.raises(SeccompError, match="unknown system call 'ptraec'") as caught:
        narrowed(load(DEFAULT, "x86_64"), *lists, "x86_64")
    assert caught.value.hint == "is it misspelt?"


def test_a_call_that_only_other_machines_have_has_nothing_to_refuse() -> None:
    made = narrowed(load(DEFAULT, "x86_64"), ("umount", "mount"), None, "x86_64")
    assert verdict(made, "x86_64", "mount") == 0x50000 | errno.EPERM


@pytest.mark.parametrize(
    ("lacking", "machine"),
    [("arch_prctl", "x86_64"), ("wait4", "aarch64"), ("execve", "x86_64"), ("exit_group", "x86_64")],
)
def test_a_list_with_which_nothing_starts_is_refused_and_says_what_it_lacks(lacking: str, machine: str) -> None:
    allow = tuple(name for name in (*ENOUGH, "openat") if name != lacking)
    with pytest.raises(SeccompError, match=f"lack {lacking}, without which no program starts or ends") as caught:
        narrowed(load(DEFAULT, machine), (), allow, machine)
    assert caught.value.hint.endswith("also: read, close, mmap, mprotect, pread64, newfstatat")


def test_denying_what_is_needed_to_start_is_refused_too() -> None:
    with pytest.raises(SeccompError, match="lack execve"):
        narrowed(load(DEFAULT, "x86_64"), ("execve",), ENOUGH, "x86_64")


def test_what_programs_with_libraries_lack_is_told() -> None:
    made = narrowed(load(DEFAULT, "x86_64"), (), (*ENOUGH, *LOADING[:-2]), "x86_64")
    assert made.doubts == ("allow_calls lack pread64, newfstatat: programs that load libraries may not start",)


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(SeccompError, match="no list of system calls for machine 'riscv64'"):
        narrowed(Filter("off", ()), ("ptrace",), None, "riscv64")
