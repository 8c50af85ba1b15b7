"""A persona's `deny_calls` and `allow_calls`: one more filter, on top of the one that was chosen.

The kernel asks every filter that was loaded and takes the strictest answer, so lists can only narrow. They come
last: bwrap loads filters one by one with prctl, and a list that does not allow prctl would end that.

    deny_calls    EPERM
    allow_calls   all others EPERM; ENOSYS where libraries then try an older call, as clone for clone3

Of two filters that both refuse, the later one's errno counts, which is why those calls are named here too.

What a program needs before its own first line was tried, call by call. Without `execve` nothing is started, without
`wait4` the sandbox's first process ends at once, without `arch_prctl` no C library gets its thread pointer on x86-64,
and without `exit_group` or `exit` nothing ever ends. Who loads libraries needs more. A list that lacks the former is
refused, rather than a sandbox made in which everything ends with a segmentation fault, or not at all.
"""

from __future__ import annotations

import json
import os

from egress.record import TYPE_CHECKING
from launcher import seccomp_cache
from launcher.seccomp import Filter, SeccompError
from launcher.seccomp_bpf import MACHINES, RECENT, compile_profile
from launcher.seccomp_profile import parse

if TYPE_CHECKING:
    from typing import Any

_TO_START = {"x86_64": ("execve", "wait4", "arch_prctl"), "aarch64": ("execve", "wait4")}
_TO_LOAD = ("openat", "read", "close", "mmap", "mprotect", "pread64", "newfstatat")
_HAVE_ANOTHER_WAY = (
    *("clone3", "rseq", "statx", "faccessat2", "openat2", "close_range", "epoll_pwait2", "futex_waitv", "fchmodat2"),
    *("io_uring_setup", "userfaultfd", "memfd_secret", "pidfd_open", "cachestat"),
)
_ENOSYS = 38
_ALLOW, _REFUSE = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"


def narrowed(chosen: Filter, deny: tuple[str, ...], allow: tuple[str, ...] | None, machine: str) -> Filter:
    """The chosen filter, and the lists on it."""
    if machine not in MACHINES:
        known = " and ".join(MACHINES)
        raise SeccompError(f"no list of system calls for machine {machine!r}, only for {known}", "leave the lists out")
    programs = [*chosen.programs]
    if deny:
        programs.append(_program(_denylist(deny), (*deny,), machine))
    if allow is not None:
        _check_start(allow, deny, machine)
        programs.append(_program(_allowlist(allow), (*allow,), machine))
    return Filter(chosen.choice, tuple(programs), chosen.warnings, _doubts(allow))


def _denylist(names: tuple[str, ...]) -> dict[str, Any]:
    return {"defaultAction": _ALLOW, "syscalls": [{"names": [*names], "action": _REFUSE}]}


def _allowlist(names: tuple[str, ...]) -> dict[str, Any]:
    absent = [name for name in _HAVE_ANOTHER_WAY if name not in names]
    rules = [
        {"names": [*names], "action": _ALLOW},
        {"names": absent, "action": _REFUSE, "errnoRet": _ENOSYS},
    ]
    return {"defaultAction": _REFUSE, "syscalls": rules}


def _program(profile: dict[str, Any], names: tuple[str, ...], machine: str) -> bytes:
    text, release = json.dumps(profile).encode(), os.uname().release
    key = seccomp_cache.key(text, machine, release)
    code = seccomp_cache.lookup(key)
    if code is None:
        _check_names(names, machine)
        code = compile_profile(parse(text, machine, release), machine)
        seccomp_cache.store(key, code)
    return code


def _check_names(names: tuple[str, ...], machine: str) -> None:
    """A name that nobody knows is a slip. One that only other machines have, such as umount, has nothing to refuse."""
    from launcher.libseccomp import Library

    library = Library(MACHINES[machine].token)
    for name in names:
        if name not in RECENT and library.number(name) == library.UNKNOWN:
            raise SeccompError(f"the persona's list names an unknown system call {name!r}", "is it misspelt?")


def _check_start(allow: tuple[str, ...], deny: tuple[str, ...], machine: str) -> None:
    needed = [*_TO_START[machine], *(["exit_group"] if "exit" not in allow else [])]
    missing = [name for name in needed if name not in allow or name in deny]
    if missing:
        raise SeccompError(
            f"the persona's allow_calls lack {', '.join(missing)}, without which no program starts or ends",
            f"add them, and for programs that load libraries also: {', '.join(_unloadable(allow)) or 'nothing'}",
        )


def _unloadable(allow: tuple[str, ...]) -> list[str]:
    return [name for name in _TO_LOAD if name not in allow]


def _doubts(allow: tuple[str, ...] | None) -> tuple[str, ...]:
    missing = [] if allow is None else _unloadable(allow)
    return (f"allow_calls lack {', '.join(missing)}: programs that load libraries may not start",) if missing else ()
