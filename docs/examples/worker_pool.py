"""Workers that share one sandbox per project, and let it go when nobody has used it for a while.

    python docs/examples/worker_pool.py reviewer path/to/one path/to/another

A sandbox takes a moment to make and a command in one that is there takes milliseconds, so a service that runs many
commands keeps them. What is idle holds memory, so it is ended; the next command makes another.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from launcher import AsyncBox, Done, Sandbox, SandboxEnded, Settings


class Pool:
    """`async with Pool(settings) as pool: await pool.run(project, argv)`, from as many tasks as one likes."""

    def __init__(self, settings: Settings, idle: float = 300.0) -> None:
        self._settings, self._idle = settings, idle
        self._boxes: dict[str, asyncio.Task[AsyncBox]] = {}
        self._users: dict[str, int] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, project: str, argv: Sequence[str], timeout: float | None = None) -> Done:
        key = _key(project)
        self._users[key] = self._users.get(key, 0) + 1
        if (timer := self._ends.pop(key, None)) is not None:
            timer.cancel()
        try:
            return await self._try(key, argv, timeout)
        except SandboxEnded:  # somebody inside has ended it; once more, in a new one
            await self.close(key)
            return await self._try(key, argv, timeout)
        finally:
            self._left(key)

    async def _try(self, key: str, argv: Sequence[str], timeout: float | None) -> Done:
        if key not in self._boxes:  # the first to come makes it, and the others wait for the same one
            self._boxes[key] = asyncio.create_task(Sandbox(self._settings, project=key).open_async())
        try:
            box = await asyncio.shield(self._boxes[key])
        except Exception:
            self._boxes.pop(key, None)
            raise
        return await box.run(argv, timeout=timeout)

    def _left(self, key: str) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            self._ends[key] = asyncio.get_running_loop().call_later(self._idle, self._end, key)

    def _end(self, key: str) -> None:
        closing = asyncio.create_task(self.close(key))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self, key: str) -> None:
        if (making := self._boxes.pop(key, None)) is not None:
            await (await making).close()

    @property
    def projects(self) -> list[str]:
        """Those that have a sandbox now."""
        return sorted(self._boxes)

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *_: object) -> None:
        for timer in self._ends.values():
            timer.cancel()
        await asyncio.gather(*map(self.close, list(self._boxes)), *self._closing)


def _key(project: str) -> str:
    return os.path.realpath(project)


async def main(persona: str, projects: list[str]) -> None:
    async with Pool(Settings(persona=persona)) as pool:
        jobs = (pool.run(project, ["git", "status", "--short"], timeout=60) for project in projects)
        for project, done in zip(projects, await asyncio.gather(*jobs), strict=True):
            print(f"{project}: {done.code}, {len(done.stdout.splitlines())} changed, {len(done.blocked)} blocked")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
