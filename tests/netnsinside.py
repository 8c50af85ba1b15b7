"""Runs inside a sandbox: does what it is told, and prints what came of it.

netnsinside.py '[["tcp", "192.0.2.1", 9], …]'
"""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
import threading
from typing import Any

PATIENCE = 10


def _socket(ip: str, kind: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, kind)
    sock.settimeout(PATIENCE)
    return sock


def tcp(ip: str, port: int) -> list[Any]:
    """What the server said, and who we believe it is."""
    with _socket(ip, socket.SOCK_STREAM) as sock:
        sock.connect((ip, port))
        return [sock.recv(100).decode(), *sock.getpeername()[:2]]


def udp(ip: str, port: int) -> str:
    with _socket(ip, socket.SOCK_DGRAM) as sock:
        sock.connect((ip, port))
        sock.send(b"a datagram")
        return sock.recv(100).decode()


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def among_ourselves(ip: str) -> list[str]:
    """Two programs of the sandbox, over its loopback: TCP and UDP."""
    with _socket(ip, socket.SOCK_STREAM) as server, _socket(ip, socket.SOCK_DGRAM) as inbox:
        server.bind((ip, 0))
        server.listen()
        inbox.bind((ip, 0))
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"neighbour"))
        thread.start()
        said = tcp(*server.getsockname()[:2])[0]
        thread.join()
        with _socket(ip, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"note", inbox.getsockname())
        return [said, inbox.recv(100).decode()]


def serve(ip: str, port: int) -> list[Any]:
    """One connection to a server in here."""
    with _socket(ip, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ip, port))
        server.listen()
        print(f"serving {port}", flush=True)
        client, peer = server.accept()
        with client:
            client.sendall(f"served on {ip}".encode())
        return [peer[0]]


def attempt(name: str, *arguments: Any) -> Any:
    try:
        return globals()[name](*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


if __name__ == "__main__":
    print(json.dumps([attempt(*action) for action in json.loads(sys.argv[1])]), flush=True)
