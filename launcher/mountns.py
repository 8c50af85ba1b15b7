"""Cutting a sandbox's mounts off from the host's, from outside, while it runs.

bwrap makes its mounts slaves of the host's. Where those are shared, as systemd sets them up, whatever the host
mounts later below a visible directory appears inside too, and is writable there. So all of them are made
private; bwrap has no option for it. It does not matter when: what bwrap binds after that are copies of
private mounts.

Who started a sandbox may enter its mount namespace as its owner, by way of the user namespace that the kernel
says owns it. Once there, every path is the sandbox's: a program that so much as imports a module runs what
the sandbox has put in its place. So everything is loaded before, no descriptor but two is taken along, and
inside there is one system call and the end.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from launcher.netns.joining import setns

_GET_USER_NAMESPACE = 0xB701  # ioctl_ns(2)
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000


def cut_off(pid: int) -> bool:
    """Let no mount of the host into the namespace of this process any more. It forks: no thread may exist."""
    import ctypes  # costs some milliseconds, and is for a process that has them

    mount = ctypes.CDLL(None, use_errno=True).mount
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(namespace, _GET_USER_NAMESPACE)
    is_ours = os.fstat(owner).st_ino == os.stat("/proc/self/ns/user").st_ino
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _keep_only(namespace, owner)
            if not is_ours:
                setns(owner)
            setns(namespace)
            status = int(mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) != 0)
        finally:
            os._exit(status)
    os.close(namespace)
    os.close(owner)
    return os.waitpid(child, 0)[1] == 0


def _keep_only(*kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):  # the listing's own
                os.close(int(name))
