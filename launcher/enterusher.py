"""The process that lets commands into a sandbox: it stands in the door, and forks.

It is forked from the host's process before that has threads or a loop, joins all of the sandbox's namespaces,
and stays. It is not *in* the sandbox: it has no number there, so nothing inside can address it. But its
mounts are the sandbox's, and so are the processes that it forks (`enterchild`).

The attack to know: a path that this process opens, or a module that it imports, is the sandbox's, and would be
run with our rights. So all that it will ever need is loaded before it joins; afterwards Python's own audit
hook ends it at the first act that is not on a short list. (The interpreter itself asks /proc/self/stat for its
threads, after a fork. It gets no answer: who has no number inside has no /proc/self there.) And the program
that it runs is a sealed copy where the sandbox's user could write the original (`hostsealed`): a script whose
first line is `#!/proc/self/exe` becomes that program.

    host → usher    J                      join
                    R <id>  + descriptors  run: what (in memory), three streams, where to report
                    S <id> <signal>        to its process group, if it has not ended
    usher → host    J <errno>              joined, or why not
                    B <id> <pid>           it began, with this number on the host
                    E <id> <status>        it ended
                    N <id> <errno>         there is no process for it

The end of the channel is the host's end: the sandbox is killed, and only when it is gone does this process end.
Until then the program that it runs cannot be written, whatever holds it open inside.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

from launcher import entercalls
from launcher.enterchild import FAILED, Walls, become, paths, unpack
from launcher.netns.connector import receive

PACKET, DESCRIPTORS = 256, 5  # most of one message
_MOST = 16 << 20  # bytes of a command; the kernel takes less
_PERMITTED = frozenset(
    {
        *("os.fork", "os.exec", "os.chdir", "os.killpg", "resource.setrlimit", "fcntl.fcntl"),
        *("ctypes.get_errno", "ctypes.set_errno", "array.__new__", "signal.pidfd_send_signal"),
    }
)


class Usher:
    def __init__(self, channel: socket.socket, sandbox: int, walls: Walls) -> None:
        self._channel, self._sandbox, self._walls = channel, sandbox, walls
        self._pids: dict[int, int] = {}  # by the id of the command
        self._lives: dict[int, int] = {}  # ids, by pidfd
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def stay(self) -> None:
        """Until the channel ends, or the sandbox cannot be joined."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._lives:
                    self._ended(descriptor)
                elif not self._heard():
                    return

    def _heard(self) -> bool:
        data, descriptors = receive(self._channel, PACKET, DESCRIPTORS)
        kind, numbers = data[:1], [int(word) for word in data[1:].split()]
        if kind == b"J":
            return self._join()
        if kind == b"R":
            self._run(numbers[0], descriptors)
        elif kind == b"S":
            self._signal(*numbers)
        return bool(data)

    def _join(self) -> bool:
        sys.addaudithook(_refuse)
        try:
            entercalls.join(self._sandbox)
        except OSError as error:
            self._say(b"J %d" % (error.errno or 0))
            return False
        self._say(b"J 0")
        return True

    def _run(self, number: int, descriptors: list[int]) -> None:
        try:
            what, *streams, report = descriptors
            command = unpack(os.pread(what, _MOST, 0))
            places = paths(command.argv[0], command.env)
            pid = os.fork()
            if pid == 0:
                become(command, places, self._walls, streams, report)
            self._pids[number] = pid
            life = os.pidfd_open(pid)
            self._lives[life] = number
            self._poll.register(life, select.POLLIN)
            self._say(b"B %d %d" % (number, pid))
        except OSError as error:
            self._say(b"N %d %d" % (number, error.errno or 0))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _signal(self, number: int, what: int) -> None:
        if number in self._pids:  # not waited for, so its number is its own
            with suppress(OSError):
                os.killpg(self._pids[number], what)

    def _ended(self, life: int) -> None:
        self._poll.unregister(life)
        os.close(life)
        number = self._lives.pop(life)
        _, status = os.waitpid(self._pids.pop(number), 0)
        self._say(b"E %d %d" % (number, status))

    def _say(self, words: bytes) -> None:
        with suppress(OSError):  # the host is gone, which the next look at the channel tells
            self._channel.send(words)


def serve(channel: socket.socket, sandbox: int, walls: Walls) -> NoReturn:
    """`sandbox` is the pidfd of its first process. To be called right after the fork."""
    try:
        _withdraw(channel.fileno(), sandbox)
        entercalls.be_closed()
        Usher(channel, sandbox, walls).stay()
    finally:
        _end(sandbox)


def _end(sandbox: int) -> NoReturn:
    """The first process is not gone before all others were waited for, and some are ours to wait for."""
    try:
        with suppress(OSError):  # it has ended
            signal.pidfd_send_signal(sandbox, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        over = select.poll()
        over.register(sandbox, select.POLLIN)
        over.poll()
    finally:
        os._exit(0)


def _withdraw(*kept: int) -> None:
    """Nobody's signals, no other descriptor, no word to anybody."""
    gc.disable()  # collecting an object of the host's would close its descriptor's number, now ours
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, *kept):
            with suppress(OSError):  # the listing's own
                os.close(int(name))


def _refuse(event: str, _: tuple[object, ...]) -> None:
    if event not in _PERMITTED:
        os._exit(FAILED)
