from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from toolkit import PIP_SAYS, Box

from egress import toolhosts
from egress.toolhosts import pipsource
from egress.toolhosts.machine import Machine

PUBLIC = ["https://index.example:443", "https://files.example:443"]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    made = Box(tmp_path)
    made.install_pip()
    monkeypatch.setattr(pipsource, "LIBRARIES", (str(tmp_path / "lib"),))
    return made


def conf(host: str, section: str = "global") -> str:
    return f"[{section}]\nindex-url = https://{host}.example/simple\n"


def test_pip_itself_tells_its_index_and_the_host_of_its_files(box: Box) -> None:
    assert box.hosts("pip") == PUBLIC
    assert all(host.private for host in toolhosts.expand("pip", box.machine)), "a mirror may stand in its place"
    assert box.environment("pip") == {}


def test_a_pip_packed_for_new_environments_tells_it_too(box: Box) -> None:
    (box.path / "lib/site-packages/pip/_internal/models/index.py").unlink()
    bundle = box.path / "lib/ensurepip/_bundled"
    bundle.mkdir(parents=True)
    (bundle / "pip-1-broken.whl").write_bytes(b"not a wheel")
    with ZipFile(bundle / "pip-2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/_internal/models/index.py", PIP_SAYS)
    assert box.hosts("pip") == PUBLIC


def test_the_pip_of_this_machine_says_what_is_looked_for() -> None:
    public = pipsource.public_index(Machine({}))
    assert public is not None
    assert public.simple.tls
    assert public.simple.url.endswith("/simple")
    assert public.files.host != public.simple.host


def test_no_pip_is_believed_that_a_sandbox_could_have_written(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipsource, "LIBRARIES", (str(box.project / "lib"),))
    box.write("project/lib/site-packages/pip/_internal/models/index.py", PIP_SAYS)
    assert box.hosts("pip") == []
    assert "no pip was found" in box.problems("pip")[0]


def test_the_stronger_setting_counts(box: Box) -> None:
    layers = [
        lambda: box.write("etc/xdg/pip/pip.conf", conf("xdg")),
        lambda: box.write("etc/pip.conf", conf("system")),
        lambda: box.write("~/.pip/pip.conf", conf("old")),
        lambda: box.write("~/.config/pip/pip.conf", conf("user")),
        lambda: box.environ.update(PIP_CONFIG_FILE=str(box.write("elsewhere/pip.conf", conf("named")))),
        lambda: box.environ.update(PIP_INDEX_URL="https://variable.example/simple"),
    ]
    for name, put in zip(("xdg", "system", "old", "user", "named", "variable"), layers, strict=True):
        put()
        assert box.hosts("pip") == [f"https://{name}.example:443"]
        assert box.environment("pip") == {"PIP_INDEX_URL": f"https://{name}.example/simple"}


def test_the_users_directory_is_where_a_variable_says(box: Box) -> None:
    box.write("moved/pip/pip.conf", conf("moved"))
    box.environ["XDG_CONFIG_HOME"] = str(box.path / "moved")
    assert box.hosts("pip") == ["https://moved.example:443"]
    box.environ["XDG_CONFIG_HOME"] = "moved"
    assert box.hosts("pip") == PUBLIC


def test_what_a_named_file_replaces_is_not_read(box: Box) -> None:
    box.write("~/.config/pip/pip.conf", "[global]\nextra-index-url = https://extra.example/\n")
    box.environ["PIP_CONFIG_FILE"] = str(box.write("elsewhere/pip.conf", conf("named")))
    assert box.hosts("pip") == ["https://named.example:443"]
    box.write("etc/pip.conf", conf("system"))
    box.environ["PIP_CONFIG_FILE"] = "/dev/null"
    assert box.hosts("pip") == PUBLIC


def test_installing_comes_before_what_holds_for_all_commands(box: Box) -> None:
    box.write("etc/pip.conf", conf("installing", "install") + conf("all") + conf("list", "list"))
    assert box.hosts("pip") == ["https://installing.example:443"]


def test_further_indexes_and_pages_of_links_count(box: Box) -> None:
    box.write(
        "~/.config/pip/pip.conf",
        "[global]\nIndex_URL = https://me:hunter2@mirror.example/simple\nextra-index-url =\n"
        "    https://one.example/simple\n    http://two.example:8080/simple\nfind-links = /opt/wheels\n"
        "    file:///opt/more\n    https://links.example/page.html\n",
    )
    assert box.hosts("pip") == [
        "https://mirror.example:443",
        "https://one.example:443",
        "http://two.example:8080",
        "https://links.example:443",
    ]
    assert box.environment("pip") == {
        "PIP_INDEX_URL": "https://mirror.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://one.example/simple http://two.example:8080/simple",
        "PIP_FIND_LINKS": "https://links.example/page.html",
    }
    assert box.problems("pip") == ()


def test_a_further_index_stands_beside_the_public_one(box: Box) -> None:
    box.environ["PIP_EXTRA_INDEX_URL"] = "https://extra.example/simple"
    assert box.hosts("pip") == ["https://extra.example:443", *PUBLIC]


def test_who_names_the_public_index_also_gets_its_files(box: Box) -> None:
    box.environ["PIP_INDEX_URL"] = "https://index.example/simple"
    assert box.hosts("pip") == PUBLIC


def test_without_an_index_only_links_are_left(box: Box) -> None:
    box.environ.update(
        PIP_NO_INDEX="1", PIP_INDEX_URL="https://index.example/", PIP_FIND_LINKS="https://links.example/"
    )
    assert box.hosts("pip") == ["https://links.example:443"]
    assert box.environment("pip") == {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "https://links.example/"}


