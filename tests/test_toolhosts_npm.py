from __future__ import annotations

from pathlib import Path

import pytest
from toolkit import Box

from egress import toolhosts


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path)
    made.program("usr/bin/node", "not to be run")
    return made


@pytest.fixture
def npm(box: Box) -> Path:
    return box.program("usr/bin/npm", "https://default.example/")


def setting(host: str) -> str:
    return f"registry=https://{host}.example/\n"


def test_the_stronger_setting_counts(box: Box) -> None:
    (box.bin / "npm").symlink_to("../lib/npm/bin/npm-cli.js")
    box.program("usr/lib/npm/bin/npm-cli.js", "not to be asked")
    layers = [
        lambda: box.write("usr/lib/npm/npmrc", setting("builtin")),
        lambda: box.write("usr/etc/npmrc", setting("global")),
        lambda: box.write("~/.npmrc", setting("user")),
        lambda: box.environ.update(NPM_CONFIG_REGISTRY="https://variable.example/"),
    ]
    for name, put in zip(("builtin", "global", "user", "variable"), layers, strict=True):
        put()
        assert box.hosts("npm") == [f"https://{name}.example:443"]
        assert box.environment("npm") == {"npm_config_registry": f"https://{name}.example/"}


@pytest.mark.parametrize("name", ["npm_config_registry", "NPM_CONFIG_REGISTRY", "Npm_Config_Registry"])
def test_a_variable_counts_in_any_case(box: Box, name: str) -> None:
    box.environ[name] = "https://registry.example/"
    assert box.hosts("npm") == ["https://registry.example:443"]


def test_an_empty_variable_is_none(box: Box, npm: Path) -> None:
    box.environ["npm_config_registry"] = ""
    assert box.hosts("npm") == ["https://default.example:443"]


@pytest.mark.parametrize(
    ("put", "value"),
    [
        ("elsewhere/npmrc", {"npm_config_userconfig": "{}"}),
        ("elsewhere/npmrc", {"npm_config_globalconfig": "{}"}),
        ("elsewhere/etc/npmrc", {"npm_config_prefix": "{}/../.."}),
        ("elsewhere/etc/npmrc", {"PREFIX": "{}/../.."}),
        ("~/.npm-global/etc/npmrc", {"npm_config_prefix": "~/.npm-global"}),
    ],
)
def test_the_files_are_where_variables_say(box: Box, put: str, value: dict[str, str]) -> None:
    file = box.write(put, setting("moved"))
    box.environ.update({name: text.format(file) for name, text in value.items()})
    if put.startswith("elsewhere/etc"):
        box.environ.update({name: str(file.parent.parent) for name in value})
    assert box.hosts("npm") == ["https://moved.example:443"]


def test_the_prefix_of_the_users_file_leads_to_the_global_one(box: Box) -> None:
    box.write("~/.npmrc", "prefix = ${HOME}/.npm-global\n")
    box.write("~/.npm-global/etc/npmrc", setting("global"))
    box.write("usr/etc/npmrc", setting("other"))
    assert box.hosts("npm") == ["https://global.example:443"]


def test_a_scope_has_its_own_registry_beside_the_default(box: Box, npm: Path) -> None:
    box.write("~/.npmrc", "@acme:registry = https://npm.acme.example:8443/x/\n")
    assert box.hosts("npm") == ["https://npm.acme.example:8443", "https://default.example:443"]
    assert box.environment("npm") == {"npm_config_@acme:registry": "https://npm.acme.example:8443/x/"}


