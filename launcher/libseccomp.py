"""libseccomp, through its C interface: there are no bindings to install.

It is loaded only where a profile is compiled. Rules are given with the numbers of the machine that we
run on, and it translates them by name: so filters for another machine can be made here too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import NamedTuple

from launcher.seccomp import MAX_PROGRAM, SeccompError, read_all
from launcher.seccomp_profile import ERRNO, Condition

_ENOSYS, _EEXIST = 38, 17
_BADARCH, _OPTIMIZE = 2, 8  # enum scmp_filter_attr
_BINARY_TREE = 2
_MOST_CALLS = 1024


class Call(NamedTuple):
    """One call of a rule."""

    name: str
    action: int
    conditions: tuple[Condition, ...] = ()


class _Comparison(ctypes.Structure):  # struct scmp_arg_cmp
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    )


class Library:
    """Makes filters for the machine with the given AUDIT_ARCH token."""

    UNKNOWN = -1

    def __init__(self, token: int) -> None:
        try:
            self._lib = ctypes.CDLL("libseccomp.so.2")
        except OSError as error:
            raise SeccompError(
                f"a seccomp profile of one's own is compiled by libseccomp: {error}", "apt-get install libseccomp2"
            ) from None
        self._lib.seccomp_init.restype = ctypes.c_void_p
        self._lib.seccomp_version.restype = ctypes.POINTER(ctypes.c_uint * 3)
        self._token = ctypes.c_uint32(token)

    def version(self) -> tuple[int, ...]:
        return tuple(self._lib.seccomp_version().contents)

    def number(self, name: str) -> int:
        """The number of a call: UNKNOWN, or less than that where only other machines have it."""
        return int(self._lib.seccomp_syscall_resolve_name_arch(self._token, name.encode()))

    def names(self) -> list[str]:
        """Of all calls that the machine has, as far as this release knows."""
        name_of = self._lib.seccomp_syscall_resolve_num_arch
        name_of.restype = ctypes.c_char_p  # it leaks a few bytes each: this is asked once
        found = (name_of(self._token, number) for number in range(_MOST_CALLS))
        return [name.decode() for name in found if name is not None]

    def compile(self, default: int, calls: Iterable[Call]) -> bytes:
        context = ctypes.c_void_p(self._lib.seccomp_init(ctypes.c_uint32(default)))
        if not context:
            raise SeccompError(f"libseccomp does not take the default action {default:#x}")
        try:
            self._set_up(context)
            for call in calls:
                if call.action != default:  # it refuses to be told what it does anyway
                    self._add(context, call)
            return self._export(context)
        finally:
            self._lib.seccomp_release(context)

    def _set_up(self, context: ctypes.c_void_p) -> None:
        native = ctypes.c_uint32(self._lib.seccomp_arch_native())
        if native.value != self._token.value:
            _check(self._lib.seccomp_arch_add(context, self._token), "architecture")
            _check(self._lib.seccomp_arch_remove(context, native), "architecture")
        for attribute, value in ((_BADARCH, ERRNO | _ENOSYS), (_OPTIMIZE, _BINARY_TREE)):
            _check(self._lib.seccomp_attr_set(context, attribute, ctypes.c_uint32(value)), f"attribute {attribute}")

    def _add(self, context: ctypes.c_void_p, call: Call) -> None:
        conditions = (_Comparison * len(call.conditions))(*(_Comparison(*each) for each in call.conditions))
        number = self._lib.seccomp_syscall_resolve_name(call.name.encode())
        action = ctypes.c_uint32(call.action)
        result = self._lib.seccomp_rule_add_array(context, action, number, len(conditions), conditions)
        if result != -_EEXIST:  # the same rule twice says no more than once
            _check(result, f"rule for {call.name!r}")

    def _export(self, context: ctypes.c_void_p) -> bytes:
        fd = os.memfd_create("seccomp")
        try:
            _check(self._lib.seccomp_export_bpf(context, fd), "profile")
            os.lseek(fd, 0, os.SEEK_SET)
            return read_all(fd, MAX_PROGRAM)
        finally:
            os.close(fd)


def _check(result: int, what: str) -> None:
    if result < 0:
        raise SeccompError(f"libseccomp does not take the {what}: {os.strerror(-result)}")
