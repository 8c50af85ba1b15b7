"""Plans: from what was asked and what is there, to mounts in order."""

from __future__ import annotations

import pytest

from launcher.mounts import Kind, Mount, PlanError, Row, by_depth, covering, is_within
from launcher.plan import Facts, Grant, Hidden, Placeholder, Plan, plan
from launcher.protect import Found, Guard
from launcher.request import Request
from launcher.tools import Link

HOME = "/home/me"
PROJECT = "/home/me/project"
REQUEST = Request(("claude",), PROJECT)


def facts(**fields: object) -> Facts:
    values = {
        "environ": {"PATH": "/usr/bin", "AWS_SECRET_ACCESS_KEY": "x"},
        "user": "me",
        "home": HOME,
        "real_home": HOME,
        "project": PROJECT,
        "scratch": (Row("/tmp", ""), Row("/run", ""), Row(HOME, "")),
        "hidden": (Hidden(Row("/home", ""), is_dir=True), Hidden(Row("/etc/shadow", ""), is_dir=False)),
    }
    return Facts(**(values | fields))  # type: ignore[arg-type]


def made(request: Request = REQUEST, **fields: object) -> Plan:
    return plan(request, facts(**fields))


def at(path: str, request: Request = REQUEST, **fields: object) -> Kind:
    """What is true of a path inside."""
    return covering(made(request, **fields).mounts, path).kind


def guarded(path: str, missing: bool = False, is_dir: bool = False, **fields: object) -> Found:
    return Found(PROJECT, path, Guard(path, "because", **fields), missing, is_dir)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "top", "answer"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("/", "/", True),
        ("/", "/a", False),
    ],
)
def test_a_path_is_within_a_directory_by_whole_names(path: str, top: str, answer: bool) -> None:
    assert is_within(path, top) is answer


def test_the_last_mount_over_a_path_decides() -> None:
    mounts = [Mount(Kind.READ, "/", ""), Mount(Kind.EMPTY, "/a", ""), Mount(Kind.WRITE, "/a/b", "")]
    assert covering(mounts, "/a/b/c").kind is Kind.WRITE
    assert covering(mounts, "/a/bc").kind is Kind.EMPTY
    assert covering(mounts, "/z").kind is Kind.READ


def test_parents_are_mounted_before_what_is_below_them() -> None:
    paths = ["/a/b/c", "/z", "/a/b", "/a"]
    assert [mount.path for mount in by_depth(Mount(Kind.READ, path, "") for path in paths)] == [
        "/a",
        "/z",
        "/a/b",
        "/a/b/c",
    ]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/usr/bin/ls", Kind.READ),
        ("/etc/passwd", Kind.READ),
        ("/etc/shadow", Kind.CLOSED),
        ("/tmp/x", Kind.SCRATCH),
        ("/run/docker.sock", Kind.SCRATCH),
        ("/home/somebody/x", Kind.EMPTY),
        ("/home/me/.ssh/id_rsa", Kind.SCRATCH),
        ("/home/me/project/src", Kind.WRITE),
        ("/home/me/project2", Kind.SCRATCH),
        ("/dev/sda", Kind.DEVICES),
        ("/proc/1/environ", Kind.PROCESSES),
        ("/proc/sys/kernel/core_pattern", Kind.READ),
        ("/sys/class/net", Kind.EMPTY),
        ("/sys/devices/system/cpu/online", Kind.READ),
    ],
)
def test_what_is_true_of_a_path_by_default(path: str, kind: Kind) -> None:
    assert at(path) is kind


def test_the_project_is_the_only_thing_writable_by_default() -> None:
    assert [mount.path for mount in made().mounts if mount.kind is Kind.WRITE] == [PROJECT]


def test_every_mount_has_its_reason() -> None:
    found = made(
        scratch=(Row("/tmp", "y"),), hidden=(Hidden(Row("/home", "y"), is_dir=True),), guards=(guarded("a/b"),)
    )
    assert all(mount.why for mount in found.mounts)


def test_what_is_hidden_already_is_not_hidden_again() -> None:
    hidden = (Hidden(Row("/run/secrets", ""), is_dir=True), Hidden(Row("/home", ""), is_dir=True))
    assert "/run/secrets" not in [mount.path for mount in made(hidden=hidden).mounts]


def test_a_grant_is_seen_through_what_hides_it() -> None:
    grants = (Grant(Kind.READ, f"{HOME}/.gitconfig", ""), Grant(Kind.WRITE, f"{HOME}/.claude", ""))
    assert at(f"{HOME}/.gitconfig", grants=grants) is Kind.READ
    assert at(f"{HOME}/.claude/x", grants=grants) is Kind.WRITE
    assert at(f"{HOME}/.claude.json", grants=grants) is Kind.SCRATCH


