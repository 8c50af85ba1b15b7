"""A person's shell on a real terminal: tmux, in which keys are typed and of which the screen is read."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator

from launchkit import PATIENCE, Person

_PROMPT = re.compile(r"(?:^|\n)P(\d+)> *\Z")


class Screen:
    """bash at its prompt, `P1> ` and counting; the launcher is there as `launch`."""

    def __init__(self, person: Person, columns: int = 100, rows: int = 30) -> None:
        self._person = person
        self._server = ["tmux", "-f", "/dev/null", "-L", f"screen{os.urandom(4).hex()}"]
        self.prompts = 0
        self.is_lost = False  # something never came: there is no use in waiting for more
        words = " ".join(f"'{word}'" for word in person.words()[:-1])
        launch, start = person.home / "launch", person.home / "start"
        launch.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        launch.chmod(0o755)
        start.write_text("PS1='P\\#> '; HISTFILE=; PATH=$HOME:$PATH\n")
        person.own()
        shell = f"exec bash --noprofile --rcfile {start} -i"
        self._tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(person.project), shell)
        self.wait_for_prompt()

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """By tmux's names of them: Enter, C-c."""
        self._tmux("send-keys", *keys)

    def enter(self, line: str) -> None:
        self.type(line)
        self.press("Enter")

    def do(self, line: str) -> str:
        """Enter it, wait for the next prompt; the screen then."""
        self.enter(line)
        return self.wait_for_prompt()

    def text(self) -> str:
        return self._tmux("capture-pane", "-p").rstrip("\n")

    def paste(self, text: str) -> None:
        """In brackets, if the program has asked for them."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p", "-d")

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def wait_until(self, holds: Callable[[str], object]) -> str:
        deadline = time.monotonic() + PATIENCE
        while not holds(text := self.text()):
            self.is_lost = time.monotonic() > deadline
            assert not self.is_lost, f"the screen never came to that:\n{text}"
            time.sleep(0.01)
        return text

    def wait_for(self, words: str) -> str:
        return self.wait_until(lambda text: words in text)

    def wait_for_line(self, words: str) -> str:
        return self.wait_until(lambda text: words in text.splitlines())

    def wait_for_prompt(self) -> str:
        """One that was not there before, with nothing behind it."""

        def is_new(text: str) -> bool:
            found = _PROMPT.search(text)
            return bool(found) and int(found[1]) > self.prompts

        text = self.wait_until(is_new)
        found = _PROMPT.search(text)
        assert found
        self.prompts = int(found[1])
        return text

    def clear(self) -> None:
        self.do("clear")

    def close(self) -> None:
        """With all that still runs on it."""
        with contextlib.suppress(subprocess.CalledProcessError):  # its shell has ended, and so has it
            self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        env = self._person.env | {"TMUX_TMPDIR": str(self._person.home), "SHELL": "/bin/bash"}
        done = subprocess.run(
            [*self._server, *words],
            env=env,
            cwd=self._person.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
            **self._person.identity,
        )
        return done.stdout


@contextlib.contextmanager
def screen(person: Person) -> Iterator[Screen]:
    made = Screen(person)
    try:
        yield made
    finally:
        made.close()
