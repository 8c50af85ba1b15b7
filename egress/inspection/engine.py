"""The engine's process: it opens TLS for the gate, and knows nothing but what the gate tells it.

A command may wait for the session's certificate, so that comes first: the authority is made, what a sandbox
needs to trust it is written, and `Ready` is said. Only then is mitmproxy imported, which takes longer than all
of that; connections that are handed over meanwhile wait in the line. The process holds the authority's key
and, for moments, credentials: nobody may trace it or read its memory, and it does not outlive the gate.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from egress.counts import ENGINE, Counts
from egress.enginestart import BUNDLE, CERTIFICATE, COUNTS, FILL, KEYSTORE, LINE, Config, read_config
from egress.inspection import bundle
from egress.inspection.authority import Authority
from egress.inspection.channel import Channel
from egress.inspection.messages import Open, Reached, Ready, Stop, ToEngine, Unreached, Verdict

if TYPE_CHECKING:
    from egress.inspection.connection import House, Inspected

_DIE_WITH_PARENT, _DUMPABLE = 1, 4  # prctl
_LOOK = 1.0  # seconds
# mallopt: buffers of 256 KiB come and go with every read, and glibc would give each back to the kernel at once.
_MMAP_FROM, _TRIM_FROM = -3, -1


class Engine:
    """All connections that the gate handed over."""

    def __init__(self, channel: Channel, house: House, make: type[Inspected]) -> None:
        self._channel, self._house, self._make = channel, house, make
        self._held: dict[int, Inspected] = {}
        house.loop.call_later(_LOOK, self._look)

    def hear(self, message: ToEngine, fd: int | None) -> None:
        if isinstance(message, Open) and fd is not None:
            self._held[message.conn] = held = self._make(self._house, message, self._forget)
            held.start(fd)
            return
        held_now = self._held.get(message.conn)
        if fd is not None and (held_now is None or not isinstance(message, Reached)):
            os.close(fd)
        if held_now is not None:
            _tell(held_now, message, fd)

    def _forget(self, conn: int) -> None:
        self._held.pop(conn, None)

    def _look(self) -> None:
        self._house.loop.call_later(_LOOK, self._look)
        now = self._house.loop.time()
        for held in list(self._held.values()):
            held.look(now)


def _tell(held: Inspected, message: ToEngine, fd: int | None) -> None:
    if isinstance(message, Verdict):
        held.decided(message)
    elif isinstance(message, Reached) and fd is not None:
        held.reached(message.serial, fd)
    elif isinstance(message, Unreached):
        held.unreached(message)
    elif isinstance(message, Stop):
        held.stop()


def main() -> None:
    parent = os.getppid()
    _shut_in(parent)
    config = read_config()
    authority, roots = _authority(config), bundle.roots(os.environ)
    line = socket.socket(fileno=LINE)
    if config.fill:
        _fill(config.fill, authority, roots)
    _say_ready(line, authority)
    _serve(config, authority, roots, line)


def _shut_in(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command; the gate ends us
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_MMAP_FROM, 4 << 20)
        libc.mallopt(_TRIM_FROM, 16 << 20)
    if os.getppid() != parent:  # it was gone before that was said
        os._exit(1)


def _authority(config: Config) -> Authority:
    if config.key:
        return Authority.load(config.key, config.certificate, config.names or None)
    return Authority.make(config.names)


def _fill(wanted: tuple[str, ...], authority: Authority, roots: tuple[bytes, ...]) -> None:
    """What a sandbox trusts, into files that its mounts are made of."""
    from egress.inspection.keystore import keystore

    ours = authority.certificate_pem
    (own,) = bundle.certificates(ours)
    contents = {
        BUNDLE: bundle.bundle(roots, ours),
        CERTIFICATE: ours,
        KEYSTORE: keystore(roots, own, time.time()),
    }
    for fd, word in enumerate(wanted, FILL):
        with open(fd, "wb") as file:
            file.write(contents[word])


def _say_ready(line: socket.socket, authority: Authority) -> None:
    import msgspec

    line.send(msgspec.msgpack.encode(Ready(authority.key_pem, authority.certificate_pem)))


def _serve(config: Config, authority: Authority, roots: tuple[bytes, ...], line: socket.socket) -> None:
    gc.disable()  # what is imported stays
    logging.disable(logging.CRITICAL)  # mitmproxy's; what happened is told to the gate
    from egress.inspection.connection import House, Inspected
    from egress.inspection.tlsends import Ends

    ends = Ends(authority, roots, config.upstream_roots)
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    channel = Channel(line, loop, ToEngine, lambda *heard: engine.hear(*heard), loop.stop)
    engine = Engine(channel, House(loop, ends, Counts(COUNTS, ENGINE), channel.send), Inspected)
    gc.freeze()
    gc.enable()
    loop.run_forever()
    os._exit(0)  # with nothing to tidy up: the gate is gone


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
