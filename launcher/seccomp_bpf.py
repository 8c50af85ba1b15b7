"""A profile compiled to one cBPF program, by libseccomp and by hand.

libseccomp turns rules into code, but for three things it has no words. Jumps in cBPF are relative and
only go forward, so programs can be put one after another, where each returns a verdict or falls through
to the next.

    fence     what no profile may open. Another architecture (int 0x80 and 32-bit programs on x86-64) and
              any number that was not assigned when this was written: tomorrow's mount call must not come
              for free. The x32 bit makes a number far greater than the greatest. And the ioctls that put
              words into the terminal's input. The kernel takes an ioctl's command as 32 bits, so only
              those are compared: a check of the whole register is passed by setting a higher bit.
    recent    calls from 440 on, by number: these are the same on every machine, and libseccomp's releases
              differ in which they know.
    cases     rules with arguments, one program per action, the strictest first. Given to libseccomp together
              with a rule without arguments for the same call, they would be swallowed by it. Its programs
              end with a verdict on all other calls; here these verdicts become jumps to the next program.
    the rest  rules without arguments and the default, as libseccomp makes them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from launcher.libseccomp import Call, Library
from launcher.seccomp import INSTRUCTION, MAX_PROGRAM, SeccompError
from launcher.seccomp_profile import ERRNO, Profile, lenience

_EPERM, _ENOSYS = 1, 38
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_FIRST_RECENT = 440
_RECENT = (
    *("process_madvise", "epoll_pwait2", "mount_setattr", "quotactl_fd", "landlock_create_ruleset"),
    *("landlock_add_rule", "landlock_restrict_self", "memfd_secret", "process_mrelease", "futex_waitv"),
    *("set_mempolicy_home_node", "cachestat", "fchmodat2", "map_shadow_stack", "futex_wake", "futex_wait"),
    *("futex_requeue", "statmount", "listmount", "lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules"),
    *("mseal", "setxattrat", "getxattrat", "listxattrat", "removexattrat", "open_tree_attr", "file_getattr"),
    *("file_setattr", "listns", "rseq_slice_yield"),
)
RECENT = {name: _FIRST_RECENT + place for place, name in enumerate(_RECENT)}
_NEWEST = max(RECENT.values())
_FIRST_COMMON = 424  # from here on all machines count alike; below, each has its own last number


class Machine(NamedTuple):
    token: int  # AUDIT_ARCH_*, which is also libseccomp's name for it
    last_own: int
    ioctl: int


MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(0xC000003E, last_own=336, ioctl=16),
    "aarch64": Machine(0xC00000B7, last_own=294, ioctl=29),
}


def compile_profile(profile: Profile, machine: str) -> bytes:
    target = MACHINES[machine]
    library = Library(target.token)
    calls = list(_calls(profile, library))
    older = [call for call in calls if call.name not in RECENT]
    plain = [Call(name, action) for name, action in _without_conditions(older).items()]
    code = _fence(target) + _recent(profile.default, calls)
    for action in sorted({call.action for call in older if call.conditions}, key=_strictest_first):
        cases = [call for call in older if call.conditions and call.action == action]
        code += _or_else_on(library.compile(_NO_VERDICT, cases))
    code += library.compile(profile.default, plain)
    if len(code) > MAX_PROGRAM:
        raise SeccompError(f"seccomp profile needs {len(code) // INSTRUCTION} instructions, the kernel takes 4096")
    return code


def _calls(profile: Profile, library: Library) -> Iterable[Call]:
    """Rules call by call. A name that nobody knows is passed over only where the rule was to open it."""
    for rule in profile.rules:
        for name in rule.names:
            number = RECENT.get(name) or library.number(name)
            if number == library.UNKNOWN and lenience(rule.action) < lenience(profile.default):
                raise SeccompError(f"seccomp profile denies an unknown system call {name!r}", "is it misspelt?")
            if number >= 0:
                yield Call(name, rule.action, rule.conditions)


def _strictest_first(action: int) -> tuple[int, int]:
    return lenience(action), action


def _without_conditions(calls: Iterable[Call]) -> dict[str, int]:
    """The action of each call's rule without conditions; two that disagree are nobody's intention."""
    plain: dict[str, int] = {}
    for call in calls:
        if not call.conditions and plain.setdefault(call.name, call.action) != call.action:
            raise SeccompError(f"seccomp profile has two actions for {call.name!r}", "leave one of the rules")
    return plain


# The assembler: struct sock_filter { code, jump if true, jump if false, k }, loading from seccomp_data.
_NR, _ARCH, _SECOND_ARGUMENT = 0, 4, 24  # on little-endian machines the low half stands first
_LD, _JA, _RET, _JEQ, _JGT, _JGE = 0x20, 0x05, 0x06, 0x15, 0x25, 0x35
_INSTRUCTION = struct.Struct("<HBBI")
_NO_VERDICT = 0x7FF0FFFF  # SECCOMP_RET_TRACE, which no profile may ask for


def _if(test: int, value: int, then: int, otherwise: int) -> bytes:
    return _INSTRUCTION.pack(test, then, otherwise, value)


def _load(offset: int) -> bytes:
    return _INSTRUCTION.pack(_LD, 0, 0, offset)


def _skip(count: int) -> bytes:
    return _INSTRUCTION.pack(_JA, 0, 0, count)


def _return(action: int) -> bytes:
    return _INSTRUCTION.pack(_RET, 0, 0, action)


def _fence(machine: Machine) -> bytes:
    return b"".join(
        (
            _load(_ARCH),
            _if(_JEQ, machine.token, 1, 0),
            _return(ERRNO | _ENOSYS),
            _load(_NR),
            _if(_JGT, _NEWEST, 2, 0),
            _if(_JGE, _FIRST_COMMON, 2, 0),
            _if(_JGT, machine.last_own, 0, 1),
            _return(ERRNO | _ENOSYS),
            _if(_JEQ, machine.ioctl, 0, 4),
            _load(_SECOND_ARGUMENT),
            _if(_JEQ, _TIOCSTI, 1, 0),
            _if(_JEQ, _TIOCLINUX, 0, 1),
            _return(ERRNO | _EPERM),
        )
    )


def _recent(default: int, calls: Iterable[Call]) -> bytes:
    recent = [call for call in calls if call.name in RECENT]
    if compared := [call.name for call in recent if call.conditions]:
        raise SeccompError(f"seccomp cannot compare the arguments of {compared[0]!r}", "write the rule without args")
    actions = sorted((RECENT[name], action) for name, action in _without_conditions(recent).items())
    answers = b"".join(_if(_JEQ, number, 0, 1) + _return(action) for number, action in actions) + _return(default)
    return _load(_NR) + _if(_JGE, _FIRST_RECENT, 0, len(answers) // INSTRUCTION) + answers


def _or_else_on(code: bytes) -> bytes:
    """The program with its default taken out: what it has no verdict on goes on behind it."""
    end = len(code) - INSTRUCTION
    open_ended = _return(_NO_VERDICT)
    places = range(0, len(code), INSTRUCTION)
    pieces = ((place, code[place : place + INSTRUCTION]) for place in places)
    return b"".join(_skip((end - place) // INSTRUCTION) if piece == open_ended else piece for place, piece in pieces)
