"""Full capture, as values: which packets of a sandbox go where.

With every address local (see `routes`), two chains do the rest. `divert` looks at the first packet of a
flow: DNS goes to our name server, whichever server it was meant for, the stubs on 127.0.0.53 included;
loopback and the sandbox's own address are left alone; all other TCP goes to the capture port, and
conntrack remembers where it was going. `refuse` stands at the input, not the output: a packet rejected on
its way out makes `sendto` fail with EPERM, one rejected on arrival gives ECONNREFUSED at once, which is
what makes QUIC fall back to TCP. Replies pass it: those of our own name server go to addresses that are
not loopback. So nothing but the gate answers, not even the kernel's own echo.

Each refusal is also given to a log group. That socket too is opened inside and handed over, so the host
learns of datagrams that never had a chance.
"""

from __future__ import annotations

import struct

from launcher.netns.model import DNS_PORT
from launcher.netns.netlink import Attribute, Message, number
from launcher.netns.nftables import (
    Chain,
    Table,
    accept,
    at_most,
    is_reply,
    log,
    protocol,
    redirect,
    reject,
    to_address,
    to_loopback,
)
from launcher.netns.routes import OWN_ADDRESS

NAME = "egress"
LOG_GROUP = 1
LOGGED_PER_SECOND, LOGGED_AT_ONCE = 100, 500  # a flood must not become the host's flood
_BEFORE_ROUTING, _FILTER = -100, 0
_LOG_CONFIG = 4 << 8 | 1
_BIND, _COPY_PACKET = 1, 2
_HEADERS = 64  # bytes of a refused packet that we want to see


def table(capture_port: int, *, logged: bool = True) -> Table:
    local = tuple((place, accept()) for place in (to_loopback(4), to_loopback(6), to_address(OWN_ADDRESS)))
    divert = (
        (protocol("udp", DNS_PORT), redirect(DNS_PORT)),
        (protocol("tcp", DNS_PORT), redirect(DNS_PORT)),
        *local,
        (protocol("tcp"), redirect(capture_port)),
    )
    refuse = (
        *local,
        (is_reply(), accept()),
        *([(at_most(LOGGED_PER_SECOND, LOGGED_AT_ONCE), log(LOG_GROUP))] if logged else []),
        (protocol("udp"), reject("port-unreachable")),
        (reject("admin-prohibited"),),
    )
    chains = (
        Chain("divert", "nat", "output", _BEFORE_ROUTING, divert),
        Chain("refuse", "filter", "input", _FILTER, refuse),
    )
    return Table(NAME, chains)


def log_to_this_socket() -> Message:
    """Who sends this hears the group: headers only, each packet at once rather than a hundred together."""
    attributes = (
        Attribute(1, bytes([_BIND])),
        Attribute(2, struct.pack(">IBx", _HEADERS, _COPY_PACKET)),
        number(5, 1),
    )
    return Message(_LOG_CONFIG, struct.pack(">BBH", 0, 0, LOG_GROUP), attributes)
