"""The system calls of entering a sandbox, made ready beforehand.

They are made by a process that has joined the sandbox's mounts, where every path is the sandbox's. So whatever
they need is loaded with this module: functions of the C library, structures, filters. Afterwards nothing is
looked up, and an error is a number.

One call joins everything: setns(2) with the pidfd of the sandbox's first process. The kernel checks all of it
with the rights that we came with, as the owner of the outermost of the sandbox's user namespaces, and then
puts us into the innermost, where its programs are. It is all or nothing, and no number can come to mean
another process. It takes Linux 5.8.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_setns, _capset, _process_control = _libc.setns, _libc.capset, _libc.prctl  # looked up now, not at their first use

_USER, _MOUNTS, _PIDS, _NETWORK = 0x10000000, 0x00020000, 0x20000000, 0x40000000
_IPC, _NAMES, _CGROUPS = 0x08000000, 0x04000000, 0x02000000
_ALL = _USER | _MOUNTS | _PIDS | _NETWORK | _IPC | _NAMES | _CGROUPS

_DUMPABLE, _SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES, _AMBIENT = 4, 22, 24, 38, 47  # prctl(2)
_FILTER, _CLEAR_ALL = 2, 4
_CAPABILITIES_V3 = 0x20080522
_INSTRUCTION = 8


class _Program(ctypes.Structure):  # struct sock_fprog
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


Filters = tuple[_Program, ...]


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


_this = _Header(_CAPABILITIES_V3, 0)
_none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 of them


def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        return int(file.read())


_capabilities = range(_last_capability() + 1)


def filters(programs: Iterable[bytes]) -> Filters:
    return tuple(_Program(len(code) // _INSTRUCTION, code) for code in programs)


def be_closed() -> None:
    """Nobody without power over the host sees memory, descriptors or program of this process, nor of its forks,
    up to their exec: not a debugger, not /proc."""
    _prctl(_DUMPABLE, 0)


def join(process: int) -> None:
    """All namespaces of the process that this pidfd is for; that of processes counts for those forked from now on."""
    _check(_setns(process, _ALL))


def drop_capabilities() -> None:
    _prctl(_AMBIENT, _CLEAR_ALL)
    for capability in _capabilities:
        _prctl(_DROP_BOUND, capability)
    _check(_capset(ctypes.byref(_this), ctypes.byref(_none)))


def gain_nothing() -> None:
    """No setuid program makes more of this process, or of what it becomes."""
    _prctl(_NO_NEW_PRIVILEGES, 1)


def install(programs: Filters) -> None:
    """From now on they hold, in addition to each other."""
    for program in programs:
        _check(_process_control(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0))


def _prctl(option: int, value: int) -> None:
    _check(_process_control(option, ctypes.c_ulong(value), 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
