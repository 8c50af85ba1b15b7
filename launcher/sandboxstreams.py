"""The three streams of a command that is not waited for: pipes, nothing, or files of the caller's.

What is handed over can be opened anew inside, by way of /proc/self/fd, as far as the user's rights go. A
directory would be a door to all that is around it on the host, so none is handed over.
"""

from __future__ import annotations

import os
import stat
import subprocess
from typing import IO, NamedTuple

from launcher.sandboxexchange import close, pipe
from launcher.sandboxresults import SandboxError

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
Stream = int | IO[bytes]


class Streams(NamedTuple):
    theirs: tuple[int, int, int]
    ours: tuple[int, int, int]  # -1 where it is no pipe
    made: tuple[int, ...]  # of theirs, those to be closed when the command has them


def streams(stdin: Stream, stdout: Stream, stderr: Stream) -> Streams:
    made: list[int] = []
    ours = [-1, -1, -1]
    theirs = [-1, -1, -1]
    try:
        for number, wanted in enumerate((stdin, stdout, stderr)):
            if wanted == STDOUT and number == 2:
                theirs[2] = theirs[1]
            else:
                theirs[number], ours[number] = _end(number, wanted, made)
    except BaseException:
        close(*made, *ours)
        raise
    return Streams((theirs[0], theirs[1], theirs[2]), (ours[0], ours[1], ours[2]), tuple(made))


def _end(number: int, wanted: Stream, made: list[int]) -> tuple[int, int]:
    """The command's end of a stream, and ours."""
    if wanted == PIPE:
        read, write = pipe()
        theirs, ours = (read, write) if number == 0 else (write, read)
        made.append(theirs)
        return theirs, ours
    if wanted == DEVNULL:
        made.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        return made[-1], -1
    descriptor = wanted if isinstance(wanted, int) else wanted.fileno()
    if descriptor < 0 or stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise SandboxError(f"{wanted!r} is no stream", "PIPE, DEVNULL, a file or its descriptor", 2)
    return descriptor, -1
