"""Calls about sockets, where the network is the host's own: which may be made, and which are asked about. Pure.

Landlock knows TCP by its port alone, and Unix sockets hardly. So this filter leaves few kinds of socket, each of
which gets to a peer by connect(2) and listen(2) and no other way, and has both asked about (`launcher.backends.usher`):

    socket        TCP over IPv4 and IPv6; Unix stream and seqpacket; netlink for routes, as libc lists interfaces.
                  No datagrams: their addresses stand in memory, with every packet. No MPTCP, SCTP, raw, vsock
    socketpair    the same of Unix: one of datagrams could send to any path
    connect       asked about
    listen        asked about: on TCP without bind a port is chosen, and Landlock is not asked
    send…         not with MSG_FASTOPEN, which connects on the way, past Landlock and past connect

And never, under any profile: io_uring, which makes these calls past any filter; words into the terminal's input, as
the terminal is the user's own; other programs' limits (prlimit); the host's shared memory, semaphores and queues.

    return ERRNO | EACCES, USER_NOTIF, or ALLOW: what the profile denies stays denied, the strictest answer counts
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

_ALLOW, _ASK, _DENY = 0x7FFF0000, 0x7FC00000, 0x00050000 | 13  # EACCES
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_LOAD, _AND, _RETURN, _EQUAL, _AT_LEAST, _ANY_BIT = 0x20, 0x54, 0x06, 0x15, 0x35, 0x45
_CODE = struct.Struct("<HBBI")
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TYPE = 1, 5, 0xF
_DEFAULT, _TCP = 0, 6
_FAST_OPEN = 0x20000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_IO_URING = (425, 426, 427)  # on all machines
_OTHER_COUNT = 0x40000000  # the x32 bit: the same calls by other numbers


class Calls(NamedTuple):
    """The numbers of one machine."""

    arch: int
    socket: int
    socketpair: int
    connect: int
    listen: int
    sends: tuple[tuple[int, int], ...]  # each with the argument that has its flags
    prlimit: int
    ioctl: int
    shared: tuple[int, ...]


MACHINES: Mapping[str, Calls] = {
    "x86_64": Calls(
        0xC000003E, 41, 53, 42, 50, ((44, 3), (46, 2), (307, 3)), 302, 16,
        (29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),
    ),
    "aarch64": Calls(
        0xC00000B7, 198, 199, 203, 201, ((206, 3), (211, 2), (269, 3)), 261, 29,
        (180, 181, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196),
    ),
}  # fmt: skip


def program(machine: str) -> bytes:
    """The filter, an array of struct sock_filter."""
    calls = MACHINES[machine]
    return b"".join(
        (
            _load(_ARCH) + _unless(calls.arch, _return(_DENY)) + _load(_NR),
            _CODE.pack(_AT_LEAST, 0, 1, _OTHER_COUNT) + _return(_DENY),
            *(_on(number, _return(_DENY)) for number in (*calls.shared, *_IO_URING)),
            *(_on(number, _return(_ASK)) for number in (calls.connect, calls.listen)),
            _on(calls.socketpair, _unix() + _return(_DENY)),
            _on(calls.socket, _unix() + _inet(_INET) + _inet(_INET6) + _netlink() + _return(_DENY)),
            *(_on(number, _flags(place)) for number, place in calls.sends),
            _on(calls.prlimit, _argument(0) + _unless(0, _return(_DENY)) + _return(_ALLOW)),
            _on(calls.ioctl, _argument(1) + _on(_TIOCSTI, _return(_DENY)) + _on(_TIOCLINUX, _return(_DENY))),
            _return(_ALLOW),
        )
    )


def _unix() -> bytes:
    return _argument(0) + _on(_UNIX, _type() + _on(_STREAM, _return(_ALLOW)) + _on(_SEQPACKET, _return(_ALLOW)))


def _inet(family: int) -> bytes:
    protocols = _argument(2) + _on(_DEFAULT, _return(_ALLOW)) + _on(_TCP, _return(_ALLOW))
    return _argument(0) + _on(family, _type() + _on(_STREAM, protocols))


def _netlink() -> bytes:
    """Protocol 0 is NETLINK_ROUTE."""
    return _argument(0) + _on(_NETLINK, _argument(2) + _on(0, _return(_ALLOW)))


def _flags(place: int) -> bytes:
    deny = _return(_DENY)
    return _argument(place) + _CODE.pack(_ANY_BIT, 0, len(deny) // 8, _FAST_OPEN) + deny + _return(_ALLOW)


def _argument(place: int) -> bytes:
    """Its lower half, which stands first on these machines: the kernel takes all of these as 32 bits."""
    return _load(_ARGUMENTS + 8 * place)


def _type() -> bytes:
    return _argument(1) + _CODE.pack(_AND, 0, 0, _TYPE)


def _load(offset: int) -> bytes:
    return _CODE.pack(_LOAD, 0, 0, offset)


def _return(action: int) -> bytes:
    return _CODE.pack(_RETURN, 0, 0, action)


def _on(value: int, then: bytes) -> bytes:
    """What follows it is for everything else; `then` may fall through to it."""
    return _CODE.pack(_EQUAL, 0, len(then) // 8, value) + then


def _unless(value: int, then: bytes) -> bytes:
    return _CODE.pack(_EQUAL, len(then) // 8, 0, value) + then
