"""Who may connect where, in a network that is the host's own: each connect(2) is asked about, and made here.

The kernel stops the caller and asks on a descriptor (seccomp's user notification). The address stands in the caller's
memory, where another of its threads could change it after a look. So the call is never let through: the address is
copied once, looked at, and if it is the gate's, or a socket that was let in, the caller's own socket is connected to
it, here, with the copy. What cannot be seen or copied is refused. When this ends, every connect fails.

listen(2) is asked about, too, and made here for Unix sockets alone. So a server inside has our number as its own, to
whoever connects to it (SO_PEERCRED), and by that it is told from a server of the host. A path where the command can
write is connected to by a socket of ours, and the caller is given that in place of its own only if it leads inside.

It runs in the minder, which all callers descend from: the kernel lets nobody else look into them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from typing import NamedTuple

from launcher.backends.socketfilter import MACHINES
from launcher.mounts import is_within

_RECEIVE, _SEND, _IS_VALID, _ADD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103  # of ioctl(2)
_QUESTION = struct.Struct("=QII iIQ 6Q")  # struct seccomp_notif
_ANSWER = struct.Struct("=QqiI")  # struct seccomp_notif_resp
_MOST_ADDRESS = 128  # struct sockaddr_storage
_PIDFD_GETFD = 438
_MAPPED = bytes(10) + b"\xff\xff"
_PUT = struct.Struct("=QIIII")  # struct seccomp_notif_addfd
_IN_PLACE = 1
_PEER = struct.Struct("=iII")  # struct ucred
_LISTEN = tuple(calls.listen for calls in MACHINES.values())
_libc = ctypes.CDLL(None, use_errno=True)


class Goals(NamedTuple):
    """What may be connected to."""

    port: int  # of the gate, on 127.0.0.1
    sockets: frozenset[str] = frozenset()  # that were let in
    writable: tuple[str, ...] = ()  # directories where the command may have made others


class Asked(NamedTuple):
    id: int
    thread: int
    call: int
    descriptor: int
    second: int  # where the address stands; of listen, how many may wait
    length: int


def goal(address: bytes, goals: Goals) -> tuple[str, int] | str | None:
    """Where a raw address leads to, if that may be; pure."""
    family = int.from_bytes(address[:2], "little")
    if family == socket.AF_INET and len(address) >= 8:
        return _gate(address[4:8], address[2:4], goals)
    if family == socket.AF_INET6 and len(address) >= 24 and address[8:20] == _MAPPED:
        return _gate(address[20:24], address[2:4], goals)
    if family == socket.AF_UNIX:
        path = os.fsdecode(address[2:].partition(b"\0")[0])
        return path if path in goals.sockets else None
    return None


def _gate(host: bytes, port: bytes, goals: Goals) -> tuple[str, int] | None:
    is_gate = host == b"\x7f\0\0\1" and int.from_bytes(port, "big") == goals.port
    return ("127.0.0.1", goals.port) if is_gate else None


def attend(channel: socket.socket, goals: Goals) -> None:
    """Wait for the descriptor, and answer on it for as long as there is anybody to ask."""
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not descriptors:  # the command never came so far
        return
    try:
        while True:
            _answer_next(descriptors[0], goals)
    finally:
        os.close(descriptors[0])


def _answer_next(listener: int, goals: Goals) -> None:
    question = bytearray(_QUESTION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, question)
    except OSError as error:
        if error.errno in (errno.EINTR, errno.ENOENT):  # who asked has gone
            return
        raise
    asked = _parse(bytes(question))
    try:
        act = _listen if asked.call in _LISTEN else _connect
        result = act(listener, asked, goals)
    except OSError as error:
        result = error.errno or errno.EACCES
    except Exception:  # whatever it was, the next question must be answered, and this one with no
        result = errno.EACCES
    _reply(listener, asked.id, result)


def _parse(question: bytes) -> Asked:
    number, thread, _, call, _, _, descriptor, second, length, *_ = _QUESTION.unpack(question)
    return Asked(number, thread, call, descriptor & 0xFFFFFFFF, second, length & 0xFFFFFFFF)


def _reply(listener: int, number: int, result: int) -> None:
    try:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, -result, 0))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _connect(listener: int, asked: Asked, goals: Goals) -> int:
    """0, or the error. Numbers may come to mean others: what was found counts if the question still stands."""
    address = _copied(asked)
    where = goal(address, goals)
    if where is None:
        path = _unix_path(address, asked)
        may_be_inside = any(is_within(path, top) for top in goals.writable)
        return _replaced(listener, asked, path, inside=True) if may_be_inside else errno.EACCES
    try:
        theirs = _taken(asked)
    except PermissionError:  # container engines keep this call from those who may not trace others
        return _replaced(listener, asked, where)
    with _socket_of(theirs) as sock:
        fcntl.ioctl(listener, _IS_VALID, asked.id.to_bytes(8, "little"))
        return sock.connect_ex(_as_family(sock, where))


def _listen(listener: int, asked: Asked, _: Goals) -> int:
    with _socket_of(_taken(asked)) as sock:
        fcntl.ioctl(listener, _IS_VALID, asked.id.to_bytes(8, "little"))
        if sock.family != socket.AF_UNIX:
            return errno.EACCES
        sock.listen(min(asked.second & 0xFFFFFFFF, socket.SOMAXCONN))
    return 0


def _replaced(listener: int, asked: Asked, where: tuple[str, int] | str, inside: bool = False) -> int:
    """A new socket, connected, in the place of the caller's. Options that were set on that one are lost."""
    flags = _flags(asked)
    with socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setblocking(not inside)  # a server inside may let us wait for ever
        if failed := sock.connect_ex(where):
            return failed
        if inside and _listener_of(sock) != os.getpid():
            return errno.EACCES
        sock.setblocking(not flags & os.O_NONBLOCK)
        request = _PUT.pack(asked.id, _IN_PLACE, sock.fileno(), asked.descriptor, flags & os.O_CLOEXEC)
        fcntl.ioctl(listener, _ADD, request)
    return 0


