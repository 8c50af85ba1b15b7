"""The project directory and the git directories that belong to it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launcher.mounts import PlanError
from launcher.project import nested, other_tree, project_directory, repository

GIT = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]


def git(directory: Path, *words: str) -> None:
    subprocess.run([*GIT, "-C", str(directory), *words], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "repo"
    path.mkdir()
    git(path, "init", "-q")
    git(path, "commit", "-q", "--allow-empty", "-m", "one")
    return path


def guards(path: Path) -> list[str]:
    return sorted(f"{Path(root).name}: {guard.path}" for root, guard in repository(str(path)).guards)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("/", "which holds the whole home directory"),
        ("/home", "which holds the whole home directory"),
        ("/etc", "a directory of the system"),
        ("/usr", "a directory of the system"),
        ("/usr/lib", "a directory of the system"),
        ("/proc/self", "a directory of the system"),
        ("/tmp", "a directory of the system"),
        ("/var", "a directory of the system"),
        ("/dev", "a directory of the system"),
    ],
)
def test_a_project_that_would_give_too_much_away_is_refused(given: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason) as refusal:
        project_directory(given, "/home/me")
    assert refusal.value.hint.startswith("--project")


def test_the_home_directory_itself_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="which holds the whole home directory"):
        project_directory(str(tmp_path), str(tmp_path))


@pytest.mark.parametrize("target", ["/", "/etc", "home", "home/.ssh", "home/.config"])
def test_a_link_to_such_a_place_is_refused_too(tmp_path: Path, target: str) -> None:
    home = tmp_path / "home"
    for name in (".ssh", ".config"):
        (home / name).mkdir(parents=True)
    (tmp_path / "project").symlink_to(tmp_path / target)
    with pytest.raises(PlanError, match=f"the project '{tmp_path}/project' is '"):
        project_directory(str(tmp_path / "project"), str(home))


def test_a_project_must_be_a_directory_that_exists(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "missing"):
        with pytest.raises(PlanError, match="is not a directory"):
            project_directory(str(tmp_path / name), "/home/me")


def test_a_project_is_known_by_its_real_path(tmp_path: Path) -> None:
    real = tmp_path.resolve() / "real"
    (real / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    assert project_directory(str(tmp_path / "link/sub"), "/home/me") == f"{real}/sub"


def test_hooks_and_configuration_of_a_repository_are_guarded(repo: Path) -> None:
    assert guards(repo) == ["repo: .git/commondir", "repo: .git/config", "repo: .git/hooks/"]


def test_without_a_repository_none_can_be_made(tmp_path: Path) -> None:
    assert guards(tmp_path.resolve()) == [f"{tmp_path.name}: .git/"]
    (tmp_path / ".git").mkdir()
    assert guards(tmp_path.resolve()) == [f"{tmp_path.name}: .git/"]


def test_a_repository_above_the_project_is_told_of(repo: Path) -> None:
    (repo / "a/b").mkdir(parents=True)
    [note] = repository(str(repo / "a/b")).notes
    assert f"--project {repo} for git to work" in note


def test_a_git_directory_that_is_a_link_is_refused(repo: Path) -> None:
    (repo / ".git").rename(repo / "moved")
    (repo / ".git").symlink_to("moved")
    with pytest.raises(PlanError, match="is a symbolic link"):
        repository(str(repo))


def test_settings_of_a_worktree_are_guarded_where_git_reads_them(repo: Path) -> None:
    git(repo, "config", "extensions.worktreeConfig", "yes")
    assert "repo: .git/config.worktree" in guards(repo)


def test_hooks_and_includes_that_lie_in_the_project_are_guarded(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", ".githooks")
    git(repo, "config", "include.path", "../shared.conf")
    git(repo, "config", "--add", "include.path", "/etc/gitconfig")
    git(repo, "config", "--add", "include.path", "~/.gitconfig-work")
    assert set(guards(repo)) >= {"repo: .githooks/", "repo: shared.conf"}
    assert not [guard for guard in guards(repo) if "etc" in guard]


def test_submodules_are_guarded_with_their_repository(repo: Path, tmp_path: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repo), "libs/a")
    assert "repo: .git/modules/libs/a/hooks/" in guards(repo)
    assert "repo: .git/modules/libs/a/config" in guards(repo)


def test_a_linked_worktree_brings_its_repository(repo: Path) -> None:
    linked = repo.parent / "linked"
    git(repo, "worktree", "add", "-q", str(linked))
    found = repository(str(linked))
    assert found.elsewhere == (f"{repo}/.git",)
    assert found.notes == ()
    assert guards(linked) == [
        ".git: commondir",
        ".git: config",
        ".git: hooks/",
        ".git: worktrees/linked/commondir",
        "linked: .git",
    ]


def test_a_submodule_as_project_brings_its_own_directory_only(repo: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repo), "sub")
    found = repository(str(repo / "sub"))
    assert found.elsewhere == (f"{repo}/.git/modules/sub",)
    assert guards(repo / "sub") == ["sub: .git", "sub: commondir", "sub: config", "sub: hooks/"]


@pytest.mark.parametrize("planted", ["keys", "other/.git", "other/.git/worktrees/w"])
def test_a_git_file_that_names_a_directory_which_does_not_name_it_back_is_not_believed(
    repo: Path, planted: str
) -> None:
    base = repo.parent
    (base / "keys").mkdir()
    (base / "keys/HEAD").write_text("")
    git(base, "init", "-q", "other")
    git(base / "other", "commit", "-q", "--allow-empty", "-m", "one")
    git(base / "other", "worktree", "add", "-q", str(base / "w"))
    project = base / "project"
    project.mkdir()
    (project / ".git").write_text(f"gitdir: {base / planted}\n")
    found = repository(str(project))
    assert found.elsewhere == ()
    assert "does not name this project" in found.notes[0]
    assert guards(project) == ["project: .git"]


def test_a_worktree_whose_commondir_points_elsewhere_gets_nothing_more(repo: Path) -> None:
    linked, other = repo.parent / "linked", repo.parent / "other"
    git(repo, "worktree", "add", "-q", str(linked))
    git(repo.parent, "init", "-q", str(other))
    (repo / ".git/worktrees/linked/commondir").write_text(f"{other}/.git")
    assert repository(str(linked)).elsewhere == ()


@pytest.mark.parametrize("text", ["", "gitdir:", "gitdir: /no/such", "nonsense", "\0"])
def test_a_git_file_that_says_nothing_useful_is_only_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").write_text(text)
    found = repository(str(tmp_path.resolve()))
    assert found.elsewhere == ()
    assert "no git directory" in found.notes[0]


def further_down(repo: Path, *paths: str) -> list[str]:
    return [guard.path for path in paths for _, guard in nested(str(repo), path, "/home/me")]


def test_repositories_further_down_are_guarded_too(repo: Path) -> None:
    git(repo, "init", "-q", "vendor/x")
    (repo / "sub").mkdir()
    (repo / "sub/.git").write_text("gitdir: ../.git/modules/sub")
    assert further_down(repo, "vendor/x/.git", "sub/.git", "none/.git") == [
        "vendor/x/.git/hooks/",
        "vendor/x/.git/config",
        "vendor/x/.git/commondir",
        "sub/.git",
    ]


def test_so_is_what_their_configuration_names_and_what_belongs_to_them(repo: Path) -> None:
    git(repo, "init", "-q", "x")
    git(repo / "x", "submodule", "add", "-q", str(repo), "inner")
    git(repo / "x", "config", "core.hooksPath", "tools")
    git(repo / "x", "config", "extensions.worktreeConfig", "yes")
    found = further_down(repo, "x/.git")
    assert {"x/tools/", "x/.git/config.worktree", "x/.git/modules/inner/config", "x/inner/.git"} <= set(found)


def test_a_git_directory_apart_from_its_tree_is_guarded_where_it_lies(repo: Path) -> None:
    (repo / "store").mkdir()
    git(repo, "init", "-q", "--separate-git-dir", str(repo / "store/x"), str(repo / "x"))
    assert further_down(repo, "x/.git") == ["x/.git", "store/x/hooks/", "store/x/config", "store/x/commondir"]
    (repo / "x/.git").write_text("gitdir: /etc\n")
    assert further_down(repo, "x/.git") == ["x/.git"]


def test_what_says_where_a_submodule_is_is_guarded_in_the_submodule(repo: Path) -> None:
    for path in ("libs/a", "node_modules/deep/b"):
        git(repo, "submodule", "add", "-q", str(repo), path)
    assert {"repo: libs/a/.git", "repo: node_modules/deep/b/.git"} <= set(guards(repo))


def test_a_submodule_that_is_not_there_may_be_fetched(repo: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repo), "libs/a")
    (repo / "libs/a/.git").unlink()
    assert "repo: libs/a/.git" not in guards(repo)


def test_a_submodule_behind_a_link_or_outside_of_the_project_is_not_gone_after(repo: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repo), "libs/a")
    (repo / "libs").rename(repo.parent / "libs")
    (repo / "libs").symlink_to("../libs")
    assert "repo: libs/a/.git" not in guards(repo)
    git(repo, "config", "--file", ".git/modules/libs/a/config", "core.worktree", str(repo.parent / "libs/a"))
    assert not [guard for guard in guards(repo) if guard.endswith("a/.git")]


def test_settings_and_hooks_of_a_submodule_are_guarded_where_git_reads_them(repo: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repo), "sub")
    git(repo / "sub", "config", "extensions.worktreeConfig", "yes")
    git(repo / "sub", "config", "core.hooksPath", "tools")
    assert {"repo: .git/modules/sub/config.worktree", "repo: sub/tools/"} <= set(guards(repo))


def test_a_worktree_in_the_project_is_guarded_where_it_lies(repo: Path) -> None:
    git(repo, "worktree", "add", "-q", str(repo / "trees/one"))
    git(repo, "worktree", "add", "-q", str(repo.parent / "beside"))
    assert [guard for guard in guards(repo) if guard.endswith((" .git", "/.git"))] == ["repo: trees/one/.git"]


def test_submodules_of_a_linked_worktree_are_guarded_where_git_keeps_them(repo: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repo), "sub")
    git(repo, "commit", "-q", "-m", "two")
    linked = repo.parent / "linked"
    git(repo, "worktree", "add", "-q", str(linked))
    git(linked, "submodule", "update", "-q", "--init")
    wanted = {".git: worktrees/linked/modules/sub/config", ".git: worktrees/linked/modules/sub/hooks/"}
    assert wanted | {"linked: sub/.git"} <= set(guards(linked))


def test_another_writable_tree_is_guarded_if_it_is_a_repository(repo: Path) -> None:
    found = [guard.path for _, guard in other_tree(str(repo), "/home/me")]
    assert found == [".git/hooks/", ".git/config", ".git/commondir"]
    assert [guard.path for _, guard in other_tree(str(repo / ".git"), "/home/me")] == ["hooks/", "config", "commondir"]
    (repo / "sub").mkdir()
    assert list(other_tree(str(repo / "sub"), "/home/me")) == []
    (repo / "sub/.git").write_text("gitdir: ../.git/modules/sub")
    assert [guard.path for _, guard in other_tree(str(repo / "sub"), "/home/me")] == [".git"]


def test_a_tilde_in_a_configuration_is_the_home_directory(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", "~/repo/shared")
    found = [guard.path for _, guard in repository(str(repo), str(repo.parent)).guards]
    assert "shared/" in found
    assert not [path for path in found if "~" in path]