def test_the_more_specific_grant_counts_whatever_the_order() -> None:
    grants = (
        Grant(Kind.READ, "/data/in/raw", ""),
        Grant(Kind.EMPTY, "/data/in/raw/secret", ""),
        Grant(Kind.WRITE, "/data/in", ""),
    )
    for order in (grants, grants[::-1]):
        assert at("/data/in/x", grants=order) is Kind.WRITE
        assert at("/data/in/raw/x", grants=order) is Kind.READ
        assert at("/data/in/raw/secret/x", grants=order) is Kind.EMPTY


def test_tools_are_readable_but_never_cover_what_is_writable() -> None:
    binds = (f"{HOME}/.nvm/v22", f"{PROJECT}/.venv/bin", "/usr/local/bin", f"{HOME}/.nvm/v22/bin")
    found = made(binds=binds)
    assert covering(found.mounts, f"{HOME}/.nvm/v22/bin/node").path == f"{HOME}/.nvm/v22"
    assert covering(found.mounts, f"{HOME}/.nvm/v22/bin/node").kind is Kind.READ
    assert covering(found.mounts, f"{PROJECT}/.venv/bin/pip").kind is Kind.WRITE
    assert "/usr/local/bin" not in [mount.path for mount in found.mounts]


def test_a_tool_above_a_grant_does_not_cover_it() -> None:
    grants = (Grant(Kind.WRITE, f"{HOME}/.pyenv/versions/work", ""),)
    binds = (f"{HOME}/.pyenv",)
    assert at(f"{HOME}/.pyenv/versions/work/x", grants=grants, binds=binds) is Kind.WRITE
    assert at(f"{HOME}/.pyenv/shims", grants=grants, binds=binds) is Kind.READ


def test_links_are_made_again_only_where_they_are_out_of_sight() -> None:
    links = (
        Link(f"{HOME}/current", "versions/1"),
        Link("/bin", "usr/bin"),
        Link(f"{PROJECT}/link", "x"),
        Link(f"{HOME}/.claude", "dotfiles/claude"),
    )
    grants = (Grant(Kind.WRITE, f"{HOME}/.claude/local", ""),)
    found = [(mount.path, mount.text) for mount in made(links=links, grants=grants).mounts if mount.kind is Kind.LINK]
    assert found == [(f"{HOME}/current", "versions/1")]


def test_what_exists_and_is_protected_is_read_only() -> None:
    found = made(guards=(guarded(".env"),))
    assert covering(found.mounts, f"{PROJECT}/.env") == Mount(Kind.READ, f"{PROJECT}/.env", "because", beneath=PROJECT)
    assert found.placeholders == ()


def test_parents_of_a_protected_path_are_pinned() -> None:
    paths = [mount.path for mount in made(guards=(guarded(".git/x/hooks"),)).mounts]
    start = paths.index(PROJECT)
    assert paths[start:] == [PROJECT, f"{PROJECT}/.git", f"{PROJECT}/.git/x", f"{PROJECT}/.git/x/hooks"]
    assert covering(made(guards=(guarded(".git/x/hooks"),)).mounts, f"{PROJECT}/.git/x/y").kind is Kind.WRITE


def test_parents_that_are_loose_are_not() -> None:
    found = guarded("a/b/.git/hooks")._replace(loose=2)
    paths = [mount.path for mount in made(guards=(found,)).mounts]
    assert f"{PROJECT}/a" not in paths
    assert f"{PROJECT}/a/b" not in paths
    assert f"{PROJECT}/a/b/.git" in paths


@pytest.mark.parametrize(
    ("found", "kind", "placeholder"),
    [
        (guarded(".env", missing=True), Kind.CLOSED, Placeholder(PROJECT, ".env")),
        (guarded(".idea", missing=True, is_dir=True), Kind.EMPTY, Placeholder(PROJECT, ".idea", is_dir=True)),
        (guarded("c", missing=True, stand_in=".\n"), Kind.READ, Placeholder(PROJECT, "c", text=".\n")),
        (guarded("s", missing=True, inside="{}\n"), Kind.TEXT, Placeholder(PROJECT, "s")),
    ],
)
def test_what_is_missing_gets_a_placeholder(found: Found, kind: Kind, placeholder: Placeholder) -> None:
    result = made(guards=(found,))
    mount = covering(result.mounts, found.where)
    assert (mount.kind, mount.why) == (kind, "cannot be created: because")
    assert result.placeholders == (placeholder,)


