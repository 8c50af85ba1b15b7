from __future__ import annotations

import gc
import os
import socket
from pathlib import Path

import pytest

from egress import policysources
from egress.model import Host, Target
from egress.policysources import MAX_BYTES, Sources, Undisturbed, fingerprint, is_shipped, load, locate, read
from egress.problems import PolicyError, UnknownPersona

PERSONA = "version: 1\npersonas: {%s: {allow: [%s]}}\n"


def persona(name: str, host: str) -> str:
    return PERSONA % (name, host)


class Home:
    """A made-up user, with a shipped directory of their own and a working directory to be misled by."""

    def __init__(self, path: Path) -> None:
        self.shipped = path / "shipped"
        self.user = path / "home" / ".config" / "egress"
        self.work = path / "work"
        for directory in (self.shipped, self.user, self.work):
            directory.mkdir(parents=True)
        self.write(self.shipped / "base.yaml", persona("p", "shipped.test"))
        self.environ = {"HOME": str(path / "home")}

    @staticmethod
    def write(path: Path, text: str) -> Path:
        path.write_text(text)
        return path

    def sources(self, *files: str, allow: tuple[str, ...] = (), persona: str | None = None) -> Sources:
        return locate(files, allow, persona, self.environ)._replace(shipped=self.shipped)

    def hosts(self, *files: str, name: str = "p") -> list[str]:
        return [str(rule.pattern) for rule in load(self.sources(*files)).personas[name].allow]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path)
    monkeypatch.chdir(made.work)
    return made


def problems(sources: Sources) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        load(sources)
    return [str(problem) for problem in caught.value.problems]


def test_the_shipped_files_are_found_without_anything_else() -> None:
    policy = load(locate(environ={}))
    assert list(policy.personas) == ["navigator", "philosopher", "auditor", "reviewer", "implementer", "craftsman"]


def test_the_users_files_lie_over_the_shipped_ones(home: Home) -> None:
    assert home.hosts() == ["shipped.test"]
    home.write(home.user / "mine.yaml", persona("p", "user.test"))
    assert home.hosts() == ["user.test"]


def test_a_policy_option_lies_over_all_and_the_last_over_the_first(home: Home) -> None:
    home.write(home.user / "mine.yaml", persona("p", "user.test"))
    one = home.write(home.work / "one.yaml", persona("p", "one.test"))
    two = home.write(home.work / "two.yaml", "version: 1\npersonas: {p: {extends: p, allow: [two.test]}}")
    assert home.hosts(str(one)) == ["one.test"]
    assert home.hosts(str(one), str(two)) == ["two.test", "one.test"]
    assert home.hosts(str(two), str(one)) == ["one.test"]


def test_a_rule_is_shown_with_the_name_its_file_was_given_by(home: Home) -> None:
    home.write(home.work / "one.yaml", "version: 1\n\npersonas: {q: {allow: [one.test]}}")
    home.write(home.user / "mine.yaml", persona("r", "user.test"))
    policy = load(home.sources("one.yaml"))
    shown = {name: str(policy.personas[name].allow[0]) for name in policy.personas}
    assert shown == {
        "p": "policies/base.yaml:2 shipped.test",
        "q": "one.yaml:3 one.test",
        "r": f"{home.user}/mine.yaml:2 user.test",
    }


def test_a_relative_policy_option_stays_the_same_file_when_the_directory_changes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(home.work / "one.yaml", persona("p", "one.test"))
    sources = home.sources("one.yaml")
    monkeypatch.chdir("/")
    assert str(load(sources).personas["p"].allow[0]) == "one.yaml:2 one.test"


def test_nothing_is_read_from_the_working_directory(home: Home) -> None:
    for place in ("egress", ".config/egress", ".egress", "policies", "."):
        (home.work / place).mkdir(parents=True, exist_ok=True)
        for name in ("egress.yaml", "policy.yaml", "personas.yaml", ".egress.yaml"):
            home.write(home.work / place / name, persona("p", "evil.test"))
    assert home.hosts() == ["shipped.test"]
    for environ in ({}, {"HOME": ""}, {"HOME": "."}, {"XDG_CONFIG_HOME": "."}, {"XDG_CONFIG_HOME": "", "HOME": "work"}):
        assert locate(environ=environ).user is None, environ


def test_the_users_directory_is_where_the_xdg_specification_has_it() -> None:
    assert locate(environ={"HOME": "/h"}).user == "/h/.config/egress"
    assert locate(environ={"HOME": "/h", "XDG_CONFIG_HOME": "/c"}).user == "/c/egress"
    assert locate(environ={"HOME": "/h", "XDG_CONFIG_HOME": ""}).user == "/h/.config/egress"
    assert locate(environ={"HOME": "/h", "XDG_CONFIG_HOME": "relative"}).user == "/h/.config/egress"


