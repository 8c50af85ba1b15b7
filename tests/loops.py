"""Runs a test on asyncio's loop and on uvloop's, and holds it to leaving nothing behind."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _alone(story: Coroutine[Any, Any, None]) -> None:
    before = open_descriptors()
    await story
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left"
    assert open_descriptors() == before, "a descriptor is left"


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test is a coroutine and may ask for fixtures as usual."""

    @functools.wraps(test)
    def wrapper(new_loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: object) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_alone(test(**fixtures)))

    asked = inspect.signature(test).parameters.values()
    loop = inspect.Parameter("new_loop", inspect.Parameter.KEYWORD_ONLY)
    wrapper.__signature__ = inspect.Signature([*asked, loop])  # type: ignore[attr-defined]  # pytest reads it
    return pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS.keys())(wrapper)
