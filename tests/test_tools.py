"""What PATH and the command need of a hidden home."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.tools import Link, Needs, Places, needs, trace, which


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def link(path: Path, target: Path | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def needed(home: Path, *entries: str, command: Path | None = None, **places: tuple[str, ...]) -> Needs:
    where = Places(str(home), (str(home),), **places)
    found = needs(None if command is None else str(command), ":".join(entries), where)
    return Needs(tuple(sorted(path.removeprefix(f"{home}/") for path in found.binds)), found.links)


def binds(home: Path, *entries: str, command: Path | None = None, **places: tuple[str, ...]) -> tuple[str, ...]:
    return needed(home, *(f"{home}/{entry}" for entry in entries), command=command, **places).binds


def test_nothing_is_needed_of_the_home_where_path_is_elsewhere(home: Path) -> None:
    program(home / "x")
    assert needed(home, "/usr/bin", "/bin", "", ".", "relative/bin") == Needs((), ())


def test_a_directory_of_programs_is_bound_alone(home: Path) -> None:
    program(home / "bin/x")
    program(home / "go/bin/y")
    (home / "go/pkg").mkdir()
    assert binds(home, "bin", "go/bin", "missing/bin") == ("bin", "go/bin")


@pytest.mark.parametrize(
    ("entry", "beside", "bound"),
    [
        (".nvm/versions/node/v22/bin", "lib/node_modules", ".nvm/versions/node/v22"),
        (".pyenv/shims", "versions", ".pyenv"),
        (".asdf/shims", "installs", ".asdf"),
        (".npm-global/bin", "lib", ".npm-global"),
        ("miniconda3/bin", "lib", "miniconda3"),
        (".venvs/x/bin", "lib", ".venvs/x"),
    ],
)
def test_a_bin_is_bound_with_the_installation_that_it_belongs_to(
    home: Path, entry: str, beside: str, bound: str
) -> None:
    program(home / entry / "x")
    (home / bound / beside).mkdir(parents=True, exist_ok=True)
    assert binds(home, entry) == (bound,)


@pytest.mark.parametrize("entry", [".local/bin", ".cargo/bin", ".config/bin", ".cache/bin"])
def test_a_directory_in_which_credentials_lie_beside_programs_is_not_bound(home: Path, entry: str) -> None:
    program(home / entry / "x")
    (home / entry).parent.joinpath("versions").mkdir()
    assert binds(home, entry) == (entry,)


def test_what_programs_in_two_well_known_places_need_comes_along(home: Path) -> None:
    for path in (
        ".local/bin/x",
        ".local/lib/python3.11/x",
        ".cargo/bin/cargo",
        ".rustup/toolchains/x",
        ".cargo/credentials",
    ):
        program(home / path)
    assert binds(home, ".local/bin", ".cargo/bin") == (".cargo/bin", ".local/bin", ".local/lib", ".rustup")


@pytest.mark.parametrize("entry", ["", ".", "..", "../..", ".ssh", ".ssh/bin", ".gnupg"])
def test_the_home_what_is_above_it_and_keys_are_never_bound(home: Path, entry: str) -> None:
    program(home / ".ssh/bin/x")
    (home / ".gnupg").mkdir()
    (home / "lib").mkdir()
    assert binds(home, entry) == ()


def test_another_project_is_not_an_installation(home: Path) -> None:
    program(home / "rails/bin/x")
    (home / "rails/lib").mkdir()
    (home / "rails/.git").mkdir()
    assert binds(home, "rails/bin") == ("rails/bin",)


def test_a_link_in_path_leads_to_what_it_needs(home: Path) -> None:
    program(home / ".local/share/claude/versions/2.0")
    program(home / ".npm/lib/node_modules/@corp/agent/cli.js")
    program(home / ".local/share/pipx/venvs/black/bin/black")
    (home / ".local/share/pipx/venvs/black/pyvenv.cfg").write_text("")
    program(home / "work/script.sh")
    link(home / ".local/bin/claude", home / ".local/share/claude/versions/2.0")
    link(home / ".local/bin/agent", "../../.npm/lib/node_modules/@corp/agent/cli.js")
    link(home / ".local/bin/black", home / ".local/share/pipx/venvs/black/bin/black")
    link(home / ".local/bin/script", home / "work/script.sh")
    link(home / ".local/bin/ls", "/bin/ls")
    link(home / ".local/bin/broken", home / "missing")
    assert binds(home, ".local/bin") == (
        ".local/bin",
        ".local/share/claude/versions",
        ".local/share/pipx/venvs/black",
        ".npm/lib/node_modules",
        "work/script.sh",
    )


@pytest.mark.parametrize("target", [".ssh/id_rsa", ".aws/credentials", ".config/gh/hosts.yml", "notes.txt"])
def test_a_link_to_what_is_no_program_shows_at_most_that_file(home: Path, target: str) -> None:
    program(home / target)
    link(home / "bin/x", home / target)
    found = binds(home, "bin")
    assert set(found) <= {"bin", target}
    assert not target.startswith((".ssh", ".aws")) or found == ("bin",)


def test_the_python_of_a_venv_comes_along(home: Path) -> None:
    program(home / ".pyenv/versions/3.13/bin/python3.13")
    (home / ".pyenv/versions/3.13/lib/python3.13").mkdir(parents=True)
    link(home / ".pyenv/versions/3.13/bin/python3", "python3.13")
    (home / ".venvs/x").mkdir(parents=True)
    (home / ".venvs/x/pyvenv.cfg").write_text("")
    link(home / ".venvs/x/bin/python", home / ".pyenv/versions/3.13/bin/python3.13")
    assert binds(home, ".venvs/x/bin") == (".pyenv/versions/3.13", ".venvs/x")
    inside = str(home / ".venvs")
    assert binds(home, ".venvs/x/bin", writable=(inside,)) == (".pyenv/versions/3.13",)


@pytest.mark.parametrize("target", [".ssh/id_rsa", "other/bin/app", "other/run", ".config/gh/hosts.yml", ".tool/bin/x"])
def test_a_link_planted_in_the_project_gets_nothing_bound(home: Path, target: str) -> None:
    """The other project even looks like an installation."""
    program(home / target)
    for name in ("other/lib", ".tool/lib"):
        (home / name).mkdir(parents=True)
    program(home / "project/.venv/pyvenv.cfg")
    link(home / "project/.venv/bin/python", home / target)
    project = (str(home / "project"),)
    assert binds(home, "project/.venv/bin", writable=project) == ()
    assert binds(home, command=home / "project/.venv/bin/python", writable=project) == ()


def test_an_interpreter_named_by_a_planted_script_gets_nothing_bound(home: Path) -> None:
    secret = program(home / ".tool/bin/x", "secret")
    (home / ".tool/lib").mkdir()
    script = program(home / "project/run", f"#!{secret}\n")
    assert binds(home, command=script, writable=(str(home / "project"),)) == ()
    assert binds(home, command=script) == (".tool", "project/run")


def test_the_command_is_bound_with_the_interpreter_that_it_names(home: Path) -> None:
    interpreter = program(home / ".pythons/3/bin/python3", "ELF")
    (home / ".pythons/3/lib").mkdir()
    script = program(home / "scripts/run", f"#!{interpreter} -u\n")
    assert binds(home, command=script) == (".pythons/3", "scripts/run")


def test_an_interpreter_asked_of_env_is_looked_for_in_path(home: Path) -> None:
    program(home / ".nvm/v22/bin/node", "ELF")
    (home / ".nvm/v22/lib").mkdir()
    link(home / ".nvm/current", "v22")
    script = program(home / "scripts/run", "#!/usr/bin/env node\n")
    found = needed(home, f"{home}/.nvm/current/bin", command=script)
    assert found.binds == (".nvm/v22", "scripts/run")
    assert Link(f"{home}/.nvm/current", "v22") in found.links


def test_a_first_line_that_no_path_can_be_is_passed_over(home: Path) -> None:
    for text in ("#!\n", "#!", "#!/bin/\0sh\n", "#!/usr/bin/env\n", "#!/usr/bin/env no-such-program\n"):
        assert binds(home, command=program(home / "run", text)) == ("run",)


def test_scripts_that_name_each_other_come_to_an_end(home: Path) -> None:
    first, second = home / ".a/x", home / ".b/x"
    program(first, f"#!{second}\n")
    program(second, f"#!{first}\n")
    assert binds(home, command=first) == (".a", ".b")


def test_what_is_visible_anyway_is_not_bound(home: Path) -> None:
    program(home / ".nvm/bin/node")
    assert binds(home, ".nvm/bin", readable=(str(home / ".nvm"),)) == ()


@pytest.mark.parametrize("line", ["{}", "/usr/bin/env {}", "/usr/bin/env -S {}"])
def test_a_script_that_can_be_written_does_not_choose_what_is_bound(home: Path, line: str) -> None:
    secret = program(home / ".secret/run.sh")
    planted = program(home / "project/run", f"#!{line.format(secret)}\n")
    assert binds(home, command=planted, writable=(str(home / "project"),)) == ()
    assert binds(home, command=planted) != ()
    beside = link(home / "bin/run", planted)
    assert binds(home, "bin", command=beside, writable=(str(home / "project"),)) == ("bin",)


def test_but_its_interpreter_is_found_in_path(home: Path) -> None:
    program(home / ".nvm/current/node")
    link(home / "bin/node", home / ".nvm/current/node")
    planted = program(home / "project/run", "#!/usr/bin/env node\n")
    found = binds(home, "bin", command=planted, writable=(str(home / "project"),))
    assert found == (".nvm/current", "bin")


def test_a_path_is_traced_with_every_link_on_the_way(tmp_path: Path) -> None:
    program(tmp_path / "a/b/file")
    link(tmp_path / "x", "a")
    link(tmp_path / "a/y", f"{tmp_path}/x/b/../b")
    found = trace(f"{tmp_path}/x/./y//file")
    assert found.path == f"{tmp_path}/a/b/file"
    assert found.links == (
        Link(f"{tmp_path}/x", "a"),
        Link(f"{tmp_path}/a/y", f"{tmp_path}/x/b/../b"),
        Link(f"{tmp_path}/x", "a"),
    )


def test_links_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    link(tmp_path / "a", "b")
    link(tmp_path / "b", "a")
    assert trace(f"{tmp_path}/a/x").path.startswith(str(tmp_path))


def test_a_path_that_does_not_exist_is_traced_as_it_reads() -> None:
    assert trace("/no/such/../path") == (("/no/path"), ())
    assert trace("/") == ("/", ())


def test_a_command_is_looked_for_as_the_kernel_would(tmp_path: Path) -> None:
    tool = program(tmp_path / "bin/tool")
    (tmp_path / "bin/data").write_text("")
    assert which("tool", f"/nowhere:{tmp_path}/bin", "/") == str(tool)
    assert which("bin/tool", "", str(tmp_path)) == str(tool)
    assert which(str(tool), "", "/") == str(tool)
    assert which("data", f"{tmp_path}/bin", "/") is None
    assert which("bin", str(tmp_path), "/") is None
    assert which("tool", "", "/") is None
