"""The host's side of one sandbox, from bwrap's start to its end; prints what both sides saw.

    netnsstory.py '{"bwrap": [flag…], "wanted": {…}, "command": [word…]}'

A program rather than a function, so that it can be run by root and by an ordinary user alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
from typing import Any

from launcher.netns.captured import Rejects, original_destination
from launcher.netns.connector import Connector
from launcher.netns.handover import Handover, Joiner
from launcher.netns.model import Capture, Listener, Role, Wanted

ANSWER = "198.18.0.7"


class Bwrap:
    """Started and held, with its output on a pipe."""

    def __init__(self, words: list[str], joiner: Joiner, output: int | None = None) -> None:
        self.output, its_output = os.pipe() if output is None else (-1, os.dup(output))
        told = ["--info-fd", str(joiner.info), "--block-fd", str(joiner.block)]
        given = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in (joiner.info, joiner.block)]
        actions = [*given, (os.POSIX_SPAWN_DUP2, its_output, 1)]
        argv = ["bwrap", *told, "--die-with-parent", *words]
        self.pid = os.posix_spawnp("bwrap", argv, os.environ, file_actions=actions)
        os.close(its_output)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def dns_answer(query: bytes) -> bytes:
    """One A record, whatever the question; for AAAA an empty answer."""
    end = query.index(b"\0", 12) + 5
    is_a = query[end - 4 : end - 2] == b"\0\x01"
    header = query[:2] + b"\x81\x80" + b"\0\x01" + (b"\0\x01" if is_a else b"\0\0") + b"\0\0\0\0"
    record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04" + socket.inet_aton(ANSWER)
    return header + query[12:end] + (record if is_a else b"")


class Host:
    def __init__(self, handover: Handover, bwrap: Bwrap, connector: Connector | None) -> None:
        self.handover, self.bwrap, self.connector = handover, bwrap, connector
        self.seen: list[list[Any]] = []
        self.output = b""
        self.rejects = [Rejects(each.sock) for each in handover.listeners if each.role is Role.REJECTS]

    def serve(self) -> None:
        listeners = {each.sock: each for each in self.handover.listeners}
        while True:
            ready, _, _ = select.select([self.bwrap.output, *listeners], [], [], 30)
            for one in ready:
                if isinstance(one, socket.socket):
                    self.handle(listeners[one])
            if self.bwrap.output in ready and not self.read_output():
                break
        for rejects in self.rejects:  # what it had sent before it ended
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.seen += [["rejected", *rejected] for rejected in rejects.read()]

    def read_output(self) -> bool:
        data = os.read(self.bwrap.output, 65536)
        self.output += data
        if data.startswith(b"serving ") and self.connector:
            with self.connector.connect(int(data.split()[1])) as sock:
                self.seen.append(["connected", sock.recv(100).decode()])
        return bool(data)

    def handle(self, listener: Listener) -> None:
        if listener.role is Role.REJECTS:
            self.seen += [["rejected", *rejected] for rejected in self.rejects[0].read()]
        elif listener.role is Role.DNS_UDP:
            query, asker = listener.sock.recvfrom(4096)
            self.seen.append([listener.role])
            listener.sock.sendto(dns_answer(query) if len(query) > 16 else query.upper(), asker)
        else:
            self.accept(listener)

    def accept(self, listener: Listener) -> None:
        sock, _ = listener.sock.accept()
        with sock:
            sock.setblocking(True)
            self.seen.append([listener.role, *original_destination(sock)])
            if listener.role is Role.DNS_TCP:
                answer = dns_answer(sock.recv(4096)[2:])
                sock.sendall(len(answer).to_bytes(2, "big") + answer)
            else:
                sock.sendall(f"the {listener.role} of {listener.port}".encode())


def tell(request: dict[str, Any]) -> dict[str, Any]:
    wanted = Wanted(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in request["wanted"].items()}
    )
    wanted = wanted._replace(capture=Capture(wanted.capture))
    with Joiner(wanted) as joiner:
        bwrap = Bwrap([*request["bwrap"], "--", *request["command"]], joiner)
        handover = joiner.join()
        joiner.release()
        host = Host(handover, bwrap, joiner.connector)
        host.serve()
        status = bwrap.wait()
    lines = host.output.decode().strip().splitlines()
    return {
        "seen": host.seen,
        "inside": json.loads(lines[-1]) if lines else None,
        "status": status,
        "full": handover.full,
        "missing": handover.missing,
        "ports": {each.role: each.port for each in handover.listeners if each.role is not Role.REJECTS},
    }


if __name__ == "__main__":
    print(json.dumps(tell(json.loads(sys.argv[1]))))
