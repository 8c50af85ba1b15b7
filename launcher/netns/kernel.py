"""A conversation with the kernel over netlink, in the network namespace where it was begun."""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType

from launcher.netns.netlink import ACK, DONE, DUMP, ERROR, Message, Reply, pack, unpack

ROUTE, NETFILTER = 0, 12
_PATIENCE = 5.0  # the kernel answers at once or not at all
_ROOM = 64 * 1024


class Kernel:
    __slots__ = ("sock",)

    def __init__(self, protocol: int, groups: int = 0) -> None:
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self.sock.bind((0, groups))
        self.sock.settimeout(_PATIENCE)

    def tell(self, *messages: Message) -> None:
        """Send them in one piece and wait until each that wants an answer has it; OSError is the kernel's no."""
        self.sock.send(pack(messages))
        open_answers = sum(bool(message.flags & ACK) for message in messages)
        while open_answers:
            open_answers -= sum(_is_yes(reply) for reply in self.hear())

    def ask(self, message: Message) -> list[bytes]:
        """The bodies of all that the kernel lists."""
        self.sock.send(pack([message._replace(flags=DUMP)]))
        bodies: list[bytes] = []
        while True:
            for reply in self.hear():
                if reply.kind == DONE:
                    return bodies
                _is_yes(reply)
                bodies.append(reply.body)

    def hear(self) -> list[Reply]:
        return list(unpack(self.sock.recv(_ROOM)))

    def __enter__(self) -> Kernel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()


def _is_yes(reply: Reply) -> bool:
    """Error zero is an acknowledgement; any other is raised."""
    if reply.kind != ERROR:
        return False
    (number,) = struct.unpack_from("=i", reply.body)
    if number:
        raise OSError(-number, os.strerror(-number))
    return True
