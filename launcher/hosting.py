"""The gate of a sandbox that a program of the user's holds: it serves connections and commands alike.

What a launcher would say on its error stream is kept, and goes to the caller: with `Ready`, or with the end of
the next command.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import NamedTuple

import uvloop

from egress import app
from launcher import hostwords as words
from launcher.backends.place import Watching
from launcher.enter import Usher
from launcher.hostcommands import Commands
from launcher.hostdenials import Denials
from launcher.netns.connector import receive
from launcher.room import Room
from launcher.run import Session
from launcher.serve import Serving

_MOST_KEPT, _LONGEST = 100, 300  # lines, and letters of one


class Held(NamedTuple):
    """What was made, to be served."""

    session: Session
    room: Room
    usher: Usher
    channel: socket.socket


def serve(held: Held, warnings: tuple[str, ...]) -> None:
    gc.freeze()
    gc.enable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Hosting(held, warnings).run())


class _Hosting(Serving):
    def __init__(self, held: Held, warnings: tuple[str, ...]) -> None:
        limit = held.session.options.resources.timeout  # the persona's, for a command; a sandbox has no end of its own
        resources = held.session.options.resources._replace(timeout=None)
        session = held.session._replace(options=held.session.options._replace(resources=resources))
        super().__init__(session, held.room, None, warnings)
        self._usher, self._channel, self._limit, self._end = held.usher, held.channel, limit, held.room.joiner.end
        self._kept: list[str] = []
        self._commands: Commands | None = None

    async def run(self) -> int:
        try:
            return await super().run()
        finally:
            if self._commands is not None:
                self._commands.close()

    def _attend(self, gate: app.Gate, watch: Watching, loop: asyncio.AbstractEventLoop) -> None:
        super()._attend(gate, watch, loop)
        plan = self._session.plan
        env = {_bytes(name): _bytes(value) for name, value in plan.env.items()}
        denials = Denials(self._room.sandbox, self._entered)
        gate.audit.subscribe(denials.read)
        commands = self._commands = Commands(self._usher, denials, env, self._limit, self._take_kept, loop)
        self._channel.send(words.encode(words.Ready(gate.audit.session, plan.directory, env, self._take_kept())))
        loop.add_reader(self._channel.fileno(), self._asked, commands)
        loop.add_reader(self._usher.channel.fileno(), self._told, commands)

    def _asked(self, commands: Commands) -> None:
        """By the caller, whose end is the sandbox's."""
        try:
            data, descriptors = receive(self._channel, words.MOST, words.DESCRIPTORS)
        except OSError:
            data, descriptors = b"", []
        if data:
            commands.start(descriptors)
        else:
            self._end()

    def _told(self, commands: Commands) -> None:
        """By the usher, without whom there are no commands."""
        if not commands.hear():
            asyncio.get_running_loop().remove_reader(self._usher.channel.fileno())
            self._end()

    def _take_kept(self) -> list[str]:
        kept, self._kept = self._kept, []
        return kept

    def _say(self, message: str) -> None:
        self._kept = [*self._kept, *(line[:_LONGEST] for line in message.splitlines())][-_MOST_KEPT:]


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
