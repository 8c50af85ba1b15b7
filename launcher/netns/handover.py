"""The hand-over: listening sockets of a sandbox's network, in the hands of a process on the host.

    with Joiner(wanted) as joiner:    forks the helper, before any thread or event loop exists
        …                             start bwrap with --info-fd {joiner.info} --block-fd {joiner.block}
        handover = joiner.join()      the helper joins, furnishes, proves, sends the descriptors
        joiner.release()              the command runs
        …

The helper is forked before bwrap starts, so that it is ready when bwrap is, and so that there is always
somebody to end the sandbox. That is needed because bwrap, while it is held, obeys nobody: --die-with-parent
is armed only after the release, and the end of the block pipe *is* the release. Were the launcher killed
at that point, the command would run as an orphan. So the helper too holds the pipe, knows the sandbox's
first process, and kills it when its channel to the launcher ends; and a hand-over that fails kills it.

Until the joiner is closed the helper stays, makes sockets on request (see `connector`) and keeps guard.

What comes before bwrap's start is on the user's clock. `socket` makes hundreds of constants when it is loaded, so
it is loaded in `join`, while bwrap is at work; until then its sockets without them, `_socket`, are enough.
"""

from __future__ import annotations

import _socket
import os
import signal

from egress.record import TYPE_CHECKING, NamedTuple
from launcher.netns.leash import Leash, end_untold
from launcher.netns.model import DONE, ELSE, HandoverError, Listener, Role, Wanted, objection, parse_info
from launcher.netns.namespace import network_of

if TYPE_CHECKING:
    import socket
    from types import TracebackType
    from typing import NoReturn

    from launcher.netns.connector import Connector

PATIENCE = 15.0  # of the launcher; everything the helper does takes milliseconds
_ROOM, _MOST = 64 * 1024, 250  # bytes and descriptors of one answer


class Handover(NamedTuple):
    listeners: tuple[Listener, ...]
    network: int  # the number of the namespace
    full: bool  # every port and every name server is captured
    missing: tuple[str, ...]  # what was wanted and is not there, in words


class Joiner:
    """The helper process, and the two pipes by which bwrap tells of its sandbox and is held."""

    __slots__ = ("_channel", "_leash", "_pid", "_release", "_released", "_told", "_wanted", "block", "info", "sandbox")

    def __init__(self, wanted: Wanted | None) -> None:
        """With nothing wanted the sandbox is held and guarded, and its network not joined."""
        if wanted and (reason := objection(wanted)):
            raise HandoverError(reason, "choose other ports")
        self._wanted = wanted
        self._channel, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._told, info = _socket.socketpair()
        self._told.settimeout(PATIENCE)
        self.info = info.detach()
        self.block, self._release = os.pipe()
        self._leash: Leash | None = None
        self._released = False
        self.sandbox = 0  # its first process, from `join` on
        self._pid = os.fork()
        if self._pid == 0:
            _help(theirs, self._told, self._release, wanted)
        theirs.close()
        self._channel.settimeout(PATIENCE)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def connector(self) -> Connector | None:
        """For connections to servers inside, until the joiner is closed."""
        from launcher.netns.connector import Connector

        return Connector(self._channel) if self._wanted else None

    def join(self) -> Handover:
        """To be called when bwrap has started; after an error the sandbox is dead."""
        self._close_pipes()
        sockets: list[socket.socket] = []
        try:
            self._hold()
            handover = parse(hear(self._channel, sockets), sockets)
            return checked(handover, self.sandbox) if self._wanted else handover
        except HandoverError:
            for sock in sockets:
                sock.close()
            self.close()
            raise

    def release(self) -> None:
        """Let the command run."""
        os.write(self._release, b"x")
        self._released = True

    def end(self) -> None:
        """Kill the sandbox, if there is one: it can outlive a bwrap that was killed while it held it."""
        if not self._pid:  # it was closed
            return
        try:
            if not self._leash:
                self._hold()
        except HandoverError:  # there never was one, or nobody told of it
            end_untold(self._release)
        if self._leash:
            self._leash.end()

    def close(self) -> None:
        """End the helper, and the sandbox if it was never released."""
        if not self._pid:
            return
        os.kill(self._pid, signal.SIGKILL)  # before its channel ends, which it would take for our death
        os.waitpid(self._pid, 0)
        self._close_pipes()
        if not self._released:
            self.end()
        self._pid = 0
        self._channel.close()
        self._told.close()
        os.close(self._release)
        if self._leash:
            self._leash.close()

    def _hold(self) -> None:
        self.sandbox = parse_info(look(self._told)).pid
        self._leash = Leash(self.sandbox)

    def _close_pipes(self) -> None:
        """Bwrap has its own ends of them; ours would keep the helper reading."""
        for descriptor in (self.info, self.block):
            if descriptor >= 0:
                os.close(descriptor)
        self.info = self.block = -1

    def __enter__(self) -> Joiner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def look(told: _socket.socket) -> bytes:
    """What bwrap tells, up to the brace that closes its JSON. Nobody takes it: both sides must be able to see."""
    import select

    hangup = select.poll()
    hangup.register(told, select.POLLRDHUP)
    while True:
        ended = bool(hangup.poll(0))  # asked first: what was written before the end is then seen
        try:
            data = told.recv(4096, _socket.MSG_PEEK)
        except TimeoutError:
            return b""
        if ended or b"}" in data:
            return data
        os.sched_yield()  # it writes piece by piece


def hear(channel: _socket.socket, sockets: list[socket.socket]) -> list[str]:
    """The fields of the helper's next answer; its descriptors become `sockets`."""
    import socket

    from launcher.netns.connector import receive

    try:
        data, descriptors = receive(channel, _ROOM, _MOST)
    except OSError as error:
        raise HandoverError(f"the helper in the sandbox's network gave no answer: {error}", ELSE) from error
    sockets += (socket.socket(fileno=descriptor) for descriptor in descriptors)
    status, *fields = data.decode().split("\0")
    if status == "":
        raise HandoverError("the helper in the sandbox's network ended without an answer", "try again")
    if status != DONE:
        raise HandoverError(*fields)
    return fields


def parse(fields: list[str], sockets: list[socket.socket]) -> Handover:
    network, full, roles, *missing = fields
    if len(roles.split()) != len(sockets):
        raise HandoverError("descriptors of the sandbox were lost", "raise the limit of open files: ulimit -n")
    listeners = tuple(Listener(Role(role), sock) for role, sock in zip(roles.split(), sockets, strict=True))
    return Handover(listeners, int(network), full == "full", tuple(missing))


def checked(handover: Handover, pid: int) -> Handover:
    """The helper's word is not enough: each socket must be where the sandbox is."""
    try:
        network = os.stat(f"/proc/{pid}/ns/net").st_ino
        strays = [role for role, sock in handover.listeners if network_of(sock) != network]
    except OSError as error:
        raise HandoverError(f"the sandbox's sockets cannot be looked at: {error}", ELSE) from error
    if strays or network != handover.network:
        raise HandoverError(f"not in the sandbox's network: {' '.join(strays) or 'the helper'}", ELSE)
    for listener in handover.listeners:
        listener.sock.setblocking(False)
    return handover


def _help(channel: _socket.socket, told: _socket.socket, release: int, wanted: Wanted | None) -> NoReturn:
    """The child's life. What only it needs it imports itself, while bwrap starts on another core."""
    try:
        from launcher.netns.helper import run

        run(channel, told, release, wanted)
    finally:
        os._exit(0)  # past every `finally` and `atexit` that the launcher had at the fork
