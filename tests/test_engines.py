"""podman and docker, as far as they can be asked without being there: stand-ins that answer as they do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.backends import engines, imagefiles
from launcher.backends.engines import Engine, EngineError, Facts
from launcher.backends.model import Backend, Fit, Lack, Unfit
from launcher.mounts import PlanError

ALL = frozenset({"memory", "cpus", "pids"})


class Stand:
    """A program of that name on PATH that answers by its first word."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, name: str, **answers: str) -> Engine:
        cases = "".join(f"{word}) {answer};;\n" for word, answer in answers.items())
        path = self.folder / name
        path.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n')
        path.chmod(0o755)
        return Engine(Backend(name), str(path))


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.setenv("PATH", str(tmp_path))
    engines._facts.cache_clear()
    return Stand(tmp_path)


@pytest.mark.parametrize("backend", [Backend.PODMAN, Backend.DOCKER])
def test_an_engine_that_is_not_installed_is_unfit_and_has_a_cure(stand: Stand, backend: Backend) -> None:
    found = engines.examine(backend)
    assert isinstance(found, Unfit)
    assert found.why == f"{backend} is not installed"
    assert found.hint.startswith("sudo apt-get install ")


def test_a_daemon_that_does_not_answer_is_unfit(stand: Stand) -> None:
    stand.has("docker", info='echo "Cannot connect to the Docker daemon" >&2; exit 1')
    assert engines.examine(Backend.DOCKER) == Unfit(
        Backend.DOCKER, "Cannot connect to the Docker daemon", "sudo systemctl start docker # or set DOCKER_HOST"
    )


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        ("false|false|[cpuset cpu memory pids]|v1", Facts(False, True, ALL)),
        ("true|false|[cpu memory pids]|v2", Facts(True, True, ALL)),
        ("true|false|[memory pids]|v2", Facts(True, True, frozenset({"memory", "pids"}))),
        ("true|false|[cpu memory pids]|v1", Facts(True, True, frozenset())),
        ("false|true|[cpu memory pids]|v2", Facts(False, False, ALL)),
    ],
)
def test_what_podman_can_do(stand: Stand, answer: str, facts: Facts) -> None:
    assert stand.has("podman", info=f"echo '{answer}'").facts()._replace(init=True) == facts


@pytest.mark.parametrize(
    ("answer", "where", "uid", "facts"),
    [
        ("[name=seccomp]|true|true|true", "unix:///run/docker.sock", 0, Facts(False, True, ALL)),
        ("[name=seccomp]|true|false|true", "unix:///d", 0, Facts(False, True, frozenset({"memory", "pids"}))),
        ("[name=seccomp]|true|true|true", "unix:///run/docker.sock", 1000, Facts(False, False, ALL)),
        ("[name=rootless]|true|true|true", "unix:///run/user/1000/docker.sock", 1000, Facts(True, True, ALL)),
        ("[name=seccomp]|true|true|true", "tcp://far.example:2376", 0, Facts(False, False, ALL)),
    ],
)
def test_what_docker_can_do(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, answer: str, where: str, uid: int, facts: Facts
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert stand.has("docker", info=f"echo '{answer}'", context=f"echo {where}").facts() == facts


def test_a_network_that_is_not_ours_to_join_lacks_capture(stand: Stand) -> None:
    stand.has("podman", info="echo 'false|true|[memory]|v2'")
    assert engines.examine(Backend.PODMAN) == Fit(Backend.PODMAN, (Lack.CAPTURE,))
    stand.has("podman", info="echo 'false|false|[memory]|v2'")
    engines._facts.cache_clear()
    assert engines.examine(Backend.PODMAN) == Fit(Backend.PODMAN)


def test_an_engine_in_the_project_is_not_run(stand: Stand) -> None:
    stand.has("podman")
    with pytest.raises(PlanError, match="podman is not installed"):
        engines.find(Backend.PODMAN, [str(stand.folder)])


def test_an_error_is_the_last_line_without_its_preface(stand: Stand) -> None:
    engine = stand.has("docker", rm='echo warning >&2; echo "Error response from daemon: no" >&2; exit 3')
    with pytest.raises(EngineError, match=r"^no$") as caught:
        engine.ask("rm", "x")
    assert caught.value.status == 3


def test_an_engine_that_hangs_is_given_up(stand: Stand) -> None:
    engine = stand.has("docker", info="exec /bin/sleep 60")
    with pytest.raises(EngineError, match="docker info gave no answer"):
        engine.ask("info", patience=0.05)


@pytest.mark.parametrize(("said", "gone"), [("No such container: x", True), ("the disk is on fire", False)])
def test_what_is_gone_already_is_removed(stand: Stand, said: str, gone: bool) -> None:
    assert stand.has("docker", rm=f"echo '{said}' >&2; exit 1").remove("x") == gone


def test_the_last_word_on_a_variable_counts(stand: Stand) -> None:
    engine = stand.has("podman", inspect="printf 'PATH=/a\\nHOME=/\\nPATH=/b=c\\n'")
    assert engine.variable("x", "PATH") == "/b=c"
    assert engine.variable("x", "TERM") == ""


@pytest.mark.parametrize(("answer", "pid"), [("17", 17), ("0", 0), ("", 0)])
def test_a_container_that_does_not_run_has_no_first_process(stand: Stand, answer: str, pid: int) -> None:
    assert stand.has("podman", inspect=f"echo {answer}").first_process("x") == pid


# Programs of an image


@pytest.mark.parametrize(
    ("word", "path", "status"),
    [
        ("sh", "/nowhere:/bin", 0),
        ("sh", "", 0),
        ("/bin/sh", "/nowhere", 0),
        ("no-such-program", "/usr/bin:/bin", 127),
        ("./sh", "", 127),
        ("/etc", "", 126),
    ],
)
def test_a_program_is_looked_for_as_a_shell_does(word: str, path: str, status: int) -> None:
    assert imagefiles.trouble(os.getpid(), word, "/etc", path) == status


def test_a_file_that_is_no_program_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("")
    assert imagefiles.trouble(os.getpid(), "no-program", "/", f"/bin:{tmp_path}") == 126


def test_a_root_that_cannot_be_looked_into_is_not_judged() -> None:
    assert imagefiles.trouble(1 << 22, "sh", "/", "/bin") == 0