def _unix_path(address: bytes, asked: Asked) -> str:
    """Of a Unix socket, where it leads to; nothing for those without a path."""
    path = os.fsdecode(address[2:].partition(b"\0")[0])
    if int.from_bytes(address[:2], "little") != socket.AF_UNIX or not path:
        return ""
    return os.path.realpath(path if path.startswith("/") else f"/proc/{asked.thread}/cwd/{path}")


def _listener_of(sock: socket.socket) -> int:
    """The process that made it a server."""
    return int(_PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])


def _flags(asked: Asked) -> int:
    """Of the caller's descriptor, as open(2) has them."""
    path = f"/proc/{asked.thread}/fdinfo/{asked.descriptor}"
    with open(path, encoding="ascii") as file:
        return int(next(line.split()[1] for line in file if line.startswith("flags:")), 8)


def _socket_of(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _as_family(sock: socket.socket, where: tuple[str, int] | str) -> tuple[str, int] | str:
    if sock.family == socket.AF_INET6 and isinstance(where, tuple):
        return (f"::ffff:{where[0]}", where[1])
    return where


def _copied(asked: Asked) -> bytes:
    if asked.length > _MOST_ADDRESS:
        raise OSError(errno.EINVAL, "no address is as long")
    memory = os.open(f"/proc/{asked.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, asked.length, asked.second)
    finally:
        os.close(memory)


def _taken(asked: Asked) -> int:
    """Another descriptor for the caller's socket."""
    process = os.pidfd_open(_process_of(asked.thread))
    try:
        found = int(_libc.syscall(_PIDFD_GETFD, process, asked.descriptor, 0))
    finally:
        os.close(process)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _process_of(thread: int) -> int:
    with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
        return int(next(line.split()[1] for line in file if line.startswith("Tgid:")))
