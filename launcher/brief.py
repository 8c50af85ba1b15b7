"""Commands that are over before the gate could be there, and never needed it.

Importing the gate takes longer than `git status` does. So for a moment after the release we only wait: for the
command's end, or for anything to arrive on a socket of the sandbox. If the end comes first, there is nothing
to decide and nothing to put on record, and no gate is started.
"""

from __future__ import annotations

import os
import select

from launcher import process
from launcher.room import Room

_MOMENT_MS = 12


def exit_code(room: Room) -> int | None:
    """The code of a command that ended at once and asked nothing; None if a gate is needed after all."""
    if room.child is None or room.handover is None:
        return None
    life = os.pidfd_open(room.child.pid)
    try:
        if not _ended_silently(life, [listener.sock.fileno() for listener in room.handover.listeners]):
            return None
    finally:
        os.close(life)
    if not room.has_run():
        return None
    return process.exit_code(room.reap())


def _ended_silently(life: int, sockets: list[int]) -> bool:
    waiting = select.poll()
    for descriptor in (life, *sockets):
        waiting.register(descriptor, select.POLLIN)
    heard = {descriptor for descriptor, _ in waiting.poll(_MOMENT_MS)}
    return heard == {life}