def test_the_file_of_a_projects_environment_is_not_read(box: Box) -> None:
    box.write("project/.venv/pip.conf", conf("evil"))
    box.environ["VIRTUAL_ENV"] = str(box.project / ".venv")
    assert box.hosts("pip") == PUBLIC


@pytest.mark.parametrize("text", ["hunter2", "[global\nindex-url=hunter2", "[global]\n  hunter2\nhunter2"])
def test_a_broken_file_is_reported_and_not_shown(box: Box, text: str) -> None:
    file = box.write("etc/pip.conf", text)
    assert box.hosts("pip") == PUBLIC
    assert box.problems("pip") == (f"{str(file)!r} is not a configuration that pip would read",)


def test_a_malformed_index_is_reported_by_its_place(box: Box) -> None:
    file = box.write("etc/pip.conf", "[global]\nindex-url = https://hunter2:hunter2/\n")
    assert box.hosts("pip") == []
    (problem,) = box.problems("pip")
    assert problem.startswith(f"index-url in {file}: expected a host")
    assert "hunter2" not in problem


UV = {"PIP_INDEX_URL": "https://pip.example/simple"}  # so that the public index is uv's affair


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
@pytest.mark.parametrize("value", ["https://me:hunter2@uv.example/simple", "named=https://uv.example/simple"])
def test_the_index_of_uv_is_its_own(box: Box, name: str, value: str) -> None:
    box.program("usr/bin/uv", "not to be run")
    box.environ.update({**UV, name: value})
    assert box.hosts("pip") == ["https://pip.example:443", "https://uv.example:443"]
    inside = box.environment("pip")["UV_DEFAULT_INDEX"]
    assert inside == ("named=" if "named" in value else "") + "https://uv.example/simple"


def test_a_uv_without_settings_uses_the_public_index(box: Box) -> None:
    box.environ.update(UV)
    assert box.hosts("pip") == ["https://pip.example:443"]
    box.program("usr/bin/uv", "not to be run")
    box.environ["ANOTHER"] = "run"
    assert box.hosts("pip") == ["https://pip.example:443", *PUBLIC]
    box.environ["UV_NO_INDEX"] = "true"
    assert box.hosts("pip") == ["https://pip.example:443"]


def test_further_indexes_of_uv_count(box: Box) -> None:
    box.environ.update(UV, UV_INDEX="a=https://a.example/ https://b.example/", UV_EXTRA_INDEX_URL="https://c.example/")
    box.environ["UV_FIND_LINKS"] = "/opt/wheels,https://d.example/,https://e.example/"
    assert [host[8] for host in box.hosts("pip")] == ["p", "a", "b", "c", "d", "e"]
    assert box.environment("pip") == {
        **UV,
        "UV_INDEX": "a=https://a.example/ https://b.example/ https://c.example/",
        "UV_FIND_LINKS": "https://d.example/,https://e.example/",
    }


UV_TOML = """
extra-index-url = ["https://extra.example/"]
find-links = ["https://links.example/", "./wheels"]
[[index]]
name = "first"
url = "https://me:hunter2@first.example/simple"
[[index]]
url = "https://default.example/simple"
default = true
[pip]
extra-index-url = ["https://compat.example/"]
"""


def test_the_files_of_uv_count_and_lists_are_joined(box: Box) -> None:
    box.environ.update(UV)
    box.write("~/.config/uv/uv.toml", UV_TOML)
    box.write("etc/uv/uv.toml", 'index-url = "https://weaker.example/"\nextra-index-url = ["https://system.example/"]')
    assert box.environment("pip") == {
        **UV,
        "UV_DEFAULT_INDEX": "https://default.example/simple",
        "UV_INDEX": "first=https://first.example/simple https://extra.example/ https://compat.example/"
        " https://system.example/",
        "UV_FIND_LINKS": "https://links.example/",
    }
    assert len(box.hosts("pip")) == 7
    assert box.problems("pip") == ()


def test_of_the_systems_files_uv_reads_one(box: Box) -> None:
    box.environ.update(UV)
    box.write("etc/uv/uv.toml", 'index-url = "https://etc.example/"')
    assert box.hosts("pip")[1:] == ["https://etc.example:443"]
    box.write("etc/xdg/uv/uv.toml", 'index-url = "https://xdg.example/"')
    assert box.hosts("pip")[1:] == ["https://xdg.example:443"]


def test_the_file_of_uv_is_where_a_variable_says_or_nowhere(box: Box) -> None:
    box.environ.update(UV)
    box.write("~/.config/uv/uv.toml", 'index-url = "https://user.example/"')
    box.environ["UV_CONFIG_FILE"] = str(box.write("elsewhere/uv.toml", 'index-url = "https://named.example/"'))
    assert box.hosts("pip")[1:] == ["https://named.example:443"]
    del box.environ["UV_CONFIG_FILE"]
    box.environ["UV_NO_CONFIG"] = "1"
    assert box.hosts("pip")[1:] == []


@pytest.mark.parametrize(
    "text", ["index-url = hunter2", "index = 3\n[pip]\nindex-url = ['x', 4]", "[[index]]\nname = 1"]
)
def test_what_is_wrong_in_a_file_of_uv_does_no_harm(box: Box, text: str) -> None:
    box.environ.update(UV)
    file = box.write("~/.config/uv/uv.toml", text)
    assert box.hosts("pip") == ["https://pip.example:443"]
    assert box.problems("pip") == ((f"{str(file)!r} is not TOML",) if "hunter2" in text else ())
