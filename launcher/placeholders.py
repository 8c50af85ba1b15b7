"""Things that stand on the host where nothing is, so that the sandbox can have a mount there; and go again.

A mount needs something to be on (`launcher.protect`). bwrap would make an empty file and leave it; here it
is made before bwrap starts and removed when the sandbox has ended, whoever is killed in between:

    launcher    makes them, and removes them at the end
    warden      a process that outlives the launcher, and removes what it has left
    next run    if both were killed at once: a placeholder is known by its mode, so the next sandbox in
                this project takes it over as its own
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from launcher.plan import Placeholder
from launcher.posts import Posts, close, make, open_posts, sweep
from launcher.warden import Warden, wait, watch


class Held:
    """Placeholders of one sandbox, and the process that looks after them."""

    __slots__ = ("_posts", "_sandbox", "warden")

    def __init__(self, posts: Posts, warden: Warden) -> None:
        self._posts: Posts | None = posts
        self._sandbox = -1
        self.warden = warden

    def follow(self, pid: int) -> None:
        """The sandbox's pid 1, as the host counts: when it is gone, so are all processes inside."""
        self._sandbox = watch(pid)
        self.warden.follow(pid)

    def release(self) -> None:
        """Remove them when no process is left inside: bwrap itself ends a little earlier than these."""
        if self._posts is None:
            return
        wait(self._sandbox)
        sweep(self._posts)
        close(self._posts)
        self._posts = None
        if self._sandbox >= 0:
            os.close(self._sandbox)
        self.warden.dismiss()


def hold(wanted: Iterable[Placeholder]) -> Held:
    """Make placeholders, and have them looked after. It forks: no thread may exist yet."""
    posts = open_posts(wanted)
    try:
        held = Held(posts, Warden(posts))
    except BaseException:
        close(posts)
        raise
    try:
        for fd, group in posts.items():
            for place in group:
                make(fd, place)
    except BaseException:
        held.release()
        raise
    return held
