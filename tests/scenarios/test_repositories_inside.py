"""Repositories in the project that have power on the host: those that were there stay, and new ones are told.

The attack is always the same: put a repository whose `core.fsmonitor` is a program of the attacker's where git on
the host will look next. Each is also run without a sandbox, where it must succeed, or it proves nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from launchkit import PEOPLE, Person, somebody

pytestmark = pytest.mark.scenario

SETTINGS = ("user.name=n", "user.email=e", "protocol.file.allow=always", "init.defaultBranch=main")
GIT = ["git", *(word for setting in SETTINGS for word in ("-c", setting))]
PLACES = ["libs/sub", "node_modules/sub", "sparse", "trees/one", "vendor/clone"]

# Each of them alone would do; what fails makes no difference to the next.
ATTACK = r"""
    project=$(pwd) where=$1 top=${1%%/*} proof=$2
    evil() {
        git -c init.defaultBranch=main init -q .
        git -c user.name=a -c user.email=a@a commit -q --allow-empty -m e
        printf '#!/bin/sh\ntouch %s\n' "$proof" > "$project/evil"; chmod +x "$project/evil"
        git config core.fsmonitor "$project/evil"
    }
    mkdir -p node_modules
    printf '[core]\n\tfsmonitor = %s/evil\n' "$project" | tee .git/modules/*/config.worktree \
        .git/modules/*/*/config.worktree > /dev/null
    for f in "$where/.git" "$where/.git/config" .git/modules/*/config .git/modules/*/*/config; do echo >> "$f"; done
    mv "$where" node_modules/.cache
    mv "$top" aside
    mv -T "$where/.git" aside.git
    rm -rf "$where"
    mkdir -p "$where" && cd "$where" && evil
"""


@pytest.fixture(params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as made:
        furnish(made)
        yield made


def furnish(person: Person) -> None:
    """Submodules, one of them with settings per worktree; a linked worktree; a clone that nothing names."""
    other = person.home / "other"
    person.own()
    for path in (other, person.project):
        host(person, "init", "-q", str(path))
    host(person, "-C", str(other), "commit", "-q", "--allow-empty", "-m", "one")
    for path in ("libs/sub", "node_modules/sub", "sparse"):
        host(person, "submodule", "add", "-q", str(other), path)
    host(person, "-C", str(person.project / "sparse"), "config", "extensions.worktreeConfig", "true")
    host(person, "commit", "-q", "-m", "two")
    host(person, "worktree", "add", "-q", "trees/one")
    host(person, "clone", "-q", str(other), "vendor/clone")


def host(person: Person, *words: str) -> str:
    """Git as the person runs it, outside."""
    as_them = {**person.env, "GIT_CONFIG_GLOBAL": "/dev/null"}
    return subprocess.run(
        [*GIT, *words],
        check=True,
        cwd=person.project,
        env=as_them,
        stdout=subprocess.PIPE,
        text=True,
        **person.identity,
    ).stdout


def look(person: Person, project: Path, where: str) -> None:
    """What a person does next."""
    for directory in (project, project / where):
        subprocess.run(
            [*GIT, "-C", str(directory), "status"],
            check=False,
            env=person.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **person.identity,
        )


@pytest.mark.parametrize("where", PLACES)
def test_no_repository_is_put_where_one_was(person: Person, where: str) -> None:
    proof, beside = person.home / "proof", person.home / "beside"
    shutil.copytree(person.project, beside, symlinks=True)
    person.own()
    done = person.run("sh", "-c", ATTACK, "sh", where, str(proof))
    look(person, person.project, where)
    assert not proof.exists(), done.stderr
    assert b"was replaced" not in done.stderr
    assert b"is gone" not in done.stderr

    words = ["sh", "-c", ATTACK, "sh", where, str(proof)]
    subprocess.run(words, check=False, cwd=beside, env=person.env, capture_output=True, **person.identity)
    look(person, beside, where)
    assert proof.exists(), "it fails without walls too"


def test_git_works_in_all_of_them(person: Person) -> None:
    commit = "echo x > file && git add file && git -c user.name=n -c user.email=e commit -qm inside && git status"
    for where in PLACES:
        done = person.run("sh", "-c", f"cd {where} && {commit}")
        assert (done.returncode, done.stderr) == (0, b""), where
        assert host(person, "-C", where, "log", "-1", "--format=%s") == "inside\n"
    done = person.run("git", "submodule", "status")
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, b"", 3)


@pytest.mark.parametrize("where", ["new", "node_modules/deep/new", ".venv/src/new"])
def test_a_repository_that_is_made_is_told(person: Person, where: str) -> None:
    done = person.run("git", "-c", "init.defaultBranch=main", "init", "-q", where)
    assert f"egress: warning: a repository was made in '{where}/.git'" in done.stderr.decode()
    assert b"egress: hint: read its config and hooks" in done.stderr
    assert person.run("true").stderr == b""


def test_so_is_one_that_a_process_left_behind_makes_or_that_takes_no_time(person: Person) -> None:
    """The end of the command is not the end of the sandbox, and a gate may not even have started."""
    done = person.run("sh", "-c", "(while mkdir -p left/.git; do :; done) & mkdir -p quick/.git")
    assert b"made in 'left/.git'" in done.stderr or not os.path.exists(person.project / "left/.git")
    assert b"made in 'quick/.git'" in done.stderr
