"""Who looks into requests: for TLS an engine that opens it, made when first needed; in the clear the gate itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from egress import originface
from egress.gateway import Gateway
from egress.passage import Passage


class Opener(Protocol):
    """Opens TLS, and serves what is inside."""

    def check(self, passage: Passage) -> None: ...
    async def take(self, passage: Passage) -> str: ...
    def close(self) -> None: ...


class Inspecting:
    def __init__(self, make_opener: Callable[[], Opener]) -> None:
        self._make_opener = make_opener
        self._opener: Opener | None = None

    def check(self, passage: Passage) -> None:
        """Refused, while the client can still be told in its own protocol."""
        if passage.rule.expects_tls(passage.target.port):
            self.start().check(passage)

    async def carry(self, gate: Gateway, passage: Passage) -> str:
        if passage.rule.expects_tls(passage.target.port):
            return await self.start().take(passage)
        return await originface.converse(gate, passage)

    def start(self) -> Opener:
        if self._opener is None:
            self._opener = self._make_opener()
        return self._opener

    def close(self) -> None:
        if self._opener is not None:
            self._opener.close()
