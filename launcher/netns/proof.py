"""Does it hold? Asked of the kernel, from inside, before the command may run.

Exit codes and acknowledgements say what was meant. These checks read back what is: which interfaces,
routes and rules there are; and then try: a connection to an address of nobody must arrive at our socket
with that address, a question to any name server must be answered from that server's address, and a
datagram must come back refused and be told of.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from launcher.netns.captured import Destination, Rejected, Rejects, original_destination
from launcher.netns.furnish import Furnished
from launcher.netns.kernel import NETFILTER, ROUTE, Kernel
from launcher.netns.model import Role
from launcher.netns.namespace import network_of
from launcher.netns.nftables import GET_CHAINS, GET_RULES, differences
from launcher.netns.routes import GET_LINKS, LOOPBACK, Link, get_routes, is_local_default, links

NOBODY = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # documentation, RFC 5737 and RFC 3849
_DISCARD = 9
_PATIENCE = 2.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_QUESTION = b"egress"


def doubts(furnished: Furnished, network: int) -> Iterator[str]:
    """Every reason to think that it does not hold; none is the proof."""
    with Kernel(ROUTE) as kernel:
        yield from _interfaces(kernel)
        yield from _routes(kernel, furnished)
    for listener in furnished.listeners:
        if network_of(listener.sock) != network:
            yield f"the {listener.role} socket is in another network"
    yield from _rules(furnished)
    for family in furnished.families:
        yield from _tried(furnished, socket.AddressFamily(family))


def _interfaces(kernel: Kernel) -> Iterator[str]:
    found = list(links(kernel.ask(GET_LINKS)))
    if found != [Link(LOOPBACK, is_loopback=True, is_up=True)]:
        yield f"the interfaces are {found!r}, expected loopback alone, and up"


def _routes(kernel: Kernel, furnished: Furnished) -> Iterator[str]:
    for family in furnished.families:
        if not any(map(is_local_default, kernel.ask(get_routes(family)))):
            yield f"no route makes every address local ({socket.AddressFamily(family).name})"


def _rules(furnished: Furnished) -> Iterator[str]:
    if furnished.table is None:
        return
    with Kernel(NETFILTER) as kernel:
        yield from differences(furnished.table, kernel.ask(GET_CHAINS), kernel.ask(GET_RULES))


def _tried(furnished: Furnished, family: socket.AddressFamily) -> Iterator[str]:
    for attempt in (_connection, _question, _datagram):
        try:
            yield from attempt(furnished, family)
        except OSError as error:
            yield f"{attempt.__name__.lstrip('_')} ({family.name}): {error}"


def _connection(furnished: Furnished, family: socket.AddressFamily) -> Iterator[str]:
    listener = next((each for each in furnished.having(Role.CAPTURE) if each.sock.family == family), None)
    if listener is None:  # no port was asked for
        return
    wanted = Destination(NOBODY[family], _DISCARD if furnished.table else listener.port)
    listener.sock.settimeout(_PATIENCE)
    with _client(family, socket.SOCK_STREAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        client.connect(wanted)
        accepted, _ = listener.sock.accept()
        with accepted:
            found = original_destination(accepted)
    if found != wanted:
        yield f"a connection to {wanted} was seen as one to {found}"


def _question(furnished: Furnished, family: socket.AddressFamily) -> Iterator[str]:
    listener = next(each for each in furnished.having(Role.DNS_UDP) if each.sock.family == family)
    listener.sock.settimeout(_PATIENCE)
    with _client(family, socket.SOCK_DGRAM) as client:
        # Connected: an answer from any other address than the one that was asked is not accepted.
        client.connect((NOBODY[family], listener.port) if furnished.table else listener.sock.getsockname())
        client.send(_QUESTION)
        question, asker = listener.sock.recvfrom(len(_QUESTION))
        listener.sock.sendto(question, asker)
        if client.recv(len(_QUESTION)) != _QUESTION:
            yield f"the name server's answer did not come back ({family.name})"


def _datagram(furnished: Furnished, family: socket.AddressFamily) -> Iterator[str]:
    with _client(family, socket.SOCK_DGRAM) as client:
        client.connect((NOBODY[family], _DISCARD))
        client.send(_QUESTION)
        try:
            client.recv(1)
            yield f"a datagram to {NOBODY[family]} was answered"
        except ConnectionRefusedError:
            pass
    for listener in furnished.having(Role.REJECTS):
        if Rejects(listener.sock).read() != [Rejected("udp", NOBODY[family], _DISCARD)]:
            yield f"a refused datagram to {NOBODY[family]} was not told of"


def _client(family: socket.AddressFamily, kind: socket.SocketKind) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.settimeout(_PATIENCE)
    return sock
