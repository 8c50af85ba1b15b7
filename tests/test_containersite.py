"""What a container backend makes of options, before there is any container."""

from __future__ import annotations

from typing import Any

import pytest

from launcher import plan as planning
from launcher.backends import containersite
from launcher.backends.containersite import Containers
from launcher.backends.engines import Facts
from launcher.backends.model import Backend, Fit, Lack
from launcher.mounts import Kind, PlanError
from launcher.options import Options, Resources
from launcher.request import Request

EVERYTHING = frozenset({"memory", "cpus", "pids"})


def made(backend: Backend = Backend.PODMAN, lacks: tuple[Lack, ...] = (), **options: Any) -> tuple[Containers, Options]:
    asked = Options(("cmd",), **options)
    return containersite.site(Fit(backend, lacks), asked), asked


@pytest.mark.parametrize(
    ("backend", "options", "says"),
    [
        (Backend.PODMAN, {}, "backend podman needs an image"),
        (Backend.DOCKER, {}, "backend docker needs an image"),
        (Backend.PODMAN, {"image": "a", "rootfs": "/b"}, "--image and --rootfs exclude each other"),
        (Backend.DOCKER, {"rootfs": "/b"}, "docker runs images, not directories"),
        (Backend.DOCKER, {"image": "--privileged"}, "'--privileged' is not an image"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(backend: Backend, options: dict[str, Any], says: str) -> None:
    site, asked = made(backend, **options)
    with pytest.raises(PlanError, match=says) as caught:
        site.settle(asked)
    assert caught.value.hint
    assert caught.value.status == 2


@pytest.mark.parametrize(
    ("lacks", "bridge", "becomes"),
    [((), "handover", "handover"), ((Lack.CAPTURE,), "handover", "relay"), ((), "relay", "relay")],
)
def test_a_network_that_cannot_be_joined_is_relayed_and_that_is_on_record(
    lacks: tuple[Lack, ...], bridge: str, becomes: str
) -> None:
    site, asked = made(lacks=lacks, bridge=bridge, image="i")
    assert site.settle(asked).bridge == becomes
    assert (Lack.CAPTURE in site.fit.lacks) == (becomes == "relay")


def test_a_directory_is_named_without_links() -> None:
    site, asked = made(rootfs="/proc/self/root/tmp/..")
    assert site.settle(asked).rootfs == "/"


def test_programs_and_system_files_are_the_images() -> None:
    site, _ = made(image="i")
    host = planning.Facts({}, "me", "/home/me", "/home/me", "/p", binds=("/opt/tool",), texts=())
    seen = site.see(host)
    assert (seen.program, seen.binds, seen.links) == ("cmd", (), ())
    assert [(mount.kind, mount.path) for mount in seen.texts] == [(Kind.TEXT, "/etc/resolv.conf")]


def test_only_a_persona_that_is_looked_into_brings_certificates() -> None:
    site, _ = made(image="i")
    plain = Request(("cmd",), "/p")
    assert site.arrange(plain, trusting=False) == plain
    trusting = site.arrange(plain, trusting=True)
    assert {mount.path for mount in trusting.files} == {file.path for file in site.trusted()}
    assert trusting.variables["SSL_CERT_FILE"] in {mount.path for mount in trusting.files}


@pytest.mark.parametrize(
    ("wanted", "held", "said"),
    [
        (Resources(memory=1, cpus=1, pids=1), EVERYTHING, []),
        (Resources(memory=1, pids=1), frozenset({"pids"}), ["memory"]),
        (Resources(timeout=1), frozenset(), []),
    ],
)
def test_a_limit_that_the_engine_does_not_hold_is_said(
    wanted: Resources, held: frozenset[str], said: list[str]
) -> None:
    found = containersite._unheld(wanted, Facts(True, True, held))
    assert [words.partition(":")[0] for words in found] == said


@pytest.mark.parametrize(("choice", "word"), [("off", "unconfined"), ("/my/profile.json", "/my/profile.json")])
def test_a_filter_of_ones_own_is_in_the_engines_words_already(choice: str, word: str) -> None:
    assert containersite._seccomp(Options(("true",), seccomp=choice), "/nowhere") == word


def test_lists_of_calls_do_not_go_with_a_filter_of_ones_own() -> None:
    with pytest.raises(PlanError, match="an engine takes one filter"):
        containersite._seccomp(Options(("true",), seccomp="off", deny_calls=("ptrace",)), "/nowhere")
