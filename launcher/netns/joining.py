"""Joining the network namespace of a process.

The user namespace to join first is the one that *owns* the network, which the kernel names
(ioctl_ns(2)); /proc/PID/ns/user may be another, nested one, and as root there may be none to join.
Joining a user namespace needs a single-threaded process, so only a freshly forked one does it.
"""

from __future__ import annotations

import fcntl
import os
import sys

from launcher.netns.model import HandoverError, Sandbox

_GET_USER_NAMESPACE = 0xB701


def join(sandbox: Sandbox) -> int:
    """Enter the sandbox's network for good; the namespace's number."""
    network = os.open(f"/proc/{sandbox.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    number = os.fstat(network).st_ino
    if number == os.stat("/proc/self/ns/net").st_ino:
        raise HandoverError("the sandbox has no network of its own", "start bwrap with --unshare-net")
    if sandbox.network not in (0, number):
        raise HandoverError(f"process {sandbox.pid} is not in network {sandbox.network}", "the sandbox is gone")
    owner = fcntl.ioctl(network, _GET_USER_NAMESPACE)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        setns(owner)
    setns(network)
    os.close(owner)
    os.close(network)
    return number


if sys.version_info >= (3, 12):

    def setns(namespace: int) -> None:
        os.setns(namespace, 0)

else:
    import ctypes

    _libc = ctypes.CDLL(None, use_errno=True)

    def setns(namespace: int) -> None:
        if _libc.setns(namespace, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
