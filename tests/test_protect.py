"""What is protected: patterns, what is found of them, and placeholders for what is missing."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher import posts, search
from launcher.mounts import PlanError
from launcher.placeholders import hold
from launcher.plan import Placeholder
from launcher.posts import open_beneath
from launcher.protect import CLAUDE, GIT, PROJECT, Found, Guard, is_placeholder
from launcher.search import Patterns, locate, matches


@pytest.mark.parametrize(
    ("text", "pattern", "answer"),
    [
        ("a.pem", "*.pem", True),
        (".pem", "*.pem", True),
        ("a.pem.txt", "*.pem", False),
        (".env.local", ".env.*", True),
        (".env", ".env.*", False),
        ("abc", "a?c", True),
        ("ac", "a?c", False),
        ("aXbXc", "a*b*c", True),
        ("aXbXd", "a*b*c", False),
        ("certs/a.pem", "certs/*.pem", True),
        ("certs/b/a.pem", "certs/*.pem", False),
        ("certs/b/a.pem", "certs/*/*.pem", True),
        ("a/b", "a?b", False),
        ("", "*", True),
        ("x", "", False),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaab", "*a*a*a*a*a*a*a*c", False),
    ],
)
def test_a_star_is_any_characters_but_a_slash(text: str, pattern: str, answer: bool) -> None:
    assert matches(text, pattern) is answer


@pytest.mark.parametrize(
    ("path", "guard"),
    [
        (".env", ".env"),
        ("deep/down/.env", ".env"),
        (".env.production", ".env.*"),
        ("a/b.key", "*.key"),
        ("x/.vscode", ".vscode/"),
        (".pre-commit-config.yaml", ".pre-commit-config.y*ml"),
        ("lefthook.toml", "lefthook.*"),
        ("team.code-workspace", "*.code-workspace"),
        ("a/.codex", ".codex/"),
        ("lefthooks", None),
        ("certs/x.crt", "certs/*.crt"),
        ("other/certs/x.crt", None),
        (".environment", None),
        ("env", None),
        ("key", None),
        ("settings.json", None),
    ],
)
def test_the_guard_of_a_file_is_found_by_its_name_or_its_path(path: str, guard: str | None) -> None:
    patterns = Patterns([*PROJECT, Guard("certs/*.crt", "")])
    found = patterns.find(os.path.basename(path), path)
    assert (found and found.path) == guard


def test_every_guard_says_why() -> None:
    assert all(guard.why for guard in (*PROJECT, *GIT, *CLAUDE))


def build(root: Path, *paths: str) -> None:
    for path in paths:
        if path.endswith("/"):
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("x")


def found_in(root: Path) -> list[str]:
    return sorted(found.path for found in search.search(str(root), Patterns(PROJECT)).found)


def test_matches_are_found_at_any_depth_but_not_in_packages_of_others(tmp_path: Path) -> None:
    build(
        tmp_path,
        ".env",
        "a/.env",
        "a/b/x.pem",
        "node_modules/p/x.pem",
        ".venv/x.pem",
        ".git/x.pem",
        "a/.vscode/tasks.json",
    )
    assert found_in(tmp_path) == [".env", "a/.env", "a/.vscode", "a/b/x.pem"]


def test_nothing_is_looked_for_through_a_link(tmp_path: Path) -> None:
    build(tmp_path, "outside/x.pem", "project/real.key")
    (tmp_path / "project/dir").symlink_to("../outside")
    (tmp_path / "project/link.pem").symlink_to("../outside/x.pem")
    assert found_in(tmp_path / "project") == ["real.key"]


def test_parents_of_a_match_may_move(tmp_path: Path) -> None:
    build(tmp_path, "a/b/x.pem")
    [found] = search.search(str(tmp_path), Patterns(PROJECT)).found
    assert (found.is_dir, found.missing, found.pins) == (False, False, [])


def test_repositories_further_down_are_told(tmp_path: Path) -> None:
    build(tmp_path, ".git/HEAD", "a/.git/HEAD", "b/.git")
    assert sorted(search.search(str(tmp_path), Patterns(PROJECT)).repositories) == ["a/.git", "b/.git"]


def test_the_search_is_bounded_and_says_when_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, "a/b/c/d/e", "high.pem", "z/1", "z/2", "z/3")
    assert search.search(str(tmp_path), Patterns(PROJECT)).complete
    monkeypatch.setattr(search, "DEEPEST", 2)
    assert not search.search(str(tmp_path), Patterns(PROJECT)).complete
    monkeypatch.setattr(search, "DEEPEST", 8)
    monkeypatch.setattr(search, "MOST_ENTRIES", 4)
    stopped = search.search(str(tmp_path), Patterns(PROJECT))
    assert not stopped.complete
    assert [found.path for found in stopped.found] == ["high.pem"]


def test_what_exists_is_located_with_the_parents_that_hold_it(tmp_path: Path) -> None:
    build(tmp_path, ".git/hooks/")
    found = locate(str(tmp_path), Guard(".git/hooks/", ""))
    assert found is not None
    assert (found.path, found.missing, found.is_dir) == (".git/hooks", False, True)
    assert found.pins == [f"{tmp_path}/.git"]


@pytest.mark.parametrize(
    ("existing", "guard", "path", "is_dir"),
    [
        ([], ".env", ".env", False),
        ([], ".vscode/", ".vscode", True),
        ([], ".claude/settings.json", ".claude", True),
        ([".claude/"], ".claude/settings.json", ".claude/settings.json", False),
        ([".git/"], ".git/hooks/", ".git/hooks", True),
        ([], "a/b/c", "a", True),
    ],
)
def test_what_is_missing_is_held_at_its_first_missing_part(
    tmp_path: Path, existing: list[str], guard: str, path: str, is_dir: bool
) -> None:
    build(tmp_path, *existing)
    found = locate(str(tmp_path), Guard(guard, ""))
    assert found is not None
    assert (found.path, found.missing, found.is_dir) == (path, True, is_dir)


def test_a_file_where_a_directory_should_be_is_protected_itself(tmp_path: Path) -> None:
    build(tmp_path, ".claude")
    found = locate(str(tmp_path), Guard(".claude/settings.json", ""))
    assert found == Found(str(tmp_path), ".claude", Guard(".claude/settings.json", ""), missing=False, is_dir=False)


def test_what_need_not_be_held_is_passed_over_where_it_is_missing(tmp_path: Path) -> None:
    assert locate(str(tmp_path), Guard("hooks", "", hold=False)) is None


def test_a_link_cannot_be_protected_and_says_so(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to("/etc")
    (tmp_path / ".env").symlink_to("missing")
    for path in (".git/hooks/", ".env"):
        with pytest.raises(PlanError, match="is a symbolic link") as refusal:
            locate(str(tmp_path), Guard(path, ""))
        assert refusal.value.hint.endswith(f"--rw {path.partition('/')[0]}")


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        (stat.S_IFSOCK, True),
        (stat.S_IFSOCK | 0o755, False),
        (stat.S_IFREG | 0o1444, True),
        (stat.S_IFREG | 0o1400, True),
        (stat.S_IFREG | 0o444, False),
        (stat.S_IFREG | 0o1644, False),
        (stat.S_IFDIR | 0o1755, True),
        (stat.S_IFDIR | 0o1700, True),
        (stat.S_IFDIR | 0o755, False),
        (stat.S_IFDIR | 0o1777, False),
    ],
)
def test_a_placeholder_is_known_by_its_mode(mode: int, answer: bool) -> None:
    assert is_placeholder(mode) is answer


@pytest.fixture(params=[0o022, 0o077, 0o000])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def three(root: Path) -> list[Placeholder]:
    return [
        Placeholder(str(root), ".env"),
        Placeholder(str(root), ".vscode", is_dir=True),
        Placeholder(str(root), "git/commondir", text=".\n"),
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "git").mkdir()
    (tmp_path / "git/HEAD").write_text("x")
    return tmp_path


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.usefixtures("umask")
def test_placeholders_come_and_go(root: Path) -> None:
    held = hold(three(root))
    assert listing(root) == [".env", ".vscode", "git", "git/HEAD", "git/commondir"]
    assert all(is_placeholder((root / name).lstat().st_mode) for name in (".env", ".vscode", "git/commondir"))
    assert (root / "git/commondir").read_text() == ".\n"
    assert locate(str(root), Guard(".env", "")) == Found(
        str(root), ".env", Guard(".env", ""), missing=True, is_dir=False
    )
    held.release()
    assert listing(root) == ["git", "git/HEAD"]


def test_no_process_stays_behind(root: Path) -> None:
    hold([]).release()
    hold(three(root)).release()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_releasing_twice_is_once(root: Path) -> None:
    held = hold(three(root))
    held.release()
    (root / ".env").write_text("mine")
    held.release()
    assert (root / ".env").read_text() == "mine"


def test_what_the_host_has_put_there_meanwhile_stays(root: Path) -> None:
    held = hold(three(root))
    (root / ".env").unlink()
    (root / ".env").write_text("the user's")
    (root / ".vscode/settings.json").write_text("{}")
    held.release()
    assert (root / ".env").read_text() == "the user's"
    assert (root / ".vscode/settings.json").read_text() == "{}"
    assert stat.S_IMODE((root / ".vscode").stat().st_mode) == 0o755
    assert not (root / "git/commondir").exists()


def test_a_link_in_the_place_of_a_placeholder_leads_nowhere(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    victim = tmp_path_factory.mktemp("victim")
    os.mknod(victim / ".env", stat.S_IFSOCK)
    held = hold(three(root))
    (root / ".env").unlink()
    (root / ".env").symlink_to(victim / ".env")
    held.release()
    assert (victim / ".env").is_socket()
    assert (root / ".env").is_symlink()


def test_a_directory_that_was_moved_is_still_cleaned_and_its_successor_left_alone(root: Path) -> None:
    held = hold(three(root))
    (root / "git").rename(root / "moved")
    (root / "git").symlink_to("/etc")
    held.release()
    assert listing(root) == ["git", "moved", "moved/HEAD"]


def test_a_placeholder_is_not_made_over_what_appeared(root: Path) -> None:
    (root / ".vscode").mkdir()
    with pytest.raises(PlanError, match=r"\.vscode appeared while the sandbox was starting"):
        hold(three(root))
    assert listing(root) == [".vscode", "git", "git/HEAD"]


def test_a_placeholder_is_not_made_through_a_link(root: Path) -> None:
    (root / "elsewhere").mkdir()
    (root / "git").rename(root / "real")
    (root / "git").symlink_to("elsewhere")
    with pytest.raises(PlanError, match=r"'git' in .* cannot be opened"):
        hold(three(root))
    assert listing(root) == ["elsewhere", "git", "real", "real/HEAD"]


def test_the_last_of_several_takes_them_away(root: Path) -> None:
    first, second = hold(three(root)), hold(three(root)[:1])
    first.release()
    assert listing(root) == [".env", ".vscode", "git", "git/HEAD"]  # `git` was only the first one's
    third = hold(three(root))
    second.release()
    assert ".env" in listing(root)
    third.release()
    assert listing(root) == ["git", "git/HEAD"]


def test_what_a_killed_run_has_left_is_taken_over(root: Path) -> None:
    os.mknod(root / ".env", stat.S_IFSOCK)
    hold(three(root)).release()
    assert listing(root) == ["git", "git/HEAD"]


def test_the_sandbox_is_waited_for(root: Path) -> None:
    read, write = os.pipe()
    sandbox = os.fork()
    if sandbox == 0:
        os.close(write)
        os.read(read, 1)  # until the test lets go
        os._exit(0 if (root / ".env").exists() else 1)
    held = hold(three(root))
    held.follow(sandbox)
    os.close(read)
    os.close(write)  # the warden has a copy of neither
    held.release()
    assert os.waitpid(sandbox, 0)[1] == 0
    assert not (root / ".env").exists()


def test_a_directory_that_somebody_else_has_locked_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "_LOCK_WAIT", 0.0)
    with locked(root), pytest.raises(PlanError, match="locked by another program"):
        hold(three(root))
    assert listing(root) == ["git", "git/HEAD"]


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    import fcntl

    fd = os.open(directory, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield
    os.close(fd)


def test_when_the_launcher_is_killed_the_warden_cleans_up(root: Path) -> None:
    read, write = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        held = hold(three(root))
        os.write(write, b"%d" % held.warden.pid)
        os.kill(os.getpid(), signal.SIGKILL)
    warden = os.pidfd_open(int(os.read(read, 32)))
    os.waitpid(launcher, 0)
    assert select.select([warden], [], [], 10)[0]
    for fd in (read, write, warden):
        os.close(fd)
    assert listing(root) == ["git", "git/HEAD"]


def test_what_stops_jobs_does_not_stop_the_warden(root: Path) -> None:
    held = hold(three(root))
    proc = Path(f"/proc/{held.warden.pid}")
    deadline = time.monotonic() + 10
    while (proc / "comm").read_text() != "egress-warden\n":  # its last step before it waits
        assert time.monotonic() < deadline
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    ignored = int(status["SigIgn"], 16)
    assert all(ignored >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    assert os.getsid(held.warden.pid) == held.warden.pid
    assert {os.readlink(proc / f"fd/{stream}") for stream in (0, 1, 2)} == {"/dev/null"}
    assert str(held.warden._line) not in os.listdir(proc / "fd")
    held.release()


def test_no_link_is_followed_on_the_way_to_a_file(root: Path) -> None:
    (root / "link").symlink_to("git")
    (root / "git/link").symlink_to("HEAD")
    fd = open_beneath(str(root), "git/HEAD", os.O_RDONLY | os.O_NOFOLLOW)
    assert os.read(fd, 8) == b"x"
    os.close(fd)
    for path in ("link/HEAD", "git/link", "git/missing"):
        with pytest.raises(PlanError, match="cannot be opened"):
            open_beneath(str(root), path, os.O_RDONLY | os.O_NOFOLLOW)
