"""A plan as the words that make a container of it, for both engines."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.backends.container import PODMAN, WALLS, Setting, command, create, layers, variables
from launcher.backends.model import Backend
from launcher.mounts import Kind, Mount, PlanError
from launcher.options import Resources
from launcher.plan import Plan

BASE = (
    Mount(Kind.READ, "/", ""),
    Mount(Kind.DEVICES, "/dev", ""),
    Mount(Kind.PROCESSES, "/proc", ""),
    Mount(Kind.READ, "/proc/sys", ""),
    Mount(Kind.EMPTY, "/sys", ""),
    Mount(Kind.READ, "/sys/devices/system/cpu", ""),
    Mount(Kind.EMPTY, "/home", ""),
    Mount(Kind.CLOSED, "/etc/shadow", ""),
    Mount(Kind.SCRATCH, "/tmp", ""),
    Mount(Kind.SCRATCH, "/dev/shm", ""),
)
PROJECT = Mount(Kind.WRITE, "/home/me/project", "")


def plan(*mounts: Mount, **more: Any) -> Plan:
    values = {"env": {"A": "1"}, "passed": frozenset(), "directory": "/home/me/project", "command": ("cmd", "--flag")}
    return Plan((*BASE, *mounts), **{**values, "new_session": False, **more})


def setting(backend: Backend = Backend.PODMAN, **more: Any) -> Setting:
    values = {"name": "n", "image": "img:1", "user": (7, 8), "variables": "/run/v", "closed": "/run/c"}
    return Setting(backend, **{**values, **more})


def words(*mounts: Mount, backend: Backend = Backend.PODMAN, **more: Any) -> list[str]:
    return create(plan(*mounts), setting(backend, **more))


@pytest.mark.parametrize(
    ("backend", "own"), [(Backend.PODMAN, [word for word, _ in PODMAN]), (Backend.DOCKER, [])], ids=str
)
def test_a_whole_line_from_the_first_word_to_the_last(backend: Backend, own: list[str]) -> None:
    copying = ",notmpcopyup" if backend is Backend.PODMAN else ""
    assert words(PROJECT, backend=backend, seccomp="/run/s") == [
        *("create", "--name=n"),
        *("--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
        *("--security-opt=label=disable", "--pull=never", "--log-driver=none", "--rm", "--interactive"),
        *own,
        *("--user=7:8", "--hostname=sandbox", "--security-opt=seccomp=/run/s", "--init"),
        f"--tmpfs=/tmp:rw,nosuid,nodev,mode=1777{copying}",
        "--mount=type=bind,source=/home/me/project,target=/home/me/project",
        *("--env-file=/run/v", "--workdir=/home/me/project", "--entrypoint=", "img:1", "cmd", "--flag"),
    ]


def test_every_wall_has_its_reason() -> None:
    assert all(why for _, why in (*WALLS, *PODMAN))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"keep_id": True}, ["--userns=keep-id"]),
        ({"terminal": True}, ["--tty"]),
        ({"limits": Resources(memory=1 << 30)}, ["--memory=1073741824", "--memory-swap=1073741824"]),
        ({"limits": Resources(cpus=0.5)}, ["--cpus=0.5"]),
        ({"limits": Resources(pids=9)}, ["--pids-limit=9"]),
        ({"limits": Resources(timeout=9)}, []),
        ({"hold": "/run/h"}, ["--mount=type=bind,source=/run/h,target=/run/h,readonly", "/bin/sh", "-c", "/run/h"]),
        ({"rootfs": "/some/root"}, ["--rootfs", "/some/root:O"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("backend", [Backend.PODMAN, Backend.DOCKER])
def test_what_is_asked_for_is_added_and_nothing_else(
    backend: Backend, more: dict[str, Any], expected: list[str]
) -> None:
    without, made = words(backend=backend), words(backend=backend, **more)
    added = [word for word in made if word not in without]
    assert [word for word in added if not word.startswith("read -r")] == expected


def test_without_a_first_process_of_the_engine_none_is_asked_for() -> None:
    assert "--init" not in words(init=False)


@pytest.mark.parametrize(
    ("mount", "word"),
    [
        (Mount(Kind.READ, "/home/me/project/x", ""), "--mount=type=bind,source={path},target={path},readonly"),
        (Mount(Kind.WRITE, "/home/me/project/x", ""), "--mount=type=bind,source={path},target={path}"),
        (Mount(Kind.CLOSED, "/home/me/project/x", ""), "--mount=type=bind,source=/run/c,target={path},readonly"),
        (Mount(Kind.TEXT, "/home/me/project/x", ""), "--mount=type=bind,source=/run/f,target={path},readonly"),
        (Mount(Kind.GIVEN, "/home/me/project/x", ""), "--mount=type=bind,source=/run/f,target={path},readonly"),
        (Mount(Kind.EMPTY, "/home/me/project/x", ""), "--tmpfs={path}:ro,nosuid,nodev,noexec,mode=0555{copying}"),
        (Mount(Kind.SCRATCH, "/home/me/project/x", ""), "--tmpfs={path}:rw,nosuid,nodev,mode=1777{copying}"),
    ],
    ids=lambda it: it.kind if isinstance(it, Mount) else "",
)
@pytest.mark.parametrize("backend", [Backend.PODMAN, Backend.DOCKER])
def test_each_kind_of_mount_has_its_word(backend: Backend, mount: Mount, word: str) -> None:
    copying = ",notmpcopyup" if backend is Backend.PODMAN else ""
    made = words(PROJECT, mount, backend=backend, files={mount.path: "/run/f"})
    assert word.format(path=mount.path, copying=copying) in made


@pytest.mark.parametrize(
    "mount",
    [
        Mount(Kind.EMPTY, "/var/log", "of the host"),
        Mount(Kind.CLOSED, "/etc/sudoers", "of the host"),
        Mount(Kind.LINK, "/home/me/project/link", ""),
        Mount(Kind.READ, "/sys/class", ""),
        Mount(Kind.EMPTY, "/tmp/x", "nothing of the host is there"),
    ],
    ids=str,
)
def test_what_is_about_the_hosts_own_root_is_left_out(mount: Mount) -> None:
    assert words(PROJECT, mount) == words(PROJECT)


def test_a_later_mount_covers_what_was_below_it() -> None:
    inner = Mount(Kind.EMPTY, "/home/me/project/a/b", "")
    outer = Mount(Kind.READ, "/home/me/project/a", "")
    assert [mount.path for mount in layers(plan(PROJECT, inner, outer))] == ["/tmp", PROJECT.path, outer.path]


def test_a_path_is_mounted_once_and_the_last_word_counts() -> None:
    guard = Mount(Kind.READ, PROJECT.path, "")
    assert [mount for mount in layers(plan(PROJECT, guard)) if mount.path == PROJECT.path] == [guard]


def test_the_command_is_behind_the_image_whatever_its_words_are() -> None:
    made = create(plan(command=("--privileged", "--mount=x")), setting())
    assert made[-3:] == ["img:1", "--privileged", "--mount=x"]


def test_the_relay_is_run_by_the_images_own_python() -> None:
    relayed = plan(command=("/opt/python", "-I", "/relay.py", "/gate.sock", "3128", "--", "cmd"))
    assert command(relayed, setting(relay=True))[:3] == ["python3", "-I", "/relay.py"]


def test_a_held_command_waits_for_a_line() -> None:
    assert command(plan(), setting(hold="/run/h")) == [
        *("/bin/sh", "-c", 'read -r _ < "$0" && exec "$@"', "/run/h", "cmd", "--flag")
    ]


@pytest.mark.parametrize("path", ["/home/me/project/a,b", '/home/me/project/a"b', "/home/me/project/a\nb"])
def test_a_path_that_an_engine_would_split_is_refused(path: str) -> None:
    with pytest.raises(PlanError, match="cannot be mounted in a container"):
        words(PROJECT, Mount(Kind.READ, path, ""))


def test_a_hidden_directory_with_a_colon_is_refused() -> None:
    with pytest.raises(PlanError, match="it has a colon"):
        words(PROJECT, Mount(Kind.EMPTY, "/home/me/project/a:b", ""))


def test_programs_of_the_host_are_not_named_inside_unless_the_user_says_so() -> None:
    host = {"PATH": "/opt/bin", "SHELL": "/bin/zsh", "LANG": "C"}
    assert variables(plan(env=host)) == "LANG=C\n"
    assert variables(plan(env=host, passed=frozenset({"PATH"}))) == "PATH=/opt/bin\nLANG=C\n"


@pytest.mark.parametrize("value", ["a\nB=c", "a\rb"])
def test_a_value_cannot_become_another_variable(value: str) -> None:
    with pytest.raises(PlanError, match="the variable 'A' has more than one line"):
        variables(plan(env={"A": value}))


def test_no_value_is_on_the_command_line() -> None:
    made = create(plan(env={"TOKEN": "s3cret"}), setting())
    assert not [word for word in made if "s3cret" in word]
