"""Setting up the network that this process has joined: loopback, routes, sockets, capture.

Loopback is brought up by bwrap, and whoever is faster kills it: an interface that comes up gives itself
127.0.0.1, and bwrap, which adds that address before it raises the interface, then fails because it
exists. So we wait for bwrap; the kernel tells when. A network that nobody is at work on is another matter:
there we raise it ourselves.

Whatever a kernel lacks is named, never passed over: the caller decides whether it may be missing.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Callable, Iterator

from egress.record import NamedTuple
from launcher.netns import listening
from launcher.netns.capture import table
from launcher.netns.kernel import NETFILTER, ROUTE, Kernel
from launcher.netns.model import Capture, Listener, Role, Wanted
from launcher.netns.nftables import Table, batch
from launcher.netns.routes import ADD_OWN_ADDRESS, AF_INET, AF_INET6, LINK_CHANGES, LOOPBACK_UP, local_default

_GET_FLAGS, _UP = 0x8913, 0x1


class Furnished(NamedTuple):
    listeners: tuple[Listener, ...]
    families: tuple[int, ...] = ()  # whose every address is local
    table: Table | None = None  # None: nothing is redirected
    missing: tuple[str, ...] = ()

    def having(self, role: Role) -> Iterator[Listener]:
        return (listener for listener in self.listeners if listener.role is role)


def furnish(wanted: Wanted, loopback: Callable[[], None] | None = None) -> Furnished:
    (loopback or await_loopback)()
    listeners = tuple(listening.named(wanted))
    if wanted.capture is Capture.OFF:
        return Furnished(listeners)
    ipv6 = listening.has_ipv6()
    families = (AF_INET, AF_INET6) if ipv6 else (AF_INET,)
    with Kernel(ROUTE) as kernel:
        kernel.tell(ADD_OWN_ADDRESS, *map(local_default, families))
    captured = _capture(wanted, ipv6)
    missing = captured.missing if ipv6 else (*captured.missing, "IPv6 (the kernel or this network has it off)")
    everyone = (*listeners, *listening.name_servers(ipv6), *captured.listeners)
    return captured._replace(listeners=everyone, families=families, missing=missing)


def await_loopback() -> None:
    """Wait for bwrap to bring loopback up, and until all that follows from it is done."""
    with Kernel(ROUTE, LINK_CHANGES) as changes, Kernel(ROUTE) as kernel:
        while not _loopback_is_up():
            changes.hear()
        # The flag is set before IPv6 has its ::1. A change that changes nothing waits for the same lock.
        kernel.tell(LOOPBACK_UP)


def raise_loopback() -> None:
    with Kernel(ROUTE) as kernel:
        kernel.tell(LOOPBACK_UP)


def _loopback_is_up() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _GET_FLAGS, struct.pack("=16s24x", b"lo"))
    return bool(struct.unpack_from("=16xH", answer)[0] & _UP)


def _capture(wanted: Wanted, ipv6: bool) -> Furnished:
    if wanted.capture is Capture.FULL:
        try:
            return _all(ipv6)
        except OSError as error:
            lack = f"capture of every port (nftables: {error.strerror}): {_only(wanted)}"
    else:
        lack = f"capture of every port (not asked for): {_only(wanted)}"
    return Furnished(tuple(listening.capturing_ports(wanted, ipv6)), missing=(lack,))


def _only(wanted: Wanted) -> str:
    ports = " ".join(map(str, listening.capturable(wanted))) or "none"
    return f"captured are the ports {ports}, and DNS that goes to 127.0.0.1"


def _all(ipv6: bool) -> Furnished:
    capturing = tuple(listening.capturing_all(ipv6))
    try:
        rejects = listening.refusals()
        return Furnished((*capturing, rejects), table=_install(table(capturing[0].port)))
    except OSError as error:
        bare = table(capturing[0].port, logged=False)
        lack = f"the log of refused datagrams (nflog: {error.strerror})"
        return Furnished(capturing, table=_install(bare), missing=(lack,))


def _install(wanted: Table) -> Table:
    with Kernel(NETFILTER) as kernel:
        kernel.tell(*batch(wanted))
    return wanted
