"""Landlock, seccomp and capabilities, put on the process that calls: through libc's `syscall` and `prctl`."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from contextlib import suppress

from launcher.landlock import CONNECT_TCP, OF_FILES, Handled, Rule, handled
from launcher.seccomp import INSTRUCTION

_CREATE, _ADD, _RESTRICT, _SECCOMP = 444, 445, 446, {"x86_64": 317, "aarch64": 277}
_ASK_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_NO_NEW_PRIVILEGES, _DROP_BOUNDING, _AMBIENT, _CLEAR_ALL = 38, 24, 47, 4  # of prctl(2)
_CAPSET, _CAPABILITY_VERSION = {"x86_64": 126, "aarch64": 91}, 0x20080522
_LAST_CAPABILITY = 63
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3
_PATH_ONLY = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)  # it could not be opened without us, either


class _Beneath(ctypes.Structure):  # struct landlock_path_beneath_attr
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("fd", ctypes.c_int32))


class _Port(ctypes.Structure):  # struct landlock_net_port_attr
    _fields_ = (("rights", ctypes.c_uint64), ("port", ctypes.c_uint64))


class _Program(ctypes.Structure):  # struct sock_fprog
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Of this kernel's Landlock; 0 where there is none, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), _ASK_VERSION)))


def ruleset(of: int) -> int:
    """A descriptor for all that version `of` can forbid."""
    attributes = handled(of).packed(of)
    return _checked(_libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock_create_ruleset")


def give(rules: int, handled_by: Handled, rule: Rule) -> None:
    """A path that is not there, or not for us, needs no rule."""
    try:
        fd = os.open(rule.path, _PATH_ONLY)
    except OSError as error:
        if error.errno in _GONE:
            return
        raise
    try:
        give_descriptor(rules, handled_by, fd, rule.rights)
    finally:
        os.close(fd)


def give_descriptor(rules: int, handled_by: Handled, fd: int, rights: int) -> None:
    allowed = rights & handled_by.files
    if not os.path.isdir(f"/proc/self/fd/{fd}"):
        allowed &= OF_FILES
    if allowed:
        _checked(_libc.syscall(_ADD, rules, _PATH_BENEATH, ctypes.byref(_Beneath(allowed, fd)), 0), "landlock_add_rule")


def give_port(rules: int, handled_by: Handled, port: int) -> None:
    if handled_by.network:
        attribute = _Port(CONNECT_TCP, port)
        _checked(_libc.syscall(_ADD, rules, _NET_PORT, ctypes.byref(attribute), 0), "landlock_add_rule")


def drop_capabilities() -> None:
    """All of them, also those that root would get with its next program."""
    for number in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_DROP_BOUNDING, number, 0, 0, 0)  # fails where there is no such one, or none to drop
    _libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc.syscall(_CAPSET[os.uname().machine], header, nothing), "capset")


def restrict(rules: int) -> None:
    """From here on, for this process and all that come of it."""
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    _checked(_libc.syscall(_RESTRICT, rules, 0), "landlock_restrict_self")


def load(programs: Iterable[bytes]) -> None:
    for code in programs:
        _load(code, 0)


def load_asking(code: bytes) -> int:
    """The descriptor on which the kernel asks about calls that the filter does not answer itself."""
    return _load(code, _NEW_LISTENER)


def _load(code: bytes, flags: int) -> int:
    program = _Program(len(code) // INSTRUCTION, code)
    call = _SECCOMP[os.uname().machine]
    return _checked(_libc.syscall(call, _SET_FILTER, flags, ctypes.byref(program)), "seccomp")


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return int(result)


def can_ask() -> str:
    """Nothing, or why no filter can ask here; tried in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 255
        with suppress(BaseException):
            _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            try:
                load_asking((0x06).to_bytes(4, "little") + (0x7FFF0000).to_bytes(4, "little"))
                code = 0
            except OSError as error:
                code = error.errno or 255
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    found = os.waitstatus_to_exitcode(status)
    return os.strerror(found) if found > 0 else ""