def test_what_an_editor_leaves_beside_a_file_is_not_read(home: Home) -> None:
    for name in (".mine.yaml", ".#mine.yaml", "mine.yaml~", "mine.yaml.bak", "mine.yaml.swp", "README.md", "yaml"):
        home.write(home.user / name, "nonsense: [")
    assert home.hosts() == ["shipped.test"]


def test_a_file_that_would_silently_not_be_read_is_an_error(home: Home) -> None:
    home.write(home.user / "mine.yml", persona("p", "user.test"))
    (problem,) = problems(home.sources())
    assert problem == f"{home.user}/mine.yml: is not read under this name; rename it to end in .yaml"


def test_a_missing_user_directory_is_fine_and_a_missing_shipped_one_is_not(home: Home) -> None:
    home.user.rmdir()
    assert home.hosts() == ["shipped.test"]
    (problem,) = problems(home.sources()._replace(shipped=str(home.work / "none")))
    assert problem == f"{home.work}/none: cannot be read: No such file or directory"


def test_a_user_directory_that_is_no_directory_is_an_error(home: Home) -> None:
    home.user.rmdir()
    home.write(home.user, "version: 1")
    (problem,) = problems(home.sources())
    assert problem == f"{home.user}: cannot be read: Not a directory"


def test_a_named_file_that_is_missing_is_an_error(home: Home) -> None:
    assert problems(home.sources("none.yaml")) == ["none.yaml: cannot be read: No such file or directory"]


