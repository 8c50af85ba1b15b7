"""The relay bridge: from 127.0.0.1 inside a sandbox to the gate's Unix socket.

    python3 -I relay.py SOCKET PORT -- COMMAND [ARG]…

For sandboxes whose network nobody can join. This is the one thing of ours that runs inside, so it is small,
needs nothing but the standard library, and may be killed: without it there is no network at all.

It listens before the command starts, so the command's first connection never races it. The command is its
child; the relay ends with it and gives its exit code on. A connection is two flows, each with one buffer
that is read into only when empty: a peer that does not take its data is not read for.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
ROOM = 256 * 1024
BACKLOG = 4096
_NOT_FOUND, _NOT_RUNNABLE, _LAUNCHER = 127, 126, 125
_SHARED = (signal.SIGINT, signal.SIGQUIT)  # the terminal gives them to the command as well
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_A_MOMENT, _LAST_WORDS = 0.05, 1.0


class Flow:
    """One direction: what was read from the source and the sink has not taken yet."""

    __slots__ = ("data", "ended", "sink", "source")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.data = memoryview(b"")
        self.ended = False

    def read(self) -> None:
        self.data = memoryview(self.source.recv(ROOM))
        self.write()

    def write(self) -> None:
        if self.data:
            with contextlib.suppress(BlockingIOError):
                self.data = self.data[self.sink.send(self.data) :]
        else:
            self.ended = True
            self.sink.shutdown(socket.SHUT_WR)


class Pair:
    """Two connected sockets and the flows between them."""

    __slots__ = ("flows", "socks")

    def __init__(self, client: socket.socket, gate: socket.socket) -> None:
        self.socks = (client, gate)
        self.flows = (Flow(client, gate), Flow(gate, client))

    def interest(self, sock: socket.socket) -> int:
        there = (READ for flow in self.flows if flow.source is sock and not flow.data and not flow.ended)
        back = (WRITE for flow in self.flows if flow.sink is sock and flow.data)
        return sum(there) + sum(back)

    def handle(self, sock: socket.socket, events: int) -> None:
        for flow in self.flows:
            if events & READ and flow.source is sock and not flow.data and not flow.ended:
                flow.read()
            elif events & WRITE and flow.sink is sock and flow.data:
                flow.write()

    def is_over(self) -> bool:
        return all(flow.ended for flow in self.flows)


class Relay:
    def __init__(self, path: str, port: int) -> None:
        self._path = path
        self._pairs: set[Pair] = set()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(self._listener, READ, self._accept)

    def watch(self, descriptor: int) -> None:
        """Return from `wait` soon after this becomes readable."""
        self._selector.register(descriptor, READ, lambda _: os.read(descriptor, 64))

    def wait(self, timeout: float | None = None) -> bool:
        """Relay what is there to relay; whether there was anything in that time."""
        ready = self._selector.select(timeout)
        for key, events in ready:
            if self._selector.get_map().get(key.fd) is key:  # an earlier event may have closed or changed it
                act: Callable[[int], object] = key.data
                act(events)
        return bool(ready)

    def finish(self) -> None:
        """Bring on its way what the command had sent when it ended."""
        latest = time.monotonic() + _LAST_WORDS
        while self._pairs and time.monotonic() < latest and self.wait(_A_MOMENT):
            pass

    def _accept(self, _: int) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors: let some connection end
            time.sleep(_A_MOMENT)
            return
        gate = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        pair = Pair(client, gate)
        self._pairs.add(pair)
        try:
            gate.connect(self._path)
        except OSError:
            self._drop(pair)
            return
        for sock in pair.socks:
            sock.setblocking(False)
        self._update(pair)

    def _handle(self, pair: Pair, sock: socket.socket, events: int) -> None:
        try:
            pair.handle(sock, events)
        except BlockingIOError:
            return
        except OSError:
            self._drop(pair)
            return
        if pair.is_over():
            self._drop(pair)
        else:
            self._update(pair)

    def _update(self, pair: Pair) -> None:
        known = self._selector.get_map()
        for sock in pair.socks:
            key, interest = known.get(sock), pair.interest(sock)
            if (key.events if key else 0) != interest:
                self._unregister(sock)
                if interest:
                    self._selector.register(sock, interest, partial(self._handle, pair, sock))

    def _drop(self, pair: Pair) -> None:
        self._pairs.discard(pair)
        for sock in pair.socks:
            self._unregister(sock)
            sock.close()

    def _unregister(self, sock: socket.socket) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(sock)


def run(relay: Relay, command: list[str]) -> int:
    """Run the command and relay for it; its exit code, as a shell gives it."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    relay.watch(woken)
    child = _start(command)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            relay.finish()
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        relay.wait()


def _start(command: list[str]) -> int:
    """The command's process; signals wait until both sides know what they are to do with them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SHARED + _PASSED_ON)
    child = os.fork()
    if child == 0:
        _become(command)
    for number in _SHARED:
        signal.signal(number, signal.SIG_IGN)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SHARED + _PASSED_ON)
    return child


def _become(command: list[str]) -> NoReturn:
    # Python ignores the first two, and what is ignored stays so over exec; the third it turns into an exception.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SHARED + _PASSED_ON)
    try:
        os.execvp(command[0], command)  # noqa: S606  # a list of words, and no shell
    except OSError as error:
        found = not isinstance(error, FileNotFoundError) and _is_anywhere(command[0])
        _say(f"{command[0]!r} cannot be run: {error.strerror if found else 'not found'}")
        os._exit(_NOT_RUNNABLE if found else _NOT_FOUND)


def _is_anywhere(command: str) -> bool:
    """A folder of PATH that may not be looked into says EACCES too, and is not the command's fault."""
    folders = [""] if "/" in command else os.get_exec_path()
    return any(os.path.exists(os.path.join(folder, command)) for folder in folders)


def _say(error: str) -> None:
    os.write(2, f"egress: error: {error}\n".encode())


def main(words: list[str]) -> int:
    if len(words) < 4 or words[2] != "--" or not words[1].isascii() or not words[1].isdigit():
        _say(f"relay: expected SOCKET PORT -- COMMAND, got {words!r}")
        return 2
    try:
        relay = Relay(words[0], int(words[1]))
    except (OSError, OverflowError) as error:
        _say(f"relay: cannot listen on 127.0.0.1 port {words[1]}: {error}")
        return _LAUNCHER
    return run(relay, words[3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
