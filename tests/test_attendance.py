"""Clients that wait for an answer, and those that do not."""

from __future__ import annotations

import asyncio

import pytest
from gatekit import tcp_pair

from egress.attendance import is_gone, unless_gone
from egress.net.stream import Stream


async def forever(ended: list[str]) -> str:
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        ended.append("ended")
        raise
    return "never"


async def test_an_answer_is_passed_on_at_once() -> None:
    with tcp_pair() as (near, _):
        assert await unless_gone(Stream(near, asyncio.get_running_loop()), asyncio.sleep(0, "yes"), "gone") == "yes"


@pytest.mark.parametrize("words", [b"", b"a ClientHello that nobody has read"])
async def test_a_client_that_leaves_ends_the_wait_whatever_it_has_said(words: bytes) -> None:
    ended: list[str] = []
    with tcp_pair() as (near, far):
        client = Stream(near, asyncio.get_running_loop())
        far.sendall(words)
        assert not is_gone(client)
        waiting = asyncio.ensure_future(unless_gone(client, forever(ended), "gone", every=0.005))
        await asyncio.sleep(0)
        far.close()
        assert await waiting == "gone"
        await asyncio.sleep(0)
        assert ended == ["ended"]
        assert near.recv(100) == words


async def test_when_the_wait_is_ended_from_outside_so_is_the_work() -> None:
    ended: list[str] = []
    with tcp_pair() as (near, _):
        waiting = asyncio.ensure_future(unless_gone(Stream(near, asyncio.get_running_loop()), forever(ended), "gone"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0)
        assert ended == ["ended"]


async def test_an_error_of_the_work_is_an_error_of_the_wait() -> None:
    async def fails() -> str:
        raise OSError("no")

    with tcp_pair() as (near, _), pytest.raises(OSError, match="no"):
        await unless_gone(Stream(near, asyncio.get_running_loop()), fails(), "gone")
