"""The Claude Agent SDK, with its agent in a sandbox.

    python docs/examples/agent_sdk.py implementer 'what does this project do?'

The SDK starts the `claude` program and talks to it by its streams; `cli_path` says which program that is. So it is
given a small script that starts `claude` by way of `egress-launch`, with whatever words the SDK adds. All tools that
the agent uses then run inside, too, and what it may reach is the persona's to say.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from launcher import Sandbox


@contextmanager
def sandboxed_cli(sandbox: Sandbox, program: str = "claude") -> Iterator[str]:
    """The path of a program that is this one, in a sandbox of its own each time. No sandbox can write there."""
    with tempfile.TemporaryDirectory(prefix="egress-cli-") as folder:
        path = os.path.join(folder, "claude")
        with open(path, "w", encoding="utf-8") as script:
            script.write(f'#!/bin/sh\nexec {shlex.join(sandbox.wrap([program]))} "$@"\n')
        os.chmod(path, 0o700)
        yield path


async def main(persona: str, prompt: str) -> None:
    from claude_agent_sdk import ClaudeAgentOptions, query

    with sandboxed_cli(Sandbox(persona=persona)) as path:
        options = ClaudeAgentOptions(cli_path=path, cwd=os.getcwd())
        async for message in query(prompt=prompt, options=options):
            print(message)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
