"""What differs in a gate that is one of several workers: who reads the policy, and who answers people."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from egress.colleagues import Line
from egress.crew import Crew, Worker
from egress.following import Following, Overseen
from egress.gateway import Gateway
from egress.leading import Leading
from egress.oversight import Desks, Wishes
from egress.policy import Policy
from egress.questions import Questions
from egress.reception import with_listener
from egress.reload import Reloader, Shared
from egress.vault import Vault

Files = tuple[Callable[[], Policy], Callable[[], Hashable], Vault]  # to load, whether they changed, their secrets
Report = Callable[[str], None]


def lead(gate: Gateway, crew: Crew, questions: Questions | None) -> Leading:
    return Leading([Line(ours, gate.loop) for ours, _ in crew.lines], gate, questions)


def follow(gate: Gateway, worker: Worker, wishes: Wishes, desks: Desks | None, reloader: Reloader) -> Overseen:
    for sock in (desks or Desks()).opened():  # nobody may reach them through this worker either
        gate.listeners = with_listener(gate.listeners, sock)
    following = Following(Line(worker.line, gate.loop), gate.loop, reloader.now)
    return Overseen(gate, wishes, following)


def reloading_first(gate: Gateway, crew: Crew, files: Files, report: Report, leading: Leading) -> Reloader:
    """From the files; what is good is put up before it is taken up here."""
    load, fingerprint, vault = files
    shared = Shared(lambda: crew.bulletin.taken, taken=leading.put_up)
    return Reloader(gate, lambda: crew.bulletin.put_up(load(), vault), fingerprint, report, shared)


def reloading_after(gate: Gateway, crew: Crew, vault: Vault, report: Report) -> Reloader:
    bulletin = crew.bulletin
    shared = Shared(lambda: bulletin.taken, announces=False)
    return Reloader(gate, lambda: bulletin.take(vault), lambda: bulletin.generation, report, shared)
