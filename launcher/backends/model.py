"""What a sandbox can be made with, and what of its promises each way cannot keep.

bubblewrap keeps them all. Everything else is weaker, each in its own way, and weaker is never silent: what a
run does without is a word of `Lack`, said before anything else and written into every record of the log. The
vocabulary is closed, so that a reader of a log knows all that can be missing; SENTENCES has what each means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from egress.record import NamedTuple


class Backend(StrEnum):
    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    PODMAN = "podman"
    DOCKER = "docker"
    NONE = "none"


CONTAINERS = (Backend.PODMAN, Backend.DOCKER)


class Lack(StrEnum):
    NETWORK = "network"
    CAPTURE = "capture"
    FILES = "files"
    PROTECT = "protect"
    PROCESSES = "processes"
    SIGNALS = "signals"
    CALLS = "calls"
    DEVICES = "devices"
    TRUNCATE = "truncate"
    SURVIVORS = "survivors"


SENTENCES: Mapping[Lack, str] = {
    Lack.NETWORK: "a program that ignores its proxy variables reaches the internet, and the log does not know",
    Lack.CAPTURE: "a program that ignores its proxy variables has no network, and the log does not say so",
    Lack.FILES: "all files of this user can be read and written, secrets, policy and log among them",
    Lack.PROTECT: "protected files in writable directories can be changed; what was changed is told at the end",
    Lack.PROCESSES: "processes of the host can be seen, with their command lines, and those of this user slowed down",
    Lack.SIGNALS: "processes of this user can be sent signals",
    Lack.CALLS: "system calls are not filtered",
    Lack.DEVICES: "devices that can be opened can be controlled in every way (ioctl)",
    Lack.TRUNCATE: "files that can only be read can be emptied, where their permissions allow it",
    Lack.SURVIVORS: "what is killed together with both of its keepers leaves its processes behind",
}


class Fit(NamedTuple):
    """A backend that can be used here, and what it lacks here."""

    backend: Backend
    lacks: tuple[Lack, ...] = ()


class Unfit(NamedTuple):
    backend: Backend
    why: str
    hint: str


class Chosen(NamedTuple):
    fit: Fit
    passed_over: tuple[Unfit, ...] = ()  # what was wanted more


def words(fit: Fit) -> str:
    """The line that names it."""
    if not fit.lacks:
        return f"backend {fit.backend}"
    return f"warning: backend {fit.backend} does not enforce: {', '.join(fit.lacks)}"


def sentences(lacks: Iterable[Lack]) -> list[str]:
    return [f"{lack}: {SENTENCES[lack]}" for lack in lacks]
