"""Where a socket lives: it keeps the network namespace it was made in, whoever holds it."""

from __future__ import annotations

import fcntl
import os

from egress.record import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

_GET_NAMESPACE_OF_SOCKET = 0x894C  # SIOCGSKNS; for who has CAP_NET_ADMIN over it, as its owner has


def network_of(sock: socket.socket) -> int:
    """The number of the namespace that a socket lives in, wherever its holder is."""
    descriptor = fcntl.ioctl(sock, _GET_NAMESPACE_OF_SOCKET)
    try:
        return os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)
