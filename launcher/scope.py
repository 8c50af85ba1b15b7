"""A scope of systemd: a cgroup that it makes for a process on request, and removes when nobody is in it.

A user cannot move a process from the cgroup of a login into one below their own manager, since both ends
belong to somebody else; the manager can have it done. It is asked over its private socket, which needs no
bus and no program: one D-Bus call, StartTransientUnit, and then the news that its job is done. The managers
of root and of a user speak alike.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from launcher.options import Resources

_PATIENCE = 5.0
_MOST = 1 << 20  # bytes of one message
_CALL, _RETURN, _ERROR, _SIGNAL = 1, 2, 3, 4
_PATH, _INTERFACE, _MEMBER, _SIGNATURE = 1, 2, 3, 8  # numbers of header fields
_SECOND = 1_000_000  # microseconds of processor time that one processor has in a second

Property = tuple[str, str, str | int]  # name, D-Bus type, value


class ScopeError(Exception):
    """The manager was not there, or did not do it."""


def properties(pid: int, resources: Resources) -> Iterator[Property]:
    yield "Description", "s", "egress: a sandbox"
    yield "CollectMode", "s", "inactive-or-failed"  # gone when it ends, however it ends
    yield "PIDs", "au", pid
    if resources.memory is not None:
        yield "MemoryMax", "t", resources.memory
        yield "MemorySwapMax", "t", 0
    if resources.cpus is not None:
        yield "CPUQuotaPerSecUSec", "t", max(1, round(resources.cpus * _SECOND))
    if resources.pids is not None:
        yield "TasksMax", "t", resources.pids


def make(manager: str, pid: int, resources: Resources) -> None:
    """Put a process into a scope of its own, with these limits."""
    unit = f"egress-{pid}-{os.urandom(4).hex()}.scope"
    wanted = list(properties(pid, resources))
    try:
        _ask(manager, call(unit, [*wanted, ("OOMPolicy", "s", "continue")]), unit)  # who used too much dies, not all
    except _UnknownProperty:  # before version 253 a scope has no policy, and does nothing of itself
        _ask(manager, call(unit, wanted), unit)


def attach(manager: str, unit: str, pid: int) -> None:
    """Put a process into a scope that is there already."""
    _ask(manager, attachment(unit, pid))


class _UnknownProperty(ScopeError):
    """An older manager."""


def _ask(manager: str, message: bytes, unit: str = "") -> None:
    """Until it is done: with a unit, when its job is; else when the call has returned."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_PATIENCE)
        try:
            sock.connect(manager)
            _authenticate(sock)
            sock.sendall(message)
            while not _is_done(_receive(sock), unit):
                pass
        except OSError as error:
            raise ScopeError(f"systemd at {manager!r}: {error}") from None


def _authenticate(sock: socket.socket) -> None:
    sock.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
    answer = b""
    while not answer.endswith(b"\r\n"):
        answer += _exactly(sock, 1)
    if not answer.startswith(b"OK "):
        raise ScopeError(f"systemd does not take us for who we are: {answer[:80]!r}")
    sock.sendall(b"BEGIN\r\n")


class Message(NamedTuple):
    kind: int
    fields: bytes
    body: bytes


def _receive(sock: socket.socket) -> Message:
    head = _exactly(sock, 16)
    body, fields = (int.from_bytes(head[at : at + 4], "little") for at in (4, 12))
    if head[:1] != b"l" or body + fields > _MOST:
        raise ScopeError(f"systemd sent {head!r}, expected a D-Bus message")
    rest = _exactly(sock, _aligned(fields, 8) + body)
    return Message(head[1], rest[:fields], rest[len(rest) - body :])


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ScopeError("systemd closed the connection")
        data += piece
    return data


def _is_done(message: Message, unit: str) -> bool:
    """Whether this is the end of the unit's job; the answer to the call itself only says that there is one."""
    if message.kind == _ERROR:
        text = message.body[4:].split(b"\0")[0].decode(errors="replace")
        raise (_UnknownProperty if "unknown property" in text else ScopeError)(f"systemd: {text}")
    if not unit:
        return message.kind == _RETURN
    if message.kind != _SIGNAL or b"\0JobRemoved\0" not in message.fields or unit.encode() not in message.body:
        return False
    if not message.body.endswith(b"\0done\0"):
        raise ScopeError(f"systemd: the job of {unit} has failed")
    return True


def call(unit: str, wanted: Sequence[Property]) -> bytes:
    """StartTransientUnit(name, mode, properties, no further units), in the wire format of D-Bus."""
    body = _Wire()
    body.text(unit)
    body.text("fail")
    with_properties = body.open_array()
    for name, kind, value in wanted:
        body.pad(8)
        body.text(name)
        body.variant(kind, value)
    body.close_array(with_properties)
    body.close_array(body.open_array())
    return _message("StartTransientUnit", "ssa(sv)a(sa(sv))", body)


def attachment(unit: str, pid: int) -> bytes:
    """AttachProcessesToUnit(name, the unit's own cgroup, processes)."""
    body = _Wire()
    body.text(unit)
    body.text("")
    body.number(4)
    body.number(pid)
    return _message("AttachProcessesToUnit", "ssau", body)


def _message(member: str, signature: str, body: _Wire) -> bytes:
    head = _Wire(b"l" + bytes([_CALL, 0, 1]))
    head.number(len(body))
    head.number(1)  # the first message of this connection
    fields = head.open_array()
    for field, kind, text in (
        (_PATH, "o", "/org/freedesktop/systemd1"),
        (_INTERFACE, "s", "org.freedesktop.systemd1.Manager"),
        (_MEMBER, "s", member),
        (_SIGNATURE, "g", signature),
    ):
        head.pad(8)
        head.append(field)
        head.variant(kind, text)
    head.close_array(fields)
    head.pad(8)
    return bytes(head + body)


class _Wire(bytearray):
    """A message in the making: everything stands at a multiple of its own size."""

    def pad(self, size: int) -> None:
        self.extend(bytes(_aligned(len(self), size) - len(self)))

    def number(self, value: int, size: int = 4) -> None:
        self.pad(size)
        self.extend(value.to_bytes(size, "little"))

    def text(self, value: str) -> None:
        self.number(len(value.encode()))
        self.extend(value.encode() + b"\0")

    def signature(self, value: str) -> None:
        self.extend(bytes([len(value)]) + value.encode() + b"\0")

    def variant(self, kind: str, value: str | int) -> None:
        self.signature(kind)
        if isinstance(value, str):
            self.signature(value) if kind == "g" else self.text(value)
        elif kind == "au":
            self.number(4)
            self.number(value)
        else:
            self.number(value, 8)

    def open_array(self) -> int:
        """Of structs, which begin at multiples of eight. An array's length leaves out the padding before them."""
        self.number(0)
        at = len(self)
        self.pad(8)
        return at

    def close_array(self, at: int) -> None:
        self[at - 4 : at] = (len(self) - _aligned(at, 8)).to_bytes(4, "little")


def _aligned(length: int, size: int) -> int:
    return length + -length % size
