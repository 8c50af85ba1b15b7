"""The user's terminal, lent to the sandbox through a terminal of its own.

    the user's terminal  ◀──▶  master │ slave  ◀──▶  the sandbox

The sandbox never holds the user's terminal, so what it can do to one (TIOCSTI, TIOCLINUX, leaving it raw,
reading what is typed after Ctrl-Z) it does to its own. Of its three streams each that is a terminal outside
is our slave inside; each that is not is passed as it is.

    taken        the user's terminal is raw and every key goes to the slave, whose line discipline makes
                 Ctrl-C and Ctrl-Z of them for whichever job is in the foreground there
    not taken    it is as the user left it; what the sandbox writes is shown, and no key is read. Ctrl-C and
                 Ctrl-Z are signals to us, and handed on. The sandbox is a background job on its terminal

It is taken from the start if input and output are both terminals and we are in the foreground. Otherwise
(`-- make | less`, `-- make &`) others may want the keys, so it is taken when a program inside asks for it: the
kernel stops a background job that reads its terminal, and `keeper` tells of it.

The relay uses its own opening of the terminal: one held up by Ctrl-S must not hold up the gate, and making
the shared descriptor non-blocking would change it for the shell as well.
"""

from __future__ import annotations

import fcntl
import os
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from launcher.keeper import Stage
from launcher.mounts import PlanError

if TYPE_CHECKING:
    import asyncio

    from launcher.ttycopy import Copy

Mode = list[Any]  # as termios has it


class Terminal:
    """Opened before the sandbox starts, relayed while it runs, restored when it is over."""

    def __init__(self) -> None:
        try:
            self._master, self._slave = os.openpty()
        except OSError as error:
            raise PlanError(f"no terminal for the sandbox: {error.strerror}", "mount /dev/pts, or use a pipe") from None
        self._tty = _open_own(next(number for number in (0, 1, 2) if os.isatty(number)))
        self._before = termios.tcgetattr(self._tty)
        self._wanted = os.isatty(0) and os.isatty(1)
        self._formats = not os.isatty(1)  # others, further on in a pipeline, write to it
        self._ended: asyncio.Future[None] | None = None
        self._copies: list[Copy] = []
        self._lent = termios.tcgetattr(self._master)
        self.is_restored = True
        self._set_up()
        os.set_blocking(self._master, False)
        self.resize()

    def stage(self) -> Stage:
        """For the keeper."""
        streams = tuple(self._slave if os.isatty(number) else number for number in (0, 1, 2))
        ours = self._is_foreground()
        return Stage(
            self._slave, (streams[0], streams[1], streams[2]), self._wanted and ours, ours, self._tty, self._give_back
        )

    def take(self, *, asked: bool = False) -> bool:
        """Make every key the sandbox's, if it wants them and they are ours to give; whether it has them."""
        self._wanted = self._wanted or asked
        try:
            taken = self._wanted and self._is_foreground() and self._make_raw()
        except termios.error:  # it is gone
            taken = False
        self.is_restored = not taken
        self._set_up()
        for copy in self._copies[1:]:
            copy.start() if taken else copy.rest()
        return taken

    def restore(self) -> None:
        if self.is_restored:
            return
        self.is_restored = True
        for copy in self._copies[1:]:
            copy.rest()
        with suppress(termios.error):  # it is gone, and nobody to restore it for
            termios.tcsetattr(self._tty, termios.TCSADRAIN, self._before)

    def show_all(self) -> None:
        """What the sandbox has written so far, before we stop."""
        for copy in self._copies[:1]:
            copy.catch_up()

    def resize(self) -> None:
        with suppress(OSError):
            size = fcntl.ioctl(self._tty, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def relay(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Copy both ways until the sandbox's side is closed by all who had it, or the user's is gone."""
        from launcher.ttycopy import Copy

        os.close(self._slave)
        self._slave = -1
        self._ended = loop.create_future()
        show = Copy(loop, self._master, self._tty, self._finish, self._hang_up)
        type_in = Copy(loop, self._tty, self._master, self._hang_up, _ignore)
        self._copies = [show, type_in]
        show.start()
        if not self.is_restored:
            type_in.start()
        return self._ended

    def close(self) -> None:
        self.restore()
        for descriptor in (self._master, self._slave, self._tty):
            if descriptor >= 0:
                os.close(descriptor)

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._tty) == os.getpgrp()
        except OSError:  # it is not the terminal of our session: nobody arranges who has it
            return True

    def _make_raw(self) -> bool:
        if self.is_restored:  # the user may have changed it while we were stopped
            self._before = termios.tcgetattr(self._tty)
        termios.tcsetattr(self._tty, termios.TCSADRAIN, self._raw())
        return True

    def _raw(self) -> Mode:
        raw = _raw(self._before)
        if self._formats:
            raw[1] = self._before[1]
        return raw

    def _give_back(self) -> None:
        """For the one who outlives us: nobody else may have set it since."""
        with suppress(termios.error):
            if termios.tcgetattr(self._tty) == self._raw():
                termios.tcsetattr(self._tty, termios.TCSANOW, self._before)

    def _set_up(self) -> None:
        """As the user's is, until a program inside has set it; but line ends are made by one of the two only."""
        with suppress(termios.error):
            now = termios.tcgetattr(self._master)
            is_lent = now == self._lent
            mode = list(self._before) if is_lent else now
            formatted = self.is_restored or self._formats
            mode[1] = mode[1] & ~termios.OPOST | (0 if formatted else self._before[1] & termios.OPOST)
            termios.tcsetattr(self._master, termios.TCSANOW, mode)
            self._lent = termios.tcgetattr(self._master) if is_lent else self._lent

    def _finish(self) -> None:
        for copy in self._copies:
            copy.stop()
        self._copies = []
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _hang_up(self) -> None:
        """The user's terminal is gone; let the sandbox's go the same way."""
        self._finish()
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, self._master, inheritable=False)
        os.close(nothing)


def _open_own(number: int) -> int:
    """The terminal that this stream is, opened once more."""
    try:
        os.tcgetpgrp(number)
        path = "/dev/tty"  # also after `su`, when its own name is not ours to open
    except OSError:  # not that of our session
        path = f"/proc/self/fd/{number}"
    try:
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)


def _raw(mode: Mode) -> Mode:
    inward, outward, control, local, *speeds, keys = mode
    inward &= ~(
        termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP
        | termios.INLCR | termios.IGNCR | termios.ICRNL | termios.IXON
    )  # fmt: skip
    outward &= ~termios.OPOST
    control = control & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    local &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    keys = list(keys)
    keys[termios.VMIN], keys[termios.VTIME] = 1, 0
    return [inward, outward, control, local, *speeds, keys]


def _ignore() -> None:
    """Keys for a sandbox that has no terminal any more."""
