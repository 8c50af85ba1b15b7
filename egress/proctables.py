"""What /proc says, as text: whose end of a connection is it, and who is a process.

`net/tcp` and `net/tcp6` have a line for each TCP socket of a network (proc(5)):

      sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
       0: 0100007F:9C40 0100007F:0C38 01 00000000:00000000 00:00000000 00000000  1000        0 31337 1 ...

An address stands there as words of 32 bits in the machine's own order, a port as a plain number. A socket of
IPv6 that talks IPv4, as all of Java's do, is in `tcp6` with its addresses mapped (::ffff:192.0.2.1). One line
is wanted out of thousands, so the address is spelled as the kernel does and looked for as it stands.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

End = tuple[str, int]  # an address and a port
_MAPPED = bytes(10) + b"\xff\xff"
_LOCAL, _REMOTE, _INODE = 1, 2, 9
_STARTED = 19  # of the fields that follow a process's name; field 22 in all


def tables(ip: str) -> tuple[str, ...]:
    """The tables that a socket with this address may stand in, the likely one first."""
    return ("tcp", "tcp6") if isinstance(_plain(ip), IPv4Address) else ("tcp6",)


def owner(table: bytes, name: str, near: End, far: End) -> int | None:
    """The inode of the socket whose own end is `near`, in the table of that name.

    Two may have the same end, if they lead to different places: then it is the one that leads to `far`. But
    one that was redirected on its way believes itself elsewhere, and is only known while it is the only one.
    """
    wanted = spell(near, name)
    found = dict(_rows(table, wanted))
    inode = found.get(spell(far, name)) or (next(iter(found.values())) if len(found) == 1 else 0)
    return inode or None  # a socket that nobody has any more has the inode 0


def spell(end: End, name: str) -> bytes:
    """An address and a port as a table has them."""
    ip = _plain(end[0])
    packed = _MAPPED + ip.packed if name == "tcp6" and isinstance(ip, IPv4Address) else ip.packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "{}:{:04X}".format("".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words), end[1]).encode()


def pids(status: bytes) -> tuple[int, ...]:
    """A process's numbers, from `status`: as the reader counts, then as each namespace further in does."""
    return tuple(_numbers(status, b"\nNSpid:"))


def parent(status: bytes) -> int:
    """Who started it; 0 for nobody that the reader can see."""
    return next(_numbers(status, b"\nPPid:"), 0)


def started(stat: bytes) -> int | None:
    """When it began, from `stat`; with its number this is one process and no later one. Its name may be anything."""
    fields = stat.rpartition(b")")[2].split()
    return int(fields[_STARTED]) if len(fields) > _STARTED and fields[_STARTED].isdigit() else None


def children(text: bytes) -> list[int]:
    """The processes that a thread has started, the oldest first."""
    return [int(word) for word in text.split() if word.isdigit()]


def _rows(table: bytes, near: bytes) -> Iterator[tuple[bytes, int]]:
    """Where each socket with this end leads to, and its inode. A line that was cut is none."""
    at = table.find(near)
    while at >= 0:
        start, end = table.rfind(b"\n", 0, at) + 1, table.find(b"\n", at)
        fields = table[start:end].split() if end >= 0 else []
        if len(fields) > _INODE and fields[_LOCAL] == near and fields[_INODE].isdigit():
            yield fields[_REMOTE], int(fields[_INODE])
        at = table.find(near, at + len(near))


def _numbers(status: bytes, key: bytes) -> Iterator[int]:
    line = status.partition(key)[2].partition(b"\n")[0]
    return (int(word) for word in line.split() if word.isdigit())


def _plain(ip: str) -> IPv4Address | IPv6Address:
    """Without its zone, and not mapped."""
    address = ip_address(ip.partition("%")[0])
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
