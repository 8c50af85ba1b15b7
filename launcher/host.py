"""The process that holds a sandbox for a program: `python -P -m launcher.host CHANNEL`.

The program may have threads and event loops; making a sandbox takes forks and a process that has neither. So it
is made here, as `egress-launch` makes one, with a first command that does nothing: `cat`, on two pipes of
ours. What it says back, it says when all mounts are made and all walls stand; when we end, so does its input.
Whoever kills it ends the sandbox, as the end of any first command does.

From the channel's first packet come the options, and with its end comes ours.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from launcher import hostwords as words
from launcher import interrupts, options, run, usage
from launcher.mounts import PlanError
from launcher.netns.connector import receive
from launcher.room import load_filters

_PATIENCE_MS = 20_000
_HOLDERS = ("/usr/bin/cat", "/bin/cat")
_FAILED = 125


def main() -> int:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    with suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:
        name.write("egress-host")
    try:
        _host(channel, _opening(channel))
    except PlanError as error:
        return _complain(channel, str(error), error.hint, error.status)
    except interrupts.Interrupted as signalled:
        return signalled.code
    except OSError as error:
        return _complain(channel, str(error), "egress doctor", _FAILED)
    return 0


def _opening(channel: socket.socket) -> words.Open:
    _, (what,) = receive(channel, words.MOST, words.DESCRIPTORS)
    opening = words.to_host(os.pread(what, words.MOST_ASKED, 0))
    os.close(what)
    if not isinstance(opening, words.Open):
        raise PlanError(f"{type(opening).__name__} came first, expected Open", "use launcher.Sandbox")
    os.environb.clear()
    os.environb.update(opening.environ)
    return opening


def _host(channel: socket.socket, opening: words.Open) -> None:
    values = options.read(opening.words)
    asked = options.options(values if values is not None else usage.parse(opening.words), [_holder()])
    session = run.prepare(asked)
    try:
        if session.site is not None:
            what = session.options.backend
            raise PlanError(f"backend {what}: a sandbox that is held is bubblewrap's", "backend='bwrap', or wrap()", 2)
        _make(channel, session)
    finally:
        run.end(session)


def _holder() -> str:
    return next(filter(os.path.exists, _HOLDERS), "cat")


def _make(channel: socket.socket, session: run.Session) -> None:
    from launcher.enter import Usher

    filters = load_filters(session.options)
    interrupts.hold()
    with _spoken_to() as (mouth, ear):
        room = run.make_room(session, filters)
        try:
            with Usher(room, filters) as usher:
                room.release()
                _await(mouth, ear)
                usher.join()
                missing = room.confined.enforced.missing if room.confined else ()
                from launcher import hosting

                warnings = (*filters.warnings, *filters.doubts, *missing)
                hosting.serve(hosting.Held(session, room, usher, channel), warnings)
        finally:
            room.close()


@contextmanager
def _spoken_to() -> Iterator[tuple[int, int]]:
    """Our streams, which the first command gets, are pipes to ourselves: what we say into it, and what it says."""
    (inside, mouth), (ear, outside) = os.pipe(), os.pipe()
    os.dup2(inside, 0)
    os.dup2(outside, 1)
    os.close(inside)
    os.close(outside)
    try:
        yield mouth, ear
    finally:
        os.close(mouth)
        os.close(ear)


def _await(mouth: int, ear: int) -> None:
    """Until the first command runs. From then on our own streams lead nowhere."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.write(mouth, b"x")
    heard = select.poll()
    heard.register(ear, select.POLLIN)
    if not heard.poll(_PATIENCE_MS) or not os.read(ear, 1):
        raise PlanError("the sandbox was made, and its first command does not run", "egress doctor")
    os.dup2(null, 2)
    os.close(null)


def _complain(channel: socket.socket, message: str, hint: str, status: int) -> int:
    with suppress(OSError):  # the caller is gone
        channel.send(words.encode(words.Failed(message, hint or "egress doctor", status)))
    return status


if __name__ == "__main__":
    sys.exit(main())