@pytest.mark.parametrize(
    "text",
    [
        "registry=https://me:hunter2@registry.example/",
        "; comment = 1\n# registry=https://evil.example/\nregistry = https://registry.example/ ; mine",
        'registry = "https://registry.example/"',
        "'registry'='https://registry.example/'",
        "registry=https://${WHO}.example/",
        "registry=https://${NOBODY}@registry.example/",
        "registry=https://registry${NOTHING?}.example/",
        "registry=https://registry.example/\n[section]\nregistry=https://evil.example/",
        "registry=https://first.example/\nregistry=https://registry.example/",
        "//registry.example/:_authToken=hunter2==\n_password=hunter2\nregistry=https://registry.example/",
    ],
)
def test_a_file_is_read_as_npm_reads_it(box: Box, text: str) -> None:
    box.environ["WHO"] = "registry"
    box.write("~/.npmrc", f"{text}\n")
    assert box.hosts("npm") == ["https://registry.example:443"]
    assert box.environment("npm") == {"npm_config_registry": "https://registry.example/"}
    assert box.problems("npm") == ()


def test_a_malformed_registry_is_reported_by_its_place_and_passed_over(box: Box) -> None:
    file = box.write("~/.npmrc", "registry=https://hunter2:hunter2/\n@acme:registry=https://npm.acme.example/\n")
    assert box.hosts("npm") == ["https://npm.acme.example:443"]
    (problem,) = box.problems("npm")
    assert problem.startswith(f"{file}:1: expected a host")
    assert "hunter2" not in problem


def test_npm_itself_tells_the_default(box: Box, npm: Path) -> None:
    (host,) = toolhosts.expand("npm", box.machine)
    assert host == ("default.example", 443, True, True, "npm's own default")
    assert box.environment("npm") == {}


def test_npm_is_asked_apart_from_the_user_and_the_project(box: Box, npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(box.project)
    box.environ.update(
        NODE_OPTIONS="--require=/project/evil.js", npm_config_token="hunter2", PATH=f"{box.bin}:/usr/bin:/bin"
    )
    box.hosts("npm")
    said, where, *variables = Path(f"{npm}.run").read_text().splitlines()
    assert (said, where) == ("config get registry", "/")
    assert {"NODE_OPTIONS", "npm_config_token"}.isdisjoint(line.partition("=")[0] for line in variables)
    assert "HOME=/dev/null" in variables


def test_npm_is_asked_once(box: Box, npm: Path) -> None:
    box.hosts("npm")
    ran = Path(f"{npm}.run")
    ran.unlink()
    box.environ["ANOTHER"] = "run"  # as another process would have it
    assert box.hosts("npm") == ["https://default.example:443"]
    assert not ran.exists()


@pytest.mark.parametrize("how", ["directory", "link", "relative", "empty"])
def test_no_npm_is_run_from_where_a_sandbox_writes(box: Box, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = box.program("project/bin/npm", "https://evil.example/")
    monkeypatch.chdir(planted.parent)
    (box.path / "linked").symlink_to(planted.parent)
    first = {"directory": str(planted.parent), "link": str(box.path / "linked"), "relative": "bin", "empty": ""}[how]
    box.environ["PATH"] = f"{first}:{box.bin}"
    assert box.hosts("npm") == []
    assert not Path(f"{planted}.run").exists()
    box.program("usr/bin/npm", "https://default.example/")
    box.environ["ANOTHER"] = "run"
    assert box.hosts("npm") == ["https://default.example:443"]


def test_without_npm_and_settings_there_is_no_host_and_a_word_about_it(box: Box) -> None:
    assert box.hosts("npm") == []
    assert box.problems("npm") == ("npm is neither installed nor configured here: no registry is known",)


def test_an_npm_that_fails_is_reported(box: Box) -> None:
    npm = box.program("usr/bin/npm", "https://default.example/", status=1)
    assert box.hosts("npm") == []
    assert box.problems("npm") == (f"{str(npm)!r} did not tell its registry: `npm config get registry` failed",)


def test_what_npm_says_is_not_believed_blindly(box: Box) -> None:
    box.program("usr/bin/npm", "undefined")
    assert box.hosts("npm") == []
    assert box.problems("npm") == ("npm's own default: expected a URL that begins with https:// or http://",)
