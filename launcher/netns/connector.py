"""Sockets that connect to servers inside, for as long as the sandbox runs.

A socket keeps the network it was made in, whoever uses it. So all that must happen inside is making it:
the helper of the hand-over, which has joined that network and no other part of the sandbox, makes a
socket per request and hands it over; connecting is the host's.
"""

from __future__ import annotations

import _socket
import os
import socket
from array import array

_FAMILIES = {b"4": socket.AF_INET, b"6": socket.AF_INET6}


class Connector:
    """One request, one answer, in order. `fileno` becomes readable when an answer is there."""

    __slots__ = ("_channel",)

    def __init__(self, channel: _socket.socket) -> None:
        self._channel = channel

    def fileno(self) -> int:
        return self._channel.fileno()

    def request(self, *, ipv6: bool = False) -> None:
        self._channel.send(b"6" if ipv6 else b"4")

    def take(self) -> socket.socket:
        """The next socket: of the sandbox's network, not yet connected, not blocking."""
        said, descriptors = receive(self._channel, 256, 1)
        if not descriptors:
            raise ConnectionError(f"no socket to connect with: {said.decode() or 'the helper is gone'}")
        sock = socket.socket(fileno=descriptors[0])
        sock.setblocking(False)
        return sock

    def connect(self, port: int, timeout: float = 5.0) -> socket.socket:
        """A connection to a server inside, on 127.0.0.1 or else on ::1; blocks."""
        try:
            return self._connected("127.0.0.1", port, timeout)
        except ConnectionRefusedError:
            return self._connected("::1", port, timeout)

    def _connected(self, address: str, port: int, timeout: float) -> socket.socket:
        self.request(ipv6=":" in address)
        sock = self.take()
        try:
            sock.settimeout(timeout)
            sock.connect((address, port))
        except OSError:
            sock.close()
            raise
        return sock


def send(channel: _socket.socket, data: bytes, *descriptors: int) -> None:
    channel.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))])


def receive(channel: _socket.socket, room: int, most: int) -> tuple[bytes, list[int]]:
    """The next message and its descriptors, which no program inherits.

    `socket.recv_fds` takes flags and, up to Python 3.13 at least, passes them on to nobody.
    """
    space = socket.CMSG_LEN(most * array("i").itemsize)
    data, ancillary, _, _ = channel.recvmsg(room, space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array("i")
    for level, kind, numbers in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(numbers[: len(numbers) - len(numbers) % descriptors.itemsize])
    return data, list(descriptors)


def serve(channel: _socket.socket) -> None:
    """The helper's part: make sockets until the channel ends."""
    while request := channel.recv(16):
        try:
            made = socket.socket(_FAMILIES[request], socket.SOCK_STREAM)
        except OSError as error:
            channel.send(os.strerror(error.errno or 0).encode())
        else:
            with made:
                send(channel, request, made.fileno())