def test_only_a_regular_file_is_read(home: Home) -> None:
    os.mkfifo(home.work / "fifo")
    (home.work / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        found = problems(home.sources("fifo", "directory", "/dev/null", "socket"))
    assert found[:3] == [
        "fifo: cannot be read: is not a regular file",
        "directory: cannot be read: is not a regular file",
        "/dev/null: cannot be read: is not a regular file",
    ]
    assert found[3].startswith("socket: cannot be read: ")


def test_a_link_to_a_regular_file_is_read(home: Home) -> None:
    (home.user / "mine.yaml").symlink_to(home.write(home.work / "real", persona("p", "user.test")))
    assert home.hosts() == ["user.test"]


def test_a_dangling_link_is_an_error(home: Home) -> None:
    (home.user / "mine.yaml").symlink_to(home.work / "none")
    (problem,) = problems(home.sources())
    assert problem.startswith(f"{home.user}/mine.yaml: cannot be read: No such file")


def test_an_endless_file_is_not_read_to_its_end(home: Home) -> None:
    with (home.work / "big.yaml").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert problems(home.sources("big.yaml")) == [f"big.yaml: is larger than {MAX_BYTES} bytes"]


def test_a_file_that_is_not_utf_8_is_told_with_its_line(home: Home) -> None:
    (home.work / "latin.yaml").write_bytes(b"version: 1\n# caf\xe9\n")
    (home.work / "utf16.yaml").write_bytes("version: 1\n".encode("utf-16"))
    assert problems(home.sources("latin.yaml", "utf16.yaml")) == [
        "latin.yaml:2: not UTF-8: byte 0xe9",
        "utf16.yaml:1: not UTF-8: byte 0xff",
    ]


def test_a_byte_order_mark_and_crlf_are_only_layout(home: Home) -> None:
    (home.work / "windows.yaml").write_bytes(b"\xef\xbb\xbfversion: 1\r\npersonas:\r\n  p: {allow: [win.test]}\r\n")
    assert [str(rule) for rule in load(home.sources("windows.yaml")).personas["p"].allow] == ["windows.yaml:3 win.test"]


def test_problems_of_all_files_are_told_together(home: Home) -> None:
    home.write(home.user / "a.yaml", "version: 9")
    home.write(home.user / "b.yaml", "version: 1\ngroups: {g: ['*']}")
    found = problems(home.sources("none.yaml"))
    assert [problem.split(": ")[0] for problem in found] == [
        f"{home.user}/a.yaml:1",
        f"{home.user}/b.yaml:2",
        "none.yaml",
    ]


def test_two_files_of_one_directory_may_not_define_the_same(home: Home) -> None:
    home.write(home.user / "a.yaml", persona("p", "a.test"))
    home.write(home.user / "b.yaml", persona("p", "b.test"))
    assert problems(home.sources()) == [f"{home.user}/b.yaml:2: persona 'p' is already defined in {home.user}/a.yaml:2"]


def test_allow_and_persona_come_with_the_sources(home: Home) -> None:
    policy = load(home.sources(allow=("extra.test",), persona="p"))
    assert policy.personas["p"].decide(Target(Host("extra.test"), 443)).allowed
    with pytest.raises(UnknownPersona, match="unknown persona 'q'"):
        load(home.sources(persona="q"))


def test_a_bad_edit_raises_and_the_next_good_one_is_read(home: Home) -> None:
    file = home.write(home.work / "one.yaml", persona("p", "one.test"))
    sources = home.sources("one.yaml")
    assert load(sources).personas["p"].decide(Target(Host("one.test"), 443)).allowed
    for bad in ("", "version: 1\npersonas: {p: {allow: ['*']}}", "personas: {}", "\0"):
        file.write_text(bad)
        with pytest.raises(ValueError, match=r"one\.yaml:"):
            load(sources)
    file.write_text(persona("p", "two.test"))
    assert not load(sources).personas["p"].decide(Target(Host("one.test"), 443)).allowed


def test_the_fingerprint_changes_with_every_file_and_the_set_of_files(home: Home) -> None:
    file = home.write(home.work / "one.yaml", persona("p", "one.test"))
    sources = home.sources("one.yaml")
    seen = [fingerprint(sources)]

    def changed() -> bool:
        seen.append(fingerprint(sources))
        return seen[-1] not in seen[:-1]

    assert not changed()
    file.write_text(persona("p", "three.test"))
    assert changed()
    home.write(home.user / "mine.yaml", persona("p", "user.test"))
    assert changed()
    (home.user / "mine.yaml").rename(home.user / "other.yaml")
    assert changed()
    home.write(home.shipped / "more.yaml", "version: 1")
    assert changed()
    replacement = home.write(home.work / "new", file.read_text())
    os.utime(replacement, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    replacement.replace(file)
    assert changed(), "the same size and time in another file"
    file.unlink()
    assert changed()
    (home.user / "late.yml").touch()
    assert changed()


def test_the_fingerprint_ignores_what_is_not_policy(home: Home) -> None:
    sources = home.sources()
    before = fingerprint(sources)
    home.write(home.user / ".mine.yaml.swp", "x")
    home.write(home.user / "notes.txt", "x")
    assert fingerprint(sources) == before


def test_the_fingerprint_never_raises(home: Home) -> None:
    gone = home.sources("none.yaml")._replace(shipped=home.work / "none", user=home.work / "none")
    assert fingerprint(gone) == fingerprint(gone)
    hash(fingerprint(gone))


def test_a_line_that_came_with_the_program_is_known(home: Home) -> None:
    (home.work / "policies").mkdir()
    home.write(home.work / "policies" / "x.yaml", persona("q", "one.test"))
    sources = home.sources("policies/x.yaml")
    book = read(sources)
    assert is_shipped(book.personas["p"].source, sources)
    assert not is_shipped(book.personas["q"].source, sources)


def test_an_installed_package_has_its_policies_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "egress"
    (package / "policies").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(policysources.egress, "__file__", str(package / "__init__.py"))
    assert locate().shipped == str(package / "policies")


def test_many_rules_cost_in_proportion(home: Home) -> None:
    """Counted, not timed: the number of calls per rule does not grow with the number of rules."""

    def calls(count: int) -> int:
        entries = "".join(f"    - h{number}.example{number % 9}.test\n" for number in range(count))
        text = f"version: 1\ngroups:\n  g:\n{entries}personas:\n  p: {{allow: ['@g']}}\n  q: {{extends: p}}\n"
        sources = home.sources(str(home.write(home.work / "many.yaml", text)))
        return count_calls(lambda: load(sources).personas["q"].decide(Target(Host("h7.example7.test"), 443)))

    few, many = calls(500), calls(4000)
    assert many < few * 9


def count_calls(work: object) -> int:
    import sys

    seen = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()  # type: ignore[operator]
    finally:
        sys.setprofile(before)
    return seen


@pytest.mark.parametrize("collecting", [True, False])
def test_who_makes_a_policy_leaves_the_collector_as_it_was(tmp_path: Path, collecting: bool) -> None:
    (tmp_path / "bad.yaml").write_text("version: 2\n")
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        load(locate(environ={}))
        assert gc.isenabled() == collecting
        with pytest.raises(PolicyError):
            load(locate([str(tmp_path / "bad.yaml")], environ={}))
        assert gc.isenabled() == collecting
        with Undisturbed():
            assert not gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
