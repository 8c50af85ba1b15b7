"""`egress proxy --workers N`: the gate as several processes, and the one that looks after them."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from egress import app, oversight, workers
from egress.commands import foreground, service
from egress.commands.say import Failure, complain, say
from egress.commands.service import Place
from egress.crew import Crew, Worker
from egress.net.listeners import close_listening
from egress.oversight import Desks, Wishes

_MOST = 256
Reread = Callable[[Callable[[Failure], object]], None]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", metavar="N", default="1", help="so many processes, or auto: one for each core; default 1"
    )


def count(text: str) -> int:
    if text == "auto":
        return min(workers.cores(), _MOST)
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _MOST):
        raise Failure(f"--workers {text!r} is not a number from 1 to {_MOST}, or auto", "--workers auto")
    return int(text)


def run(many: int, opened: service.Opened, setup: app.Setup, reread: Reread) -> int:
    workers.hold_signals()  # before anything is opened that one would leave behind
    with (
        opened() as place,
        closing(Crew.make(many, setup.limits.connections)) as crew,
        _desks(setup.wishes, crew.session) as desks,
    ):
        foreground.check_log(setup.audit)
        crew.bulletin.put_up(place.policy, setup.vault)
        return _look_after(many, place._replace(setup=place.setup._replace(desks=desks)), crew, reread)


def _look_after(many: int, place: Place, crew: Crew, reread: Reread) -> int:
    gc.collect()
    gc.freeze()  # what there is by now is shared, and stays so as long as nobody looks through it
    crowd = workers.Workers(many, partial(_work, place, crew, reread), say, crew.ledger.clear)
    if crowd.start():
        print("\n".join(place.facts()), flush=True)
        say(f"{many} workers carry the connections")
        say(f"every decision goes to {place.setup.audit}")
    return crowd.watch()


@contextmanager
def _desks(wishes: Wishes, session: str) -> Iterator[Desks]:
    """Open before there are workers, so that all of them know what to lead nobody to."""
    desks = _open_desks(wishes, session) if wishes.need_control else Desks()
    try:
        yield desks
    finally:
        for desk in desks.opened():
            close_listening(desk)


def _open_desks(wishes: Wishes, session: str) -> Desks:
    try:
        return oversight.open_desks(metrics=wishes.metrics, page=wishes.page, unix=oversight.control_path(session, say))
    except OSError as error:
        where = "" if wishes.metrics is None else " on {}:{}".format(*wishes.metrics)
        raise Failure(f"cannot listen{where} for people: {error.strerror}", "--metrics with another port") from None


def _work(place: Place, crew: Crew, reread: Reread, number: int, again: bool, ready: Callable[[], None]) -> int:
    """In a process of its own, from its first word to its last."""
    worker = Worker(crew, number, again)
    setup = place.setup._replace(worker=worker, counts=crew.counts.of_worker(number), report=_speaker(worker))
    policy = crew.bulletin.take(setup.vault) if again else place.policy
    mine = place._replace(setup=setup, policy=policy)
    try:
        return foreground.run(_serve(mine, worker, reread, ready))
    except Failure as failure:
        return complain(failure)


async def _serve(place: Place, worker: Worker, reread: Reread, ready: Callable[[], None]) -> int:
    stop = foreground.told_to_stop()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)  # until there is something to reload
    workers.release_signals()

    def up(gate: app.Gate) -> None:
        if worker.again and worker.leads:
            gate.reloader.now()  # the files may have been edited while nobody looked
        ready()

    await service.serve(place, stop, partial(reread, complain if worker.leads else _say_nothing), lambda: None, up)
    return 0


def _speaker(worker: Worker) -> Callable[[str], None]:
    return say if worker.leads else lambda words: say(f"worker {worker.number}: {words}")


def _say_nothing(_: Failure) -> None:
    """The one that leads has said it."""
