"""The descriptors that bwrap is given: texts in memory, and files opened without following links.

bwrap binds by path, and between our look at a path in the project and its mount another sandbox in the same
project could put a link there, to have something bound that it could not see. Where bwrap knows how to
bind a descriptor it checks that it bound the same file, and gives up if not. It has done so since 0.10, and
in the 0.8 and 0.9 of distributions that took over the fix; so we do not ask for the version but look.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from launcher.bwrap import Descriptors
from launcher.mounts import Kind, Mount
from launcher.plan import Plan
from launcher.posts import open_beneath

_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_PROGRAM = 1 << 20


def binds_descriptors(bwrap: str) -> bool:
    try:
        fd = os.open(bwrap, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return b"--ro-bind-fd" in os.read(fd, _MOST_PROGRAM)
    finally:
        os.close(fd)


def carry(plan: Plan, with_binds: bool, given: Mapping[str, int]) -> Descriptors:
    """Open what the plan's mounts need. Placeholders must stand already; the caller closes all of it, `given` too."""
    data = {mount.path: memory(mount.text.encode(errors="surrogateescape")) for mount in _texts(plan)} | dict(given)
    beneath = [mount for mount in plan.mounts if mount.beneath] if with_binds else []
    binds: dict[str, int] = {}
    try:
        for mount in beneath:
            binds[mount.path] = open_beneath(mount.beneath, mount.path[len(mount.beneath) + 1 :], _PATH_ONLY)
    except BaseException:
        for fd in (*data.values(), *binds.values()):
            os.close(fd)
        raise
    return Descriptors(data=data, binds=binds)


def memory(content: bytes) -> int:
    """A descriptor to read this from."""
    fd = os.memfd_create("egress", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _texts(plan: Plan) -> list[Mount]:
    return [mount for mount in plan.mounts if mount.kind is Kind.TEXT]
