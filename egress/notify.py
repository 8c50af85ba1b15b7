"""A question on the desktop, where there is one: `notify-send`, which is left to itself.

What it says is for a person who may be looking elsewhere; the answer is given in `egress watch` or on the live
page. A program that asks for a hundred hosts makes a hundred questions, but not a hundred notifications.
"""

from __future__ import annotations

import asyncio
import html
import shutil
from collections.abc import Mapping

from egress.model import Host, Target
from egress.questions import Question
from egress.refusals import TABLE, Reason

_PAUSE = 3.0  # seconds between two notifications
_PATIENCE = 10.0  # with a desktop that does not answer


class Desktop:
    """Tells of questions; of none, if there is no notify-send in `environ`'s path."""

    def __init__(self, loop: asyncio.AbstractEventLoop, environ: Mapping[str, str]) -> None:
        self._loop = loop
        self._environ = dict(environ)
        self._program = shutil.which("notify-send", path=environ.get("PATH", ""))
        self._told = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, question: Question) -> None:
        """Not waited for, and never an error."""
        now = self._loop.time()
        if self._program is None or now - self._told < _PAUSE:
            return
        self._told = now
        task = self._loop.create_task(self._run(self._program, *words_of(question)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, *words: str) -> None:
        null = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *words, env=self._environ, stdin=null, stdout=null, stderr=null
            )
        except OSError:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def words_of(question: Question) -> list[str]:
    """The arguments of notify-send. Its body may be markup, and this one is none."""
    target = str(Target(Host(question.host), question.port))
    seconds = round(question.deadline - question.asked)
    why = TABLE[Reason(question.reason)].sentence.format(target=target, persona=question.persona)
    body = f"{why}. Answer in `egress watch` or on the live page; in {seconds} s it is a no"
    summary = f"egress: may {question.persona} reach {target}?"
    options = ["--app-name=egress", "--urgency=normal", f"--expire-time={seconds * 1000}"]
    return [*options, "--", _plain(summary), html.escape(_plain(body), quote=False)]


def _plain(text: str) -> str:
    """As ASCII on one line."""
    return text if text.isascii() and text.isprintable() else ascii(text)[1:-1]