def test_what_was_asked_to_be_writable_is_not_protected() -> None:
    found = made(guards=(guarded(".env", missing=True), guarded("x")), lifted=frozenset({f"{PROJECT}/.env"}))
    assert covering(found.mounts, f"{PROJECT}/.env").kind is Kind.WRITE
    assert covering(found.mounts, f"{PROJECT}/x").kind is Kind.READ
    assert found.placeholders == ()


def test_the_first_guard_of_a_path_speaks_for_it() -> None:
    exact, match = guarded(".env", missing=True), guarded(".env")
    assert made(guards=(exact, match)).placeholders == (Placeholder(PROJECT, ".env"),)


def test_what_lies_in_a_protected_directory_needs_nothing_more() -> None:
    found = made(guards=(guarded("certs", is_dir=True), guarded("certs/a.pem"), guarded("certs/new", missing=True)))
    assert [mount.path for mount in found.mounts][-1] == f"{PROJECT}/certs"
    assert found.placeholders == ()


def test_a_guard_outside_of_what_is_writable_needs_no_mount() -> None:
    guard = Found("", "etc/egress", Guard("etc/egress", ""), missing=False, is_dir=True)
    assert "/etc/egress" not in [mount.path for mount in made(guards=(guard,)).mounts]


def test_what_is_to_be_hidden_is_hidden_where_it_could_be_read_too() -> None:
    hide = Guard("srv/egress", "the gate's", hide=True)
    guards = (
        Found("", "srv/egress", hide, missing=False, is_dir=True),
        Found("", "srv/log", hide._replace(path="srv/log"), missing=False, is_dir=False),
        Found("", "home/me/.config/egress", hide, missing=False, is_dir=True),
        Found(PROJECT, "audit", hide._replace(path="audit"), missing=False, is_dir=False),
    )
    found = made(guards=guards)
    assert covering(found.mounts, "/srv/egress/x").kind is Kind.EMPTY
    assert covering(found.mounts, "/srv/log").kind is Kind.CLOSED
    assert covering(found.mounts, f"{PROJECT}/audit").kind is Kind.CLOSED
    assert f"{HOME}/.config/egress" not in [mount.path for mount in found.mounts]


def test_sockets_that_could_be_seen_are_closed() -> None:
    sockets = ("/run/docker.sock", "/srv/app.sock", f"{PROJECT}/dev.sock", f"{HOME}/.gnupg/S.agent", "/opt/granted")
    found = made(sockets=sockets, granted_sockets=("/opt/granted", "/run/user/1/bus"))
    closed = [mount.path for mount in found.mounts if mount.kind is Kind.CLOSED]
    assert closed == ["/etc/shadow", "/srv/app.sock", f"{PROJECT}/dev.sock"]
    assert covering(found.mounts, "/opt/granted").path == "/opt/granted"
    assert covering(found.mounts, "/run/user/1/bus").kind is Kind.READ


def test_texts_are_mounted_last() -> None:
    hosts, certificate = Mount(Kind.TEXT, "/etc/hosts", "", text="x"), Mount(Kind.TEXT, "/run/ca.pem", "", text="y")
    request = REQUEST._replace(files=(certificate,), variables={"SSL_CERT_FILE": "/run/ca.pem"})
    found = made(request, texts=(hosts,))
    assert found.mounts[-2:] == (hosts, certificate)
    assert found.env["SSL_CERT_FILE"] == "/run/ca.pem"


def test_the_environment_is_that_of_the_person_and_the_request() -> None:
    request = REQUEST._replace(env=("AWS_SECRET_ACCESS_KEY",), set_env=("A=b",), proxy="http://127.0.0.1:9")
    found = made(request)
    assert (found.env["HOME"], found.env["USER"], found.env["A"]) == (HOME, "me", "b")
    assert found.env["https_proxy"] == "http://127.0.0.1:9"
    assert found.env["AWS_SECRET_ACCESS_KEY"] == "x"
    assert found.passed == {"AWS_SECRET_ACCESS_KEY", "A"}
    assert "AWS_SECRET_ACCESS_KEY" not in made().env


@pytest.mark.parametrize(
    ("directory", "inside"),
    [("", PROJECT), (f"{PROJECT}/sub", f"{PROJECT}/sub"), ("/etc", PROJECT), (f"{PROJECT}2", PROJECT)],
)
def test_one_starts_where_one_is_if_that_is_in_the_project(directory: str, inside: str) -> None:
    assert made(REQUEST._replace(directory=directory)).directory == inside


def test_without_a_terminal_of_ours_there_is_a_new_session() -> None:
    assert made().new_session
    assert not made(REQUEST._replace(terminal=True)).new_session


def test_there_is_no_plan_without_a_command() -> None:
    with pytest.raises(PlanError, match="no command") as refusal:
        made(REQUEST._replace(command=()))
    assert refusal.value.status == 2
