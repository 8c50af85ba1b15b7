"""What is found on a machine, and what it comes to in a plan."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from egress.surroundings import Filesystem
from launcher import etc, search, sockets, survey
from launcher.mounts import Kind, PlanError, covering
from launcher.plan import Plan, plan
from launcher.request import Own, Request

PATH = "/usr/bin:/bin"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "home"
    for name in (".claude", ".ssh", "project", "other"):
        (path / name).mkdir(parents=True)
    for name in (".claude.json", ".gitconfig", ".ssh/id_rsa", "project/file"):
        (path / name).write_text("x")
    subprocess.run(["git", "init", "-q", str(path / "project")], check=True)
    return path


def made(home: Path, environ: dict[str, str] | None = None, **fields: object) -> Plan:
    request = Request(**({"command": ("true",), "project": str(home / "project")} | fields))  # type: ignore[arg-type]
    return plan(request, survey.survey(request, {"HOME": str(home), "PATH": PATH} | (environ or {})))


def kind(found: Plan, path: Path | str) -> Kind:
    return covering(found.mounts, str(path)).kind


def test_a_home_is_hidden_but_for_what_is_given_back(home: Path) -> None:
    found = made(home)
    assert kind(found, home / ".ssh/id_rsa") is Kind.SCRATCH
    assert kind(found, home / "other/x") is Kind.SCRATCH
    assert kind(found, home / ".claude/history") is Kind.WRITE
    assert kind(found, home / ".claude.json") is Kind.WRITE
    assert kind(found, home / ".gitconfig") is Kind.READ
    assert kind(found, home / "project/file") is Kind.WRITE


def test_what_does_not_exist_is_not_bound(home: Path) -> None:
    (home / ".claude.json").unlink()
    (home / ".gitconfig").unlink()
    found = made(home)
    assert kind(found, home / ".claude.json") is Kind.SCRATCH
    assert kind(found, home / ".gitconfig") is Kind.SCRATCH
    assert str(home / ".claude.json") not in [f"{place.root}/{place.path}" for place in found.placeholders]


def test_the_settings_of_the_users_agent_are_protected(home: Path) -> None:
    (home / ".claude/local").mkdir()
    (home / ".claude/settings.json").write_text("{}")
    found = made(home)
    assert kind(found, home / ".claude/settings.json") is Kind.READ
    assert kind(found, home / ".claude/settings.local.json") is Kind.CLOSED
    assert kind(found, home / ".claude/local/claude") is Kind.READ
    assert kind(found, home / ".claude/history.jsonl") is Kind.WRITE


@pytest.mark.parametrize("name", ["agents", "commands", "hooks", "plugins", "skills"])
def test_what_an_agent_outside_would_load_is_kept_and_cannot_be_brought_in(home: Path, name: str) -> None:
    assert kind(made(home), home / ".claude" / name / "x") is Kind.EMPTY
    (home / ".claude" / name).mkdir()
    assert kind(made(home), home / ".claude" / name / "x") is Kind.READ


def test_instructions_for_every_agent_of_the_user_are_kept_too(home: Path) -> None:
    found = made(home)
    assert kind(found, home / ".claude/CLAUDE.md") is Kind.READ
    [stand_in] = [place.text for place in found.placeholders if place.path == "CLAUDE.md"]
    assert not stand_in.strip()
    (home / ".claude/statusline.sh").write_text("x")
    assert kind(made(home), home / ".claude/statusline.sh") is Kind.READ


@pytest.mark.parametrize("name", ["agents", "commands", "hooks", "skills"])
def test_so_it_is_in_the_project(home: Path, name: str) -> None:
    (home / "project/.claude").mkdir()
    assert kind(made(home), home / "project/.claude" / name / "x") is Kind.EMPTY
    (home / "project/.claude" / name).mkdir()
    assert kind(made(home), home / "project/.claude" / name / "x") is Kind.READ
    assert kind(made(home), home / "project/.claude/notes") is Kind.WRITE


@pytest.mark.parametrize(
    ("kept", "free"),
    [(".cursor/mcp.json", ".cursor/rules/x.mdc"), (".kiro/settings/mcp.json", ".kiro/specs/x.md")],
)
def test_what_agents_run_is_protected_and_what_they_only_read_is_not(home: Path, kept: str, free: str) -> None:
    for name in (kept, free):
        (home / "project" / name).parent.mkdir(parents=True)
        (home / "project" / name).write_text("x")
    found = made(home)
    assert kind(found, home / "project" / kept) is Kind.READ
    assert kind(found, home / "project" / free) is Kind.WRITE


def test_a_file_that_is_a_link_is_seen_where_it_leads_and_where_it_is(home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / ".gitconfig").rename(home / "dotfiles/gitconfig")
    (home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    found = made(home)
    assert kind(found, home / "dotfiles/gitconfig") is Kind.READ
    assert kind(found, home / "dotfiles/other") is Kind.SCRATCH
    assert covering(found.mounts, f"{home}/.gitconfig").text == "dotfiles/gitconfig"


def test_a_home_that_is_a_link_keeps_its_name(home: Path) -> None:
    (home.parent / "me").symlink_to(home)
    found = made(home, {"HOME": str(home.parent / "me")})
    assert found.env["HOME"] == str(home.parent / "me")
    assert kind(found, home / ".ssh/id_rsa") is Kind.SCRATCH
    assert kind(found, home.parent / "me") is Kind.LINK


def test_a_home_that_cannot_be_hidden_is_refused(home: Path) -> None:
    with pytest.raises(PlanError, match="home directory is '/'"):
        made(home, {"HOME": "/"})


def test_without_a_home_it_is_tmp_inside(home: Path) -> None:
    found = made(home, {"HOME": str(home / "gone")})
    assert found.env["HOME"] == "/tmp"
    assert "there is no home directory: it is /tmp inside" in found.notes


def test_a_persona_gives_and_hides_outside_of_the_project(home: Path) -> None:
    (home / "data/secret").mkdir(parents=True)
    wishes = Filesystem(write=("~/data",), read=("~/other", "~/nothing"), hide=("~/data/secret", "/etc/hostname"))
    found = made(home, filesystem=wishes)
    assert kind(found, home / "data/x") is Kind.WRITE
    assert kind(found, home / "data/secret/x") is Kind.EMPTY
    assert kind(found, home / "other/x") is Kind.READ
    assert f"'{home}/nothing' is not here" in found.notes
    if os.path.exists("/etc/hostname"):
        assert kind(found, "/etc/hostname") is Kind.CLOSED


def test_in_the_project_reading_and_hiding_are_protections(home: Path) -> None:
    for name in ("docs", "notes/private"):
        (home / "project" / name).mkdir(parents=True)
    found = made(home, filesystem=Filesystem(read=("docs",), hide=("notes/private",)))
    assert kind(found, home / "project/docs/x") is Kind.READ
    assert kind(found, home / "project/notes/private/x") is Kind.EMPTY
    assert str(home / "project/notes") in [mount.path for mount in found.mounts]  # so that it cannot be moved


def test_a_persona_protects_paths_names_and_patterns(home: Path) -> None:
    for name in ("deploy/prod.yaml", "a/secrets.yaml", "a/x.tfstate"):
        (home / "project" / name).parent.mkdir(exist_ok=True)
        (home / "project" / name).write_text("x")
    wishes = Filesystem(protect=("deploy/prod.yaml", "secrets.yaml", "*.tfstate", "missing/", "~/.claude/mine.md"))
    found = made(home, filesystem=wishes)
    for name in ("deploy/prod.yaml", "a/secrets.yaml", "a/x.tfstate"):
        assert kind(found, home / "project" / name) is Kind.READ
    assert kind(found, home / "project/secrets.yaml") is Kind.CLOSED
    assert kind(found, home / "project/missing/x") is Kind.EMPTY
    assert kind(found, home / ".claude/mine.md") is Kind.CLOSED


def test_flags_are_relative_to_where_the_user_is(home: Path) -> None:
    found = made(home, directory=str(home / "other"), write=(".",), read=("../.ssh/id_rsa",))
    assert kind(found, home / "other/x") is Kind.WRITE
    assert kind(found, home / ".ssh/id_rsa") is Kind.READ


@pytest.mark.parametrize("flag", ["write", "read"])
def test_a_flag_must_name_something(home: Path, flag: str) -> None:
    with pytest.raises(PlanError, match="no such file or directory"):
        made(home, **{flag: (str(home / "nothing"),)})


@pytest.mark.parametrize("flag", ["write", "read"])
@pytest.mark.parametrize("path", ["~", "/", "~/.."])
def test_the_whole_home_is_given_to_nobody(home: Path, flag: str, path: str) -> None:
    with pytest.raises(PlanError, match="holds the whole home directory"):
        made(home, **{flag: (path,)})


def test_a_directory_of_the_system_is_writable_to_nobody(home: Path) -> None:
    with pytest.raises(PlanError, match="a directory of the system"):
        made(home, write=("/etc",))


def test_what_is_asked_to_be_writable_is_not_protected(home: Path) -> None:
    found = made(home, directory=str(home / "project"), write=(".env", "~/.claude/settings.json"))
    assert covering(found.mounts, f"{home}/project/.env").path == f"{home}/project"
    assert kind(found, home / "project/.envrc") is Kind.CLOSED
    assert covering(found.mounts, f"{home}/.claude/settings.json").path == f"{home}/.claude"


@pytest.mark.parametrize("name", [".claude", ".claude/settings.json"])
def test_a_link_that_cannot_be_protected_can_be_given_up(home: Path, name: str) -> None:
    link = home / "project" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to("elsewhere")
    with pytest.raises(PlanError, match="is a symbolic link") as refusal:
        made(home)
    assert refusal.value.hint.endswith(f"--rw {name}")
    found = made(home, directory=str(home / "project"), write=(name,))
    assert covering(found.mounts, str(link)).kind is Kind.WRITE


def test_a_grant_may_be_writable_in_what_is_readable_in_what_is_writable(home: Path) -> None:
    (home / "data/raw/out").mkdir(parents=True)
    found = made(home, write=("~/data", "~/data/raw/out"), read=("~/data/raw",))
    assert kind(found, home / "data/x") is Kind.WRITE
    assert kind(found, home / "data/raw/x") is Kind.READ
    assert kind(found, home / "data/raw/out/x") is Kind.WRITE


def test_a_repository_can_be_made_where_that_was_asked_for(home: Path) -> None:
    project = home / "other"
    assert kind(made(home, project=str(project)), project / ".git/x") is Kind.EMPTY
    assert kind(made(home, project=str(project), write=(f"{project}/.git",)), project / ".git/x") is Kind.WRITE


@pytest.mark.parametrize("fields", [{"write": ("~/cache/pip",)}, {"read": ("~/cache/pip",)}])
def test_a_link_that_an_earlier_run_could_have_made_is_not_followed(home: Path, fields: dict[str, tuple[str]]) -> None:
    (home / "cache").mkdir()
    (home / "cache/pip").symlink_to(home / ".ssh")
    wishes = Filesystem(write=("~/cache",))
    with pytest.raises(PlanError, match="may have made that link"):
        made(home, filesystem=wishes, **fields)


def test_nor_is_one_in_a_default_grant(home: Path) -> None:
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/config").symlink_to(home / ".ssh/id_rsa")
    assert kind(made(home, write=("~/.config",)), home / ".ssh/id_rsa") is Kind.SCRATCH


def test_nor_one_to_a_socket(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "agent.sock"))
        (home / "project/dev.sock").symlink_to(home / "agent.sock")
        with pytest.raises(PlanError, match="may have made that link"):
            made(home, sockets=(str(home / "project/dev.sock"),))
        found = made(home, sockets=(str(home / "agent.sock"),))
        assert kind(found, home / "agent.sock") is Kind.READ


def test_a_socket_of_the_persona_is_let_in_where_it_is_and_else_noted(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "agent.sock"))
        found = made(home, usual_sockets=("~/agent.sock", "~/other.sock"))
    assert kind(found, home / "agent.sock") is Kind.READ
    assert f"{str(home / 'other.sock')!r} is not here" in found.notes


def test_only_a_socket_is_granted_as_one(home: Path) -> None:
    with pytest.raises(PlanError, match="is not a socket"):
        made(home, sockets=(str(home / ".ssh/id_rsa"),))


def test_the_gates_own_files_are_hidden_however_they_are_reached(home: Path) -> None:
    for name in (".local/state/egress", ".config/egress"):
        (home / name).mkdir(parents=True)
    found = made(home, write=("~/.config",), read=("~/.local/state",))
    assert kind(found, home / ".config/egress/policy.yaml") is Kind.EMPTY
    assert kind(found, home / ".local/state/egress/audit.jsonl") is Kind.EMPTY
    assert kind(found, home / ".config/x") is Kind.WRITE


def test_a_gate_directory_that_is_missing_cannot_be_made(home: Path) -> None:
    (home / "state").mkdir()
    found = made(home, {"XDG_STATE_HOME": str(home / "state")}, write=(str(home / "state"),))
    assert kind(found, home / "state/egress/x") is Kind.EMPTY
    assert (str(home / "state"), "egress") in [(place.root, place.path) for place in found.placeholders]


def test_policy_and_audit_log_in_the_project_are_out_of_reach(home: Path) -> None:
    for name in ("rules/policy.yaml", "audit.jsonl"):
        (home / "project" / name).parent.mkdir(exist_ok=True)
        (home / "project" / name).write_text("x")
    own = (Own("rules/policy.yaml", "the policy", hide=False), Own(str(home / "project/audit.jsonl"), "the log"))
    found = made(home, own=own, directory=str(home / "project"))
    assert kind(found, home / "project/rules/policy.yaml") is Kind.READ
    assert kind(found, home / "project/rules/x") is Kind.WRITE
    assert kind(found, home / "project/audit.jsonl") is Kind.CLOSED


def test_the_launcher_cannot_be_rewritten_from_inside() -> None:
    code = Path(survey.__file__).parent
    request = Request(("true",), str(code.parent))
    found = plan(request, survey.survey(request, {"HOME": "/nonexistent", "PATH": PATH}))
    assert kind(found, code / "plan.py") is Kind.READ
    assert kind(found, code.parent / "README.md") is Kind.WRITE


def test_patterns_protect_a_bounded_number_of_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (home / f"project/{number}.pem").write_text("x")
    monkeypatch.setattr(survey, "MOST_MATCHES", 3)
    found = made(home)
    assert sum(mount.path.endswith(".pem") for mount in found.mounts) == 3
    assert found.warnings == ("2 more files match a protected name, and are writable",)


def test_many_certificates_do_not_crowd_out_secrets_further_down(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [home / "project/deep/down" / name for name in (".env", ".env.local", "a.key", ".envrc", "a.tfstate")]
    secrets[0].parent.mkdir(parents=True)
    for path in (*secrets, *(home / f"project/{number}.pem" for number in range(9))):
        path.write_text("x")
    monkeypatch.setattr(survey, "MOST_MATCHES", len(secrets))
    found = made(home, filesystem=Filesystem(protect=("*.tfstate",)))
    assert [kind(found, path) for path in secrets] == [Kind.READ] * len(secrets)
    assert found.warnings == ("9 more files match a protected name, and are writable",)


def test_a_project_too_large_to_be_searched_is_warned_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(home).warnings == ()
    monkeypatch.setattr(search, "MOST_ENTRIES", 1)
    [warning] = made(home).warnings
    assert "the project is large" in warning


def test_repositories_beyond_those_looked_after_are_warned_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        subprocess.run(["git", "init", "-q", str(home / "project" / name)], check=True)
    assert sorted(known.path for known in made(home).repositories.known) == ["a/.git", "b/.git"]
    monkeypatch.setattr(survey, "MOST_NESTED", 1)
    assert made(home).warnings == ("1 more repositories lie in the project, and their hooks are writable",)


@pytest.mark.parametrize("name", [".gitconfig", ".config/git/config"])
def test_hooks_that_the_users_configuration_names_are_protected_where_they_can_be_written(
    home: Path, name: str
) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / "other/hooks").mkdir()
    (home / name).write_text("[core] hooksPath = .githooks\n[CORE]\nHooksPath = ~/other/hooks ; shared\n")
    found = made(home, write=("~/other",))
    assert kind(found, home / "project/.githooks/pre-commit") is Kind.EMPTY
    assert kind(found, home / "other/hooks/pre-commit") is Kind.READ
    assert kind(found, home / "other/x") is Kind.WRITE
    assert kind(made(home), home / "other/hooks/pre-commit") is Kind.SCRATCH


def test_a_configuration_that_names_the_project_itself_does_not_close_it(home: Path) -> None:
    (home / ".gitconfig").write_text("[core]\nhooksPath = .\n")
    assert kind(made(home), home / "project/file") is Kind.WRITE


@pytest.mark.parametrize("fields", [{"write": ("~/other",)}, {"filesystem": Filesystem(write=("~/other",))}])
def test_a_repository_that_is_writable_beside_the_project_keeps_its_hooks(
    home: Path, fields: dict[str, object]
) -> None:
    subprocess.run(["git", "init", "-q", str(home / "other")], check=True)
    found = made(home, **fields)
    assert kind(found, home / "other/.git/hooks/pre-commit") is Kind.READ
    assert kind(found, home / "other/.git/config") is Kind.READ
    assert kind(found, home / "other/.git/index") is Kind.WRITE


def test_a_placeholder_of_another_run_counts_as_missing(home: Path) -> None:
    os.mknod(home / "project/.env", stat.S_IFSOCK)
    found = made(home)
    assert kind(found, home / "project/.env") is Kind.CLOSED
    assert ".env" in [place.path for place in found.placeholders]


def test_hooks_of_repositories_further_down_are_protected_and_their_directories_stay(home: Path) -> None:
    subprocess.run(["git", "init", "-q", str(home / "project/vendor/x")], check=True)
    found = made(home)
    assert kind(found, home / "project/vendor/x/.git/hooks/pre-commit") is Kind.READ
    assert kind(found, home / "project/vendor/x/file") is Kind.WRITE
    paths = [mount.path for mount in found.mounts]
    assert {str(home / "project" / name) for name in ("vendor", "vendor/x", "vendor/x/.git")} <= set(paths)


def test_a_submodule_stays_where_it_is_however_deep_that_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, path = home / "project", "node_modules/deep/sub"
    as_me = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always", "-C"]
    subprocess.run(["git", "init", "-q", str(home / "other")], check=True)
    subprocess.run([*as_me, str(home / "other"), "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    subprocess.run([*as_me, str(project), "submodule", "add", "-q", str(home / "other"), path], check=True)
    monkeypatch.setattr(survey, "MOST_NESTED", 0)
    found = made(home)
    assert found.warnings == ()
    assert kind(found, project / path / ".git") is Kind.READ
    pinned = {mount.path for mount in found.mounts if mount.why == "stays where it is"}
    assert {str(project / name) for name in ("node_modules", "node_modules/deep", path)} <= pinned
    [known] = found.repositories.known
    status = (project / path / ".git").lstat()
    assert known == (f"{path}/.git", status.st_dev, status.st_ino)
    given_up = made(home, write=(str(project / path / ".git"),))
    assert not {mount.path for mount in given_up.mounts} & {str(project / "node_modules"), str(project / path)}


def test_a_bound_socket_in_a_visible_place_is_closed(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "project/dev.sock"))
        assert kind(made(home), home / "project/dev.sock") is Kind.CLOSED


def test_a_socket_bound_by_a_relative_path_is_closed_in_the_project(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project/run").mkdir()
    monkeypatch.chdir(home / "project/run")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as named:
        listener.bind("dev.sock")
        named.bind("x.pem")
        found = made(home)
        assert kind(found, home / "project/run/dev.sock") is Kind.CLOSED
        assert kind(found, home / "project/run/x.pem") is Kind.CLOSED
        monkeypatch.setattr(survey, "MOST_SOCKETS", 1)
        assert made(home).warnings == ("1 more sockets lie in the project, and can be connected to",)


def test_names_are_served_by_the_gate(home: Path) -> None:
    found = made(home, nameserver="198.18.0.9")
    texts = {mount.path: mount.text for mount in found.mounts if mount.kind is Kind.TEXT}
    assert texts[os.path.realpath("/etc/resolv.conf")] == "nameserver 198.18.0.9\n"
    assert texts[os.path.realpath("/etc/hosts")].endswith("\n127.0.0.1 sandbox\n")


def test_the_agent_is_told_of_what_it_will_lose(home: Path) -> None:
    (home / ".claude.json").unlink()
    (home / "bin").mkdir()
    (home / "bin/claude").write_text("#!/bin/sh\n")
    (home / "bin/claude").chmod(0o755)
    found = made(home, {"PATH": f"{home}/bin"}, command=("claude",))
    assert found.notes == ("~/.claude.json does not exist: what the agent writes there ends with the sandbox",)
    assert kind(found, home / "bin/claude") is Kind.READ


def test_the_table_of_sockets_is_read() -> None:
    table = (
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/docker.sock\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 12346 @/tmp/dbus-abstract\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 12347\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 12348 relative.sock\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 12349 /srv/with space.sock\n"
    )
    assert list(sockets.paths(table)) == ["/run/docker.sock", "/srv/with space.sock"]


def test_only_sockets_that_are_there_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link.sock").symlink_to("real.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "real.sock"))
        names = ("file", "gone.sock", "link.sock", "real.sock")
        assert sockets.present(f"{tmp_path}/{name}" for name in names) == (f"{tmp_path.resolve()}/real.sock",)


@pytest.mark.parametrize(
    ("hosts", "inside"),
    [
        ("hosts: files dns", "hosts: files dns"),
        ("hosts:          files myhostname dns", "hosts:          files myhostname dns"),
        ("hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns", "hosts: files myhostname dns"),
        ("hosts: files mdns4_minimal [NOTFOUND=return] dns", "hosts: files dns"),
        ("hosts: resolve", "hosts: dns"),
    ],
)
def test_names_are_asked_of_no_daemon(hosts: str, inside: str) -> None:
    assert (
        etc.without_daemons(f"passwd: files systemd\n{hosts}\n# end\n") == f"passwd: files systemd\n{inside}\n# end\n"
    )


def test_a_user_is_known_by_number() -> None:
    passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nbroken\n"
    assert etc.has_user(passwd, 1000)
    assert not etc.has_user(passwd, 100)


def test_a_launcher_in_the_project_is_kept_from_it_with_its_policy_and_scripts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = home / "work"
    for name in ("egress", "launcher", "policies", "scripts", ".venv"):
        (project / name).mkdir(parents=True)
    (project / "pyproject.toml").write_text("")
    monkeypatch.setattr(survey, "_CODE", str(project))
    found = made(home, project=str(project))
    for name in ("egress/x", "launcher/x", "policies/x.yaml", "scripts/egress", ".venv/bin/python", "pyproject.toml"):
        assert kind(found, project / name) is Kind.READ
    assert kind(found, project / "free") is Kind.WRITE
