"""The gate's port on the host, for a command that has no network of its own: bound before the command starts.

Others on this machine can reach the port as well. So whoever comes must know a password, which is made for the
run and given to the command in the addresses of its proxy variables; nobody but this user and root can read
a process's variables.
"""

from __future__ import annotations

import os
import socket

from launcher.backends.place import Entrance

NAME = "egress"
UNOPENED = f"http://{NAME}:PASSWORD@127.0.0.1:PORT"  # as it is shown, where nothing is to be run
_BACKLOG = 4096


def open_entrance() -> Entrance:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    sock.listen(_BACKLOG)
    return Entrance(sock, NAME, os.urandom(24).hex())
