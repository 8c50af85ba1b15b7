"""The sockets of a sandbox's network, each with its role. They are opened inside and used outside."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from launcher.netns.capture import log_to_this_socket
from launcher.netns.kernel import NETFILTER, Kernel
from launcher.netns.model import DNS_PORT, MOST_PORTS, Listener, Role, Wanted

BACKLOG = 4096  # the kernel queues what comes before the gate is ready
_LOOPBACK, _ANYWHERE = ("127.0.0.1", "::1"), ("0.0.0.0", "::")
_SOL_NETLINK, _NO_ENOBUFS = 270, 5


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def named(wanted: Wanted) -> Iterator[Listener]:
    """Those that programs know by their port."""
    if wanted.proxy_port is not None:
        yield Listener(Role.PROXY, _tcp("127.0.0.1", wanted.proxy_port))
    for port in wanted.host_ports:
        yield Listener(Role.HOST_PORT, _tcp("127.0.0.1", port))


def name_servers(ipv6: bool) -> Iterator[Listener]:
    for address in _LOOPBACK[: 1 + ipv6]:
        yield Listener(Role.DNS_UDP, _bound(socket.SOCK_DGRAM, address, DNS_PORT))
        yield Listener(Role.DNS_TCP, _tcp(address, DNS_PORT))


def capturing_all(ipv6: bool) -> Iterator[Listener]:
    """One port, chosen by the kernel, for everything that is redirected; the same in both families."""
    port = 0
    for address in _LOOPBACK[: 1 + ipv6]:
        listener = Listener(Role.CAPTURE, _tcp(address, port))
        port = listener.port
        yield listener


def capturable(wanted: Wanted) -> list[int]:
    return sorted({*wanted.ports} - {wanted.proxy_port, DNS_PORT, *wanted.host_ports})[:MOST_PORTS]


def capturing_ports(wanted: Wanted, ipv6: bool) -> Iterator[Listener]:
    """Any address on each of these ports; where it was going is then the socket's own name."""
    for port in capturable(wanted):
        for address in _ANYWHERE[: 1 + ipv6]:
            yield Listener(Role.CAPTURE, _tcp(address, port))


def refusals() -> Listener:
    kernel = Kernel(NETFILTER)
    # A flood may cost us messages, never the socket.
    kernel.sock.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
    kernel.tell(log_to_this_socket())
    return Listener(Role.REJECTS, kernel.sock)


def _tcp(address: str, port: int) -> socket.socket:
    sock = _bound(socket.SOCK_STREAM, address, port)
    sock.listen(BACKLOG)
    return sock


def _bound(kind: socket.SocketKind, address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        sock.bind((address, port))
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {address} port {port}") from error
    return sock
