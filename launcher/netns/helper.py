"""The process that joins a sandbox's network, sends its sockets home and keeps guard.

It has no terminal and nothing of the launcher's but its channel, bwrap's --info-fd, and the block pipe,
which it holds only so that the launcher's death does not release bwrap. Whatever goes wrong, and when its
channel ends, it kills the sandbox.
"""

from __future__ import annotations

import _socket
import contextlib
import fcntl
import gc
import os
import signal
from collections.abc import Iterator
from types import FrameType

from launcher.netns.connector import send, serve
from launcher.netns.furnish import Furnished, furnish
from launcher.netns.handover import look
from launcher.netns.joining import join
from launcher.netns.leash import Leash, end_untold, is_orphan
from launcher.netns.model import DONE, ELSE, FAILED, HandoverError, Sandbox, Wanted, parse_info
from launcher.netns.proof import doubts

_NOW_AND_THEN = 0.1


def run(channel: _socket.socket, told: _socket.socket, release: int, wanted: Wanted | None) -> None:
    be_alone(channel.fileno(), told.fileno(), release)
    try:
        sandbox = parse_info(look(told))
    except HandoverError as error:
        end_untold(release)
        fail(channel, error)
        return
    told.close()
    leash = Leash(sandbox.pid)
    try:
        _mind(channel, sandbox, leash)
        if wanted:
            hand_over(channel, *_prepare(sandbox, wanted))
            serve(channel)
        else:
            hand_over(channel, 0, Furnished(()))
            channel.recv(1)  # nothing is ever asked; this is the launcher's end
    except HandoverError as error:
        fail(channel, error)
    finally:
        leash.end()


def _mind(channel: _socket.socket, sandbox: Sandbox, leash: Leash) -> None:
    """The end of the launcher, or of bwrap before it has set up its part, ends whatever we wait for.

    It is done on the spot: an exception could come in the middle of another's end, and be the end of that.
    """
    launcher = os.getppid()

    def look_up(number: int, _: FrameType | None) -> None:
        if _has_ended(channel) or (number == signal.SIGALRM and is_orphan(sandbox.pid, launcher)):
            leash.end()
            os._exit(0)

    signal.signal(signal.SIGIO, look_up)
    signal.signal(signal.SIGALRM, look_up)
    fcntl.fcntl(channel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(channel, fcntl.F_SETFL, fcntl.fcntl(channel, fcntl.F_GETFL) | os.O_ASYNC)
    look_up(signal.SIGIO, None)  # it may have been before


def _has_ended(channel: _socket.socket) -> bool:
    try:
        return not channel.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


def be_alone(*descriptors: int) -> None:
    """No terminal, nobody's signals, no other descriptor."""
    gc.disable()  # collecting an object of the launcher's would close its descriptor's number, now ours
    os.setsid()
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, *descriptors):
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def _prepare(sandbox: Sandbox, wanted: Wanted) -> tuple[int, Furnished]:
    with doing("joining the sandbox's network"):
        network = join(sandbox)
    with doing("setting up the sandbox's network"):
        signal.setitimer(signal.ITIMER_REAL, _NOW_AND_THEN, _NOW_AND_THEN)
        furnished = furnish(wanted)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return network, proved(furnished, network)


def proved(furnished: Furnished, network: int) -> Furnished:
    with doing("reading the sandbox's network back"):
        reasons = "; ".join(doubts(furnished, network))
    if reasons:
        raise HandoverError(f"the sandbox's network does not hold: {reasons}", ELSE)
    return furnished


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HandoverError(f"{what}: {error.strerror or error}", ELSE) from error


def hand_over(channel: _socket.socket, network: int, furnished: Furnished) -> None:
    roles = " ".join(listener.role for listener in furnished.listeners)
    full = "full" if furnished.table else "partial"
    descriptors = [listener.sock.fileno() for listener in furnished.listeners]
    say(channel, DONE, str(network), full, roles, *furnished.missing, descriptors=descriptors)
    for listener in furnished.listeners:
        listener.sock.close()


def fail(channel: _socket.socket, error: HandoverError) -> None:
    with contextlib.suppress(OSError):  # nobody is there to hear it
        say(channel, FAILED, error.what, error.hint)


def say(channel: _socket.socket, *fields: str, descriptors: list[int] | None = None) -> None:
    send(channel, "\0".join(fields).encode(), *(descriptors or ()))
