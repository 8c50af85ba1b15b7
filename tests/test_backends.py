"""Which backend a run gets, and that what it lacks has a name, a sentence and a place in the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import egress.audit
from egress.surroundings import BACKENDS, Walls
from launcher.backends.choose import WEAKER, choose, steps
from launcher.backends.model import SENTENCES, Backend, Fit, Lack, Unfit, sentences, words
from launcher.mounts import PlanError
from launcher.options import Options, furnished

SCHEMA = json.loads((Path(egress.audit.__file__).parent / "audit.schema.json").read_text())["properties"]


class Machine:
    """One on which only some backends can be used."""

    def __init__(self, *usable: Backend) -> None:
        self.asked: list[Backend] = []
        self._usable = usable

    def examine(self, backend: Backend) -> Fit | Unfit:
        self.asked.append(backend)
        if backend in self._usable:
            return Fit(backend, () if backend is Backend.BWRAP else (Lack.CAPTURE,))
        return Unfit(backend, f"no {backend} here", f"install {backend}\nand more")


def test_what_was_asked_for_is_taken_and_nothing_else_is_tried() -> None:
    machine = Machine(Backend.BWRAP, Backend.NONE)
    assert choose(Backend.BWRAP, True, machine.examine).fit == Fit(Backend.BWRAP)
    assert machine.asked == [Backend.BWRAP]


def test_without_leave_nothing_weaker_is_taken() -> None:
    machine = Machine(Backend.LANDLOCK, Backend.NONE)
    with pytest.raises(PlanError, match="backend bwrap cannot be used: no bwrap here") as caught:
        choose(Backend.BWRAP, False, machine.examine)
    assert caught.value.hint == "install bwrap\nand more"
    assert machine.asked == [Backend.BWRAP]


def test_with_leave_the_next_weaker_one_is_taken_and_each_step_told() -> None:
    chosen = choose(Backend.BWRAP, True, Machine(Backend.NONE).examine)
    assert chosen.fit.backend is Backend.NONE
    assert steps(chosen) == [
        "not bwrap: no bwrap here (hint: install bwrap)",
        "not landlock: no landlock here (hint: install landlock)",
    ]


@pytest.mark.parametrize("backend", Backend)
def test_no_backend_gives_way_to_a_stronger_one(backend: Backend) -> None:
    order = [Backend.BWRAP, Backend.LANDLOCK, Backend.NONE]
    weaker = list(WEAKER[backend])
    assert weaker == [each for each in order if each in weaker]
    assert backend not in weaker


def test_the_vocabularies_of_launcher_policy_and_log_are_one() -> None:
    assert tuple(Backend) == BACKENDS
    assert SCHEMA["backend"]["enum"] == list(Backend)
    assert SCHEMA["lacks"]["items"]["enum"] == list(Lack)
    assert SENTENCES.keys() == set(Lack)


def test_the_first_line_names_the_backend_and_what_it_lacks() -> None:
    assert words(Fit(Backend.BWRAP)) == "backend bwrap"
    fit = Fit(Backend.LANDLOCK, (Lack.CAPTURE, Lack.PROTECT))
    assert words(fit) == "warning: backend landlock does not enforce: capture, protect"
    assert [line.partition(":")[0] for line in sentences(fit.lacks)] == ["capture", "protect"]


def test_a_flag_goes_before_the_persona() -> None:
    walls = Walls(backend="landlock", fallback="warn", image="persona:1")
    said = furnished(Options(("true",), backend="none", image="flag:2"), walls)
    assert (said.backend, said.fallback, said.image) == ("none", "warn", "flag:2")


def test_the_page_has_every_word_with_its_sentence() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "backends.md").read_text()
    for lack, sentence in SENTENCES.items():
        assert f"| `{lack}` | {sentence} |" in page
