"""Which system calls a sandbox may make: a choice becomes cBPF programs, which bwrap loads.

    default   what coding needs, without what breaks out: debugging others, mounts, namespaces, rare sockets
    debug     the same, with what strace and gdb need
    off       no filter
    FILE      a profile of one's own, in the JSON that container engines use

The first two are compiled when the package is built, for each machine, and ship beside this module:
starting a sandbox reads one small file, and neither JSON nor libseccomp is touched. A file is parsed
each time, so that its warnings are given each time, and compiled once.
"""

from __future__ import annotations

import os

from egress.record import NamedTuple

DEFAULT, DEBUG, OFF = "default", "debug", "off"
MACHINES = ("x86_64", "aarch64")
INSTRUCTION = 8  # bytes of a struct sock_filter
MAX_PROGRAM = 4096 * INSTRUCTION  # BPF_MAXINSNS: the kernel takes no more
_MAX_PROFILE = 1 << 20
_SHIPPED = __file__.rpartition("/")[0] + "/profiles"


class SeccompError(Exception):
    """No filter can be made; `hint` says what would help."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Filter(NamedTuple):
    """What a choice came to. The programs are arrays of struct sock_filter, one per --add-seccomp-fd."""

    choice: str
    programs: tuple[bytes, ...]
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # to be told before the command starts, which may not

    def __str__(self) -> str:
        if not self.programs:
            return f"{self.choice}: system calls are not filtered"
        return f"{self.choice}: {sum(map(len, self.programs)) // INSTRUCTION} instructions"


def program(choice: str, machine: str) -> list[bytes]:
    """The programs to load, none where the choice is `off`."""
    return list(load(choice, machine).programs)


def describe(choice: str, machine: str) -> list[str]:
    """The choice in a line, and a line for each thing to be warned of."""
    made = load(choice, machine)
    return [str(made), *(f"warning: {text}" for text in made.warnings)]


def load(choice: str, machine: str) -> Filter:
    if choice == OFF:
        return Filter(choice, ())
    if machine not in MACHINES:
        raise SeccompError(
            f"no seccomp filter for machine {machine!r}, only for {' and '.join(MACHINES)}", "choose --seccomp off"
        )
    if choice in (DEFAULT, DEBUG):
        return Filter(choice, (_shipped(choice, machine),))
    return _from_file(choice, machine)


def _shipped(choice: str, machine: str) -> bytes:
    path = f"{_SHIPPED}/{choice}.{machine}.bpf"
    try:
        code = read_bounded(path, MAX_PROGRAM)
    except OSError as error:
        raise SeccompError(f"seccomp filter {path!r}: {error.strerror}", "install egress again") from error
    if not is_program(code):
        raise SeccompError(f"seccomp filter {path!r} is damaged ({len(code)} bytes)", "install egress again")
    return code


def profile_text(choice: str) -> bytes:
    """What a shipped filter is compiled from."""
    path = f"{_SHIPPED}/{choice}.json"
    try:
        return read_bounded(path, _MAX_PROFILE)
    except OSError as error:
        raise SeccompError(f"seccomp profile {path!r}: {error.strerror}", "install egress again") from error


def _from_file(path: str, machine: str) -> Filter:
    text = _read_profile(path)
    from launcher import seccomp_cache
    from launcher.seccomp_profile import parse

    release = os.uname().release
    profile = parse(text, machine, release)
    key = seccomp_cache.key(text, machine, release)
    code = seccomp_cache.lookup(key)
    if code is None:
        from launcher.seccomp_bpf import compile_profile

        code = compile_profile(profile, machine)
        seccomp_cache.store(key, code)
    return Filter(path, (code,), profile.warnings)


def _read_profile(path: str) -> bytes:
    try:
        text = read_bounded(path, _MAX_PROFILE)
    except OSError as error:
        raise SeccompError(
            f"seccomp profile {path!r}: {error.strerror}", "choose default, debug, off or the path of a JSON profile"
        ) from error
    if len(text) > _MAX_PROFILE:
        raise SeccompError(f"seccomp profile {path!r} is larger than {_MAX_PROFILE} bytes")
    return text


def is_program(code: bytes) -> bool:
    return 0 < len(code) <= MAX_PROGRAM and len(code) % INSTRUCTION == 0


def read_bounded(path: str, limit: int, flags: int = 0) -> bytes:
    """The file, or its first `limit` + 1 bytes, by which its reader knows that it is too long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        return read_all(fd, limit)
    finally:
        os.close(fd)


def read_all(fd: int, limit: int) -> bytes:
    data = b""
    while len(data) <= limit and (piece := os.read(fd, limit + 1 - len(data))):
        data += piece
    return data
