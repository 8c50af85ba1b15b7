"""The engine's process: it opens TLS for the gate, and knows nothing but what the gate tells it.

It has its authority from who started it, or makes one, and says `Ready`. Only then is mitmproxy imported, which
takes longer; connections that are handed over meanwhile wait in the line. The process holds the authority's key
and, for moments, credentials: nobody may trace it or read its memory, and it does not outlive the gate.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket

from egress.enginestart import COUNTS, LINE, Config, read_config
from egress.inspection import bundle
from egress.inspection.authority import Authority

_DIE_WITH_PARENT, _DUMPABLE = 1, 4  # prctl
# mallopt: buffers of 256 KiB come and go with every read, and glibc would give each back to the kernel at once.
_MMAP_FROM, _TRIM_FROM = -3, -1


def main() -> None:
    parent = os.getppid()
    _shut_in(parent)
    config = read_config()
    authority, roots = _authority(config), bundle.roots(os.environ)
    line = socket.socket(fileno=LINE)
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


def _say_ready(line: socket.socket, authority: Authority) -> None:
    import msgspec

    from egress.inspection.messages import Ready

    line.send(msgspec.msgpack.encode(Ready(authority.key_pem, authority.certificate_pem)))


def _serve(config: Config, authority: Authority, roots: tuple[bytes, ...], line: socket.socket) -> None:
    gc.disable()  # what is imported stays
    from egress.counts import Counts
    from egress.inspection import switchboard

    counts = Counts(COUNTS, config.column, config.columns)
    switchboard.open_line(line, counts, authority, roots, config.upstream_roots).run_forever()
    os._exit(0)  # with nothing to tidy up: the gate is gone
