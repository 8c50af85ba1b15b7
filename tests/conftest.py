"""What the tests of running gates share."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from gatekit import descriptors, until
from loops import LOOPS


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A module with `LOOPS = "asyncio", "uvloop"` runs on both: the gate does, and their readers differ."""
    wanted = getattr(item.getparent(pytest.Module).obj, "LOOPS", ("asyncio",))
    return {name: LOOPS[name] for name in wanted}


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """After the test there is no task and no descriptor more than before, and no error went unseen."""
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    tasks, files = _others(), descriptors()
    yield
    try:
        await until(lambda: _others() <= tasks and len(descriptors()) <= len(files))
    except TimeoutError:
        pytest.fail(f"left behind: {_others() - tasks}, {descriptors().items() - files.items()}")
    gc.collect(1)  # what was made in this test is young
    assert unseen == []


def _others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}
