"""Whether an engine that was started is there: a sandbox whose engine is not must not run."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from egress.counts import SLOTS, Counts
from egress.enginestart import Config, Started
from launcher.engine import Engine, wait_until_ready
from launcher.mounts import PlanError


@pytest.fixture
def line() -> Iterator[tuple[Engine, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    counts = Counts.make(SLOTS)
    with ours, theirs, contextlib.closing(counts):
        yield Engine(Config(), Started(0, ours), counts, {}), theirs
    os.close(counts.fd)


def test_an_engine_that_has_spoken_is_ready_and_its_word_is_left_for_the_gate(
    line: tuple[Engine, socket.socket],
) -> None:
    engine, theirs = line
    theirs.send(b"ready")
    wait_until_ready(engine)
    assert engine.started.line.recv(100) == b"ready"


def test_an_engine_that_ended_without_a_word_is_not_ready(line: tuple[Engine, socket.socket]) -> None:
    engine, theirs = line
    theirs.close()
    with pytest.raises(PlanError, match="ended at once"):
        wait_until_ready(engine)


def test_an_engine_that_ended_with_a_word_unread_is_not_ready(line: tuple[Engine, socket.socket]) -> None:
    """Then the line is reset, and not merely at its end."""
    engine, theirs = line
    engine.started.line.send(b"to nobody")
    theirs.close()
    with pytest.raises(PlanError, match="ended at once"):
        wait_until_ready(engine)
