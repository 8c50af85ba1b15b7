"""The process that goes into a network which somebody else made, and puts it back when it leaves.

It differs from the `helper` of a sandbox in all that is about life and death: this network is not ours. It is
looked at before anything is changed, nobody in it is ever killed, and when the channel ends, however that came
about, what was changed is changed back. The last word on the channel is how that went.
"""

from __future__ import annotations

import _socket
import contextlib
import os

from launcher.netns import before
from launcher.netns.connector import serve
from launcher.netns.furnish import furnish, raise_loopback
from launcher.netns.helper import be_alone, doing, fail, hand_over, proved, say
from launcher.netns.joining import join
from launcher.netns.model import DONE, FAILED, HandoverError, Sandbox, Wanted

_PUT_BACK = "see what is left with nsenter --target {pid} --user --net --preserve-credentials ip address"


def run(channel: _socket.socket, pid: int, wanted: Wanted) -> None:
    be_alone(channel.fileno())
    try:
        network = _enter(pid)
        with doing(f"looking at the network of process {pid}"):
            found = before.look(pid)
    except HandoverError as error:
        fail(channel, error)
        return
    try:
        _stay(channel, network, wanted)
    except HandoverError as error:
        before.restore(found)
        fail(channel, error)
    else:
        _leave(channel, pid, found)


def _enter(pid: int) -> int:
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            raise HandoverError(
                f"process {pid} is in the host's own network, which nobody can be kept in",
                "start it in one of its own: podman run --network none …, or unshare --net",
            )
        return join(Sandbox(pid))
    except (FileNotFoundError, ProcessLookupError):
        raise HandoverError(f"there is no process {pid}", "ps -e") from None
    except PermissionError:
        raise _not_ours(pid) from None


def _not_ours(pid: int) -> HandoverError:
    with contextlib.suppress(OSError):
        owner = os.stat(f"/proc/{pid}").st_uid
        return HandoverError(
            f"the network of process {pid} is not ours to join: its user is {owner}, ours {os.getuid()}",
            f"as whoever made that network, or as root: sudo egress attach --pid {pid} …",
        )
    return HandoverError(f"there is no process {pid}", "ps -e")


def _stay(channel: _socket.socket, network: int, wanted: Wanted) -> None:
    """Until the channel ends."""
    with doing("setting up the network"):
        furnished = furnish(wanted, raise_loopback)
    proved(furnished, network)
    with contextlib.suppress(OSError):  # nobody is there any more: that is the end, too
        hand_over(channel, network, furnished)
        serve(channel)


def _leave(channel: _socket.socket, pid: int, found: before.Before) -> None:
    left = before.restore(found)
    with contextlib.suppress(OSError):
        if left:
            words = f"the network of process {pid} is not as it was: {', '.join(left)} could not be taken away"
            say(channel, FAILED, words, _PUT_BACK.format(pid=pid))
        else:
            say(channel, DONE)
