"""Who of an inspected connection is read on, and who waits.

A side that does not take what it is sent stops the other from being read. That goes for sockets, for HTTP/2
windows, and for requests that wait for the gate or for an upstream.

Nor may one connection keep all others waiting: of its frames only so many are worked off in a turn, and a client
of HTTP/2 with too many questions before the gate is not read until they are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized

from mitmproxy.connection import Connection

from egress.inspection.httpends import Back1, Front2
from egress.inspection.httpstream import Http
from egress.inspection.peer import Peer
from egress.limits import FRAMES

_UNSENT = 1024 * 1024  # bytes that a side does not take, from which on the other is not read


class Pace:
    """`turn` is called when frames are left, and others have had their turn."""

    def __init__(
        self,
        http: Http,
        client: Peer,
        peers: dict[Connection, Peer],
        asking: Sized,
        turn: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._http, self._client, self._peers, self._asking = http, client, peers, asking
        self._turn, self._loop = turn, loop
        self._has_turn = False
        self.early = 0  # bytes that a client of HTTP/1.1 sent before it had an answer or a server

    def balance(self) -> None:
        """Who is read on, now? HTTP/2 has windows for that: its sockets are read unless frames wait for their turn."""
        any_full = any_behind = False
        for connection, peer in self._peers.items():
            is_behind = self._http.is_behind(connection)
            any_behind = any_behind or is_behind
            if peer is not self._client:
                any_full = any_full or peer.is_full
                peer.read(not (is_behind or self._is_stuck(connection)))
        self._client.read(self._is_client_wanted(any_full))
        if any_behind:
            self._come_back()

    def answered(self) -> None:
        """The gate has a question less to think about."""
        if len(self._asking) == FRAMES.questions:  # and no longer more
            self.balance()

    @property
    def _asks_much(self) -> bool:
        return len(self._asking) > FRAMES.questions

    def _is_stuck(self, connection: Connection) -> bool:
        back = self._http.backs.get(connection)
        return isinstance(back, Back1) and self._http.is_answer_stuck(back.stream_id)

    def _is_client_wanted(self, any_full: bool) -> bool:
        if isinstance(self._http.front, Front2):
            return not (self._asks_much or self._http.is_behind(self._client.connection))
        return not (any_full or self.early > _UNSENT)

    def _come_back(self) -> None:
        if not self._has_turn and not self._asks_much:
            self._has_turn = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._has_turn = False
        self._turn()
        self.balance()
