from __future__ import annotations

import os
from pathlib import Path

import pytest
from toolkit import Box

from egress import toolhosts
from egress.names import Malformed
from egress.toolhosts.answers import remembered, run
from egress.toolhosts.findings import Setting
from egress.toolhosts.machine import Machine, this_machine
from egress.toolhosts.registry import parse_registry

NPMRC = "registry=https://registry.example/\n"


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


@pytest.mark.parametrize(
    ("text", "host", "port", "tls", "url"),
    [
        ("https://registry.example", "registry.example", 443, True, "https://registry.example/"),
        ("http://registry.example/npm/", "registry.example", 80, False, "http://registry.example/npm/"),
        ("HTTPS://Registry.Example:8443/x", "registry.example", 8443, True, "https://registry.example:8443/x"),
        ("http://[fd00::7]:4873/", "fd00::7", 4873, False, "http://[fd00::7]:4873/"),
        ("https://10.0.0.7/simple", "10.0.0.7", 443, True, "https://10.0.0.7/simple"),
        ("https://me:hunter2@registry.example/x", "registry.example", 443, True, "https://registry.example/x"),
        (
            "https://me@corp.example:hunter2@registry.example/",
            "registry.example",
            443,
            True,
            "https://registry.example/",
        ),
        ("https://registry.example/x?token=hunter2", "registry.example", 443, True, "https://registry.example/x"),
        ("https://registry.example#hunter2", "registry.example", 443, True, "https://registry.example/"),
    ],
)
def test_a_registry_is_read_without_the_credentials_in_it(text: str, host: str, port: int, tls: bool, url: str) -> None:
    registry = parse_registry(text, "$X", configured=True)
    assert registry[:4] == (host, port, tls, url)
    assert "hunter2" not in repr(registry)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "registry.example",
        "ftp://hunter2@registry.example/",
        "https://",
        "https:///hunter2",
        "https://hunter2@/",
        "https://registry.example:hunter2/",
        "https://registry.example:0/",
        "https://hunter2_example/",
        "https://hunter2 .example/",
        "https://registry.example\\@hunter2.example/",
        "https://registry.example/a b/hunter2",
        "https://127.1/hunter2",
        "https://${HUNTER2}/hunter2",
        "https://régistry.example/hunter2",
    ],
)
def test_what_is_no_registry_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_registry(text, "$X", configured=True)
    assert "expected" in str(caught.value)
    assert "unter2" not in str(caught.value).lower()


def test_a_setting_does_not_show_its_value() -> None:
    assert "hunter2" not in repr(Setting("https://hunter2@registry.example/", "$X"))
    assert "hunter2" not in repr(Machine({"NPM_TOKEN": "hunter2"}))


def test_no_other_tool_is_known(box: Box) -> None:
    with pytest.raises(ValueError, match=r"no such tool 'yarn', expected one of npm, pip, apt"):
        toolhosts.expand("yarn", box.machine)


def test_a_host_stands_once_per_port(box: Box) -> None:
    box.write("~/.npmrc", "registry=https://registry.example/a/\n@acme:registry=https://registry.example/b/\n")
    assert box.hosts("npm") == ["https://registry.example:443"]
    assert box.environment("npm") == {
        "npm_config_registry": "https://registry.example/a/",
        "npm_config_@acme:registry": "https://registry.example/b/",
    }


def test_a_configured_host_may_be_private_and_says_who_named_it(box: Box) -> None:
    file = box.write("~/.npmrc", f"\n{NPMRC}")
    (host,) = toolhosts.expand("npm", box.machine)
    assert host == ("registry.example", 443, True, True, f"{file}:2")


def test_a_changed_file_is_read_again(box: Box) -> None:
    file = box.write("~/.npmrc", NPMRC)
    assert box.hosts("npm") == ["https://registry.example:443"]
    before = toolhosts.fingerprint()
    assert toolhosts.fingerprint() == before
    file.write_text(NPMRC.replace("registry.example", "mirror.example"))
    assert toolhosts.fingerprint() != before
    assert box.hosts("npm") == ["https://mirror.example:443"]


def test_a_file_that_appears_is_seen(box: Box) -> None:
    box.environ["npm_config_registry"] = "https://registry.example/"
    assert box.hosts("npm") == ["https://registry.example:443"]
    before = toolhosts.fingerprint()
    box.write("~/.npmrc", "@acme:registry=https://acme.example/\n")
    assert toolhosts.fingerprint() != before
    assert "https://acme.example:443" in box.hosts("npm")


def test_a_changed_variable_is_read_again(box: Box) -> None:
    for host in ("one.example", "two.example"):
        box.environ["npm_config_registry"] = f"https://{host}/"
        assert box.hosts("npm") == [f"https://{host}:443"]


