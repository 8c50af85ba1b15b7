"""The hand-over of a network that is there already: that of a process which somebody else has started.

    visit = Visit(pid, wanted)        forks the visitor, before any thread or event loop exists
    handover = visit.join()           it goes in, looks, furnishes, proves, sends the descriptors
    …
    visit.leave()                     all that it made in there is taken away again

If we are killed, the visitor leaves by itself: its channel ends.
"""

from __future__ import annotations

import _socket
import os
import signal

from egress.record import TYPE_CHECKING
from launcher.netns.handover import PATIENCE, Handover, checked, hear, parse
from launcher.netns.model import HandoverError, Wanted, objection

if TYPE_CHECKING:
    import socket
    from typing import NoReturn

    from launcher.netns.connector import Connector


class Visit:
    __slots__ = ("_channel", "_visitor", "pid")

    def __init__(self, pid: int, wanted: Wanted) -> None:
        if reason := objection(wanted):
            raise HandoverError(reason, "choose another port")
        self.pid = pid
        self._channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE)
        self._visitor = os.fork()
        if self._visitor == 0:
            _go(theirs, pid, wanted)
        theirs.close()

    @property
    def connector(self) -> Connector:
        """For connections to servers inside, until the visit is over."""
        from launcher.netns.connector import Connector

        return Connector(self._channel)

    def join(self) -> Handover:
        """After an error the network is as it was, and the visit over."""
        sockets: list[socket.socket] = []
        try:
            return checked(parse(hear(self._channel, sockets), sockets), self.pid)
        except HandoverError:
            for sock in sockets:
                sock.close()
            self._end()
            raise

    def leave(self) -> None:
        """Raises what could not be put back."""
        if not self._visitor:
            return
        self._channel.settimeout(PATIENCE)
        try:
            self._channel.shutdown(_socket.SHUT_WR)
            hear(self._channel, [])
        except OSError as error:
            raise HandoverError(f"the visitor in the network of process {self.pid} is gone: {error}", _LOST) from None
        finally:
            self._end()

    def _end(self) -> None:
        """It ends with its channel, when it has put everything back; one that hangs does not."""
        self._channel.close()
        if not _ends(self._visitor):
            os.kill(self._visitor, signal.SIGKILL)
        os.waitpid(self._visitor, 0)
        self._visitor = 0


_LOST = "what it made is still there, and nobody answers: end the processes in that network"


def _ends(pid: int) -> bool:
    """Whether a child ends in time; its status is left to be read."""
    import select

    life = os.pidfd_open(pid)
    try:
        return bool(select.select([life], [], [], PATIENCE)[0])
    finally:
        os.close(life)


def _go(channel: _socket.socket, pid: int, wanted: Wanted) -> NoReturn:
    try:
        from launcher.netns.visitor import run

        run(channel, pid, wanted)
    finally:
        os._exit(0)  # past every `finally` and `atexit` that we had at the fork
