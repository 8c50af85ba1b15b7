from __future__ import annotations

from pathlib import Path

import pytest
from toolkit import Box

from egress import toolhosts


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("deb http://deb.example/debian stable main", ["http://deb.example:80"]),
        ("deb-src https://deb.example:8443/debian stable main", ["https://deb.example:8443"]),
        ("  deb [arch=amd64 signed-by=/x.gpg] http://me:hunter2@deb.example/ stable/", ["http://deb.example:80"]),
        ("deb [ trusted=yes ]\thttp://deb.example/ ./ # http://evil.example/", ["http://deb.example:80"]),
        ("# deb http://evil.example/ stable main", []),
        ("debs http://evil.example/ stable main", []),
        ("deb cdrom:[Some Disc]/ stable main", []),
        ("deb file:/srv/packages ./", []),
        ("deb", []),
    ],
)
def test_a_source_in_one_line_is_read(box: Box, line: str, hosts: list[str]) -> None:
    box.write("etc/apt/sources.list", f"{line}\n")
    assert box.hosts("apt") == hosts
    assert not any("hunter2" in problem for problem in box.problems("apt"))


STANZAS = """\
# a comment
Types: deb deb-src
URIs: http://one.example/debian
 https://two.example/debian
# in between
Suites: stable
Components: main

Enabled: no
Types: deb
URIs: http://off.example/

enabled: yes
uris: file:/srv/x https://three.example/
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 http://not-a-source.example/
"""


def test_stanzas_are_read(box: Box) -> None:
    box.write("etc/apt/sources.list.d/some.sources", STANZAS)
    assert box.hosts("apt") == ["http://one.example:80", "https://two.example:443", "https://three.example:443"]
    assert box.problems("apt") == ()


def test_only_files_that_apt_reads_count(box: Box) -> None:
    line = "deb http://{}.example/ stable main\n"
    box.write("etc/apt/sources.list", line.format("main"))
    box.write("etc/apt/sources.list.d/b.list", line.format("b"))
    box.write("etc/apt/sources.list.d/a.list", line.format("a"))
    for name in ("c.list.save", "d.list.disabled", "e e.list", "f.txt"):
        box.write(f"etc/apt/sources.list.d/{name}", line.format("evil"))
    assert box.hosts("apt") == [f"http://{name}.example:80" for name in ("main", "a", "b")]


def test_a_source_that_is_added_is_seen(box: Box) -> None:
    box.write("etc/apt/sources.list.d/a.list", "deb http://a.example/ stable main\n")
    assert box.hosts("apt") == ["http://a.example:80"]
    before = toolhosts.fingerprint()
    box.write("etc/apt/sources.list.d/b.list", "deb http://b.example/ stable main\n")
    assert toolhosts.fingerprint() != before
    assert box.hosts("apt") == ["http://a.example:80", "http://b.example:80"]


def test_a_list_of_mirrors_on_this_machine_is_followed(box: Box) -> None:
    box.write("etc/apt/sources.list", "deb mirror+file:///etc/apt/mirrors.list stable main\n")
    box.write("etc/apt/mirrors.list", "# ours\nhttps://one.example/debian/\tpriority:1\n\nhttp://two.example/\n")
    assert box.hosts("apt") == ["https://one.example:443", "http://two.example:80"]


@pytest.mark.parametrize(
    ("method", "host"), [("mirror+https", "https://m.example:443"), ("mirror", "http://m.example:80")]
)
def test_a_list_of_mirrors_elsewhere_is_reported(box: Box, method: str, host: str) -> None:
    file = box.write("etc/apt/sources.list", f"deb {method}://m.example/list stable main\n")
    assert box.hosts("apt") == [host]
    (problem,) = box.problems("apt")
    assert problem.startswith(f"{file}:1: the mirrors that this list will name are not known")


def test_what_cannot_be_reached_by_us_is_reported(box: Box) -> None:
    file = box.write("etc/apt/sources.list", "deb tor+http://hunter2.example/ stable main\n")
    assert box.hosts("apt") == []
    assert box.problems("apt")[0].startswith(f"{file}:1: expected a URL")
    assert "hunter2" not in "".join(box.problems("apt"))


def test_a_source_may_be_on_ones_own_network_and_needs_no_variable(box: Box) -> None:
    box.write("etc/apt/sources.list", "deb http://10.0.0.7/ stable main\n")
    (host,) = toolhosts.expand("apt", box.machine)
    assert (host.host, host.private) == ("10.0.0.7", True)
    assert box.environment("apt") == {}


def test_without_sources_there_is_a_word_about_it(box: Box) -> None:
    assert box.hosts("apt") == []
    assert box.problems("apt") == ("apt has no sources in /etc/apt that are on a network",)
