"""What a network was before we came to it, whether we may stay, and how it is put back.

A network that somebody else made may have anything in it. We stay only where loopback is the one interface and
nobody has rules: a second interface is a way past ours, and rules of others would decide before or after them.
So all that is there later and was not before is our own, and can be taken away by name. Whoever lives inside may
have done so already; then there is nothing to do.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from egress.record import NamedTuple
from launcher.netns import routes
from launcher.netns.capture import NAME
from launcher.netns.kernel import NETFILTER, ROUTE, Kernel
from launcher.netns.model import HandoverError
from launcher.netns.netlink import Message
from launcher.netns.nftables import GET_TABLES, removal, table_names
from launcher.netns.routes import AF_INET, AF_INET6, LOOPBACK_ADDRESS, OWN_ADDRESS

_GONE = (errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL)
_LEFT = (
    "end that `egress attach` first; if it was killed: nsenter --target {pid} --user --net --preserve-credentials"
    " sh -c 'nft delete table inet egress; ip -4 route del local default table local; ip -6 route del local default"
    " table local; ip address del 192.0.0.8/32 dev lo'"
)


class Before(NamedTuple):
    is_up: bool  # loopback
    addresses: frozenset[bytes]
    everywhere: frozenset[int]  # the families whose every address is local already


def look(pid: int) -> Before:
    """Of the network that this process has joined, which is that of `pid`."""
    with Kernel(ROUTE) as kernel:
        found = kernel.ask(routes.GET_LINKS)
        if others := [name for name in routes.names(found) if name != "lo"]:
            raise _more_interfaces(pid, others)
        _refuse_rules(pid)
        return Before(
            all(link.is_up for link in routes.links(found)),
            frozenset(routes.addresses(kernel.ask(routes.GET_ADDRESSES))),
            frozenset(family for family in (AF_INET, AF_INET6) if _is_local(kernel, family)),
        )


def _more_interfaces(pid: int, names: list[str]) -> HandoverError:
    return HandoverError(
        f"the network of process {pid} has other interfaces than loopback, a way past the gate: {' '.join(names)}",
        "start it with none: podman run --network none …, or unshare --net",
    )


def _refuse_rules(pid: int) -> None:
    tables = list(_tables())
    if NAME in tables:
        raise HandoverError(f"the network of process {pid} has a gate already", _LEFT.format(pid=pid))
    if tables:
        words = f"the network of process {pid} has nftables rules of its own: {' '.join(tables)}"
        raise HandoverError(words, f"nsenter --target {pid} --user --net --preserve-credentials nft flush ruleset")


def _tables() -> Iterator[str]:
    with contextlib.suppress(OSError), Kernel(NETFILTER) as kernel:  # a kernel without nftables has none
        yield from table_names(kernel.ask(GET_TABLES))


def _is_local(kernel: Kernel, family: int) -> bool:
    return any(map(routes.is_local_default, kernel.ask(routes.get_routes(family))))


def restore(before: Before) -> list[str]:
    """What is still as we made it, in words: nothing, if all went well."""
    with Kernel(NETFILTER) as kernel:
        problems = [*_undone(kernel, "the rules", *removal(NAME))]
    with Kernel(ROUTE) as kernel:
        for what, message in _steps(before):
            problems += _undone(kernel, what, message)
    return problems


def _steps(before: Before) -> Iterator[tuple[str, Message]]:
    for family in {AF_INET, AF_INET6} - before.everywhere:
        yield "a route", routes.removal(routes.local_default(family))
    if OWN_ADDRESS not in before.addresses:
        yield "an address", routes.removal(routes.ADD_OWN_ADDRESS)
    if not before.is_up:
        if LOOPBACK_ADDRESS not in before.addresses:
            yield "an address", routes.removal(routes.on_loopback(LOOPBACK_ADDRESS, 8))
        yield "loopback", routes.LOOPBACK_DOWN


def _undone(kernel: Kernel, what: str, *messages: Message) -> Iterator[str]:
    try:
        kernel.tell(*messages)
    except OSError as error:
        if error.errno not in _GONE:
            yield f"{what} ({error.strerror})"