def test_nothing_is_read_twice_while_nothing_changes(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("~/.npmrc", NPMRC)
    box.hosts("npm")
    monkeypatch.setattr("egress.toolhosts.npm.find", None)
    assert box.hosts("npm") == ["https://registry.example:443"]


@pytest.mark.parametrize("place", ["project", "link", "dots", "relative"])
def test_no_file_is_read_from_where_a_sandbox_writes(box: Box, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = box.write("project/npmrc", "@evil:registry=https://evil.example/\n")
    monkeypatch.chdir(box.project)
    (box.home / "npmrc").symlink_to(planted)
    named = {"link": f"{box.home}/npmrc", "dots": f"{box.home}/../project/npmrc", "relative": "npmrc"}
    box.environ["NPM_CONFIG_USERCONFIG"] = named.get(place, str(planted))
    box.environ["npm_config_registry"] = "https://registry.example/"
    assert box.hosts("npm") == ["https://registry.example:443"]
    (problem,) = box.problems("npm")
    assert "is not read: a sandbox could write it" in problem


def test_the_working_directory_is_where_a_sandbox_writes(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(box.home))
    monkeypatch.chdir(box.project)
    assert this_machine().writable == (str(box.project),)
    monkeypatch.chdir(box.home)
    assert this_machine().writable == ()  # or no setting of the user's would count
    gone = box.path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert this_machine().writable == ()


def test_a_file_that_cannot_be_read_is_reported(box: Box) -> None:
    box.environ["npm_config_registry"] = "https://registry.example/"
    os.mkfifo(box.home / ".npmrc")
    assert box.hosts("npm") == ["https://registry.example:443"]
    assert box.problems("npm") == (f"{str(box.home / '.npmrc')!r} cannot be read: is not a regular file",)
    (box.home / ".npmrc").unlink()
    (box.home / ".npmrc").mkdir()
    assert "cannot be read: is not a regular file" in box.problems("npm")[0]
    (box.home / ".npmrc").rmdir()
    box.write("~/.npmrc", NPMRC + "#" * 2_000_000)
    assert "cannot be read: is larger than" in box.problems("npm")[0]


def test_an_answer_is_remembered_until_the_program_changes(box: Box) -> None:
    program = box.program("usr/bin/tool", "one")
    assert remembered(box.machine, str(program), lambda: "one") == "one"
    assert remembered(box.machine, str(program), lambda: "two") == "one"
    box.program("usr/bin/tool", "another")
    assert remembered(box.machine, str(program), lambda: "two") == "two"


def test_an_answer_is_kept_for_its_owner_alone_and_no_failure_is_kept(box: Box) -> None:
    program = str(box.program("usr/bin/tool", "one"))
    assert remembered(box.machine, program, lambda: None) is None
    assert remembered(box.machine, program, lambda: "one") == "one"
    (kept,) = (box.home / ".cache/egress/tools").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("spoilt", ["writable", "link", "empty", "long", "directory"])
def test_an_answer_that_others_could_have_written_is_not_taken(box: Box, spoilt: str) -> None:
    program = str(box.program("usr/bin/tool", "one"))
    remembered(box.machine, program, lambda: "one")
    (kept,) = (box.home / ".cache/egress/tools").iterdir()
    if spoilt == "writable":
        kept.chmod(0o622)
    elif spoilt == "link":
        kept.rename(box.home / "elsewhere")
        kept.symlink_to(box.home / "elsewhere")
    elif spoilt == "directory":
        kept.unlink()
        kept.mkdir()
    else:
        kept.write_text("" if spoilt == "empty" else "x" * 5000)
    assert remembered(box.machine, program, lambda: "two") == "two"


def test_an_answer_is_given_where_none_can_be_kept(box: Box) -> None:
    program = str(box.program("usr/bin/tool", "one"))
    box.write("~/.cache", "a file where a directory should be")
    assert remembered(box.machine, program, lambda: "one") == "one"
    del box.environ["HOME"]
    assert remembered(box.machine, program, lambda: "two") == "two"


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo hello", "hello"),
        ("pwd", "/"),
        ('echo "$VARIABLE:$HOME"', "given:"),
        ("echo hello; exit 1", None),
        ("echo hello >&2", None),
        ("echo one; echo two", None),
        ("head -c 9000 /dev/zero | tr '\\0' x", None),
        ("cat; echo 'nothing to read'", "nothing to read"),
    ],
)
def test_a_tool_is_run_by_itself_and_says_one_line(script: str, answer: str | None) -> None:
    assert run(("/bin/sh", "-c", script), {"VARIABLE": "given", "PATH": "/usr/bin:/bin"}) == answer


def test_a_tool_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egress.toolhosts.answers.PATIENCE", 0.05)
    assert run(("/bin/sleep", "600"), {}) is None
    assert run(("/nowhere/at/all",), {}) is None
