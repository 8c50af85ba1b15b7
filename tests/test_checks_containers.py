"""What the doctor says of containers."""

from __future__ import annotations

import pytest

from launcher.backends import engines
from launcher.backends.engines import Engine, Facts
from launcher.backends.model import Backend, Fit, Lack, Unfit
from launcher.checks import containers
from launcher.checks.model import Finding, Status
from launcher.netns.model import HandoverError

ALL = frozenset({"memory", "cpus", "pids"})


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (Facts(True, True, ALL), "rootless, its networks can be joined"),
        (Facts(False, True, frozenset()), "as root, its networks can be joined; holds no memory, cpus, pids"),
        (Facts(False, False, ALL), "as root, its networks are not ours to join: through a relay"),
    ],
)
@pytest.mark.parametrize("backend", [Backend.PODMAN, Backend.DOCKER])
def test_an_engine_is_said_to_do_what_it_can(
    monkeypatch: pytest.MonkeyPatch, backend: Backend, facts: Facts, says: str
) -> None:
    monkeypatch.setattr(engines, "examine", lambda it: Fit(it, () if facts.joinable else (Lack.CAPTURE,)))
    monkeypatch.setattr(engines, "find", lambda it: Engine(it, "/bin/true"))
    monkeypatch.setattr(engines, "_facts", lambda _: facts)
    assert getattr(containers, backend)() == Finding(Status.OK, says)


def test_an_engine_that_is_not_there_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "examine", lambda it: Unfit(it, f"{it} is not installed", "install it"))
    assert containers.docker() == Finding(
        Status.WARN, "docker is not installed; only --backend docker needs it", "install it"
    )


def test_a_gate_is_attached_for_real() -> None:
    assert containers.attached().status is Status.OK


def test_a_network_that_cannot_be_visited_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise HandoverError("it does not hold", "a cure")

    monkeypatch.setattr(containers, "Visit", refused)
    assert containers.attached() == Finding(Status.FAIL, "it does not hold", "a cure")


def test_where_there_is_no_network_to_be_made_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError("no namespaces")

    monkeypatch.setattr(containers, "enter_one", refused)
    assert containers.attached().what == "there can be no network to attach to"
