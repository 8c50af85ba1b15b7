"""The caller's end of a sandbox: starting the process that holds it, asking it for commands, ending it.

Everything here may be called from any thread: a request is one packet, and each command has a line of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from launcher import hostsealed
from launcher import hostwords as words
from launcher.descriptors import memory
from launcher.mounts import PlanError
from launcher.netns.connector import send
from launcher.sandboxresults import SandboxEnded, SandboxError

_PATIENCE = 60.0  # for a sandbox to be made; inspection takes a second of it on a slow machine
_END = 10.0
_MOST_SAID = 4096
_CODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

Streams = tuple[int, int, int]


class Host:
    """A running sandbox."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, ready: words.Ready) -> None:
        self._process, self._channel = process, channel
        self.ready = ready

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, request: words.Start, streams: Streams) -> socket.socket:
        """Ask for a command; its line."""
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        what = memory(words.encode(request))
        try:
            send(self._channel, b"start", what, *streams, theirs.fileno())
        except OSError:
            line.close()
            raise ended() from None
        finally:
            os.close(what)
            theirs.close()
        return line

    def close(self) -> None:
        """To be called once or more; nothing of the sandbox is left afterwards."""
        self._channel.close()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def ended() -> SandboxEnded:
    return SandboxEnded("the sandbox has ended", "make another")


def launch(options: Sequence[str]) -> Host:
    """Make a sandbox, and wait until it takes commands."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(_PATIENCE)
    try:
        process = _start(theirs)
    except (PlanError, OSError) as error:
        ours.close()
        raise SandboxError(str(error), getattr(error, "hint", "") or "egress doctor") from None
    finally:
        theirs.close()
    try:
        ready = _greet(ours, process, list(options))
    except BaseException:
        Host(process, ours, _NEVER).close()
        raise
    finally:
        if process.stderr is not None:
            process.stderr.close()
    ours.settimeout(None)
    return Host(process, ours, ready)


_NEVER = words.Ready("", "", {}, [])


def command_line(program: str) -> list[str]:
    """This Python, running a module of ours, whatever lies in the directory that it is started in."""
    return [sys.executable, "-P", "-m", program]


def _start(theirs: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*command_line("launcher.host"), str(theirs.fileno())],
        executable=hostsealed.program(),
        env=environment(os.environ, hostsealed.libraries()),
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def environment(environ: Mapping[str, str], libraries: str | None) -> dict[str, str]:
    """For its Python: our code is found first, and nothing by a path that is not absolute."""
    paths = [_CODE, *filter(os.path.isabs, environ.get("PYTHONPATH", "").split(":"))]
    found = {**environ, "PYTHONPATH": ":".join(paths)}
    if libraries is not None:
        found["LD_LIBRARY_PATH"] = ":".join(filter(None, (libraries, environ.get("LD_LIBRARY_PATH", ""))))
    return found


def _greet(channel: socket.socket, process: subprocess.Popen[bytes], options: list[str]) -> words.Ready:
    try:
        opening = memory(words.encode(words.Open(options, dict(os.environb))))
        try:
            send(channel, b"open", opening)
        finally:
            os.close(opening)
        answer = channel.recv(words.MOST_ANSWER)
    except OSError as error:
        raise SandboxError(f"the sandbox's process gave no answer: {error}", _said(process)) from None
    if not answer:
        raise SandboxError("the sandbox's process ended without an answer", _said(process))
    match words.to_caller(answer):
        case words.Ready() as ready:
            return ready
        case words.Failed(message, hint, status):
            raise SandboxError(message, hint, status)
        case other:
            raise SandboxError(f"the sandbox's process said {other!r}, expected Ready")


def _said(process: subprocess.Popen[bytes]) -> str:
    """The end of what it, or bwrap, complained of."""
    assert process.stderr is not None  # noqa: S101  # it is a pipe
    os.set_blocking(process.stderr.fileno(), False)
    text = (process.stderr.read(_MOST_SAID) or b"").decode(errors="replace").strip()
    return text.splitlines()[-1] if text else "egress doctor"
