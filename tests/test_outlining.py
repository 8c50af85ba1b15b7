"""A persona's outline: drawn with the secrets that there are, and forgotten when that changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from egress.policysources import Sources, locate
from egress.problems import PolicyError
from egress.surroundings import Filesystem
from launcher.mounts import PlanError
from launcher.outline import Outline, recall, remember
from launcher.outlining import draw

TOKEN = "secret: {env: TOKEN, header: x-key}"
OPTIONAL = "secret: {env: TOKEN, header: x-key, optional: true}"


class Home:
    """A user's directories, with one policy file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shipped = path / "shipped"
        self.shipped.mkdir()
        self.file = path / "policy.yaml"
        self.environ = {"HOME": str(path), "XDG_CACHE_HOME": str(path / "cache")}

    def write(self, *rules: str, more: str = "") -> None:
        entries = "".join(f"\n      - {rule}" for rule in rules)
        self.file.write_text(f"version: 1\npersonas:\n  p:\n    allow:{entries or ' []'}\n" + more)

    def sources(self, persona: str | None = "p", **changes: object) -> Sources:
        found = locate([str(self.file)], (), persona, self.environ)
        return found._replace(shipped=str(self.shipped), **changes)

    def draw(self, **environ: str) -> Outline:
        outline, lasts = draw(self.sources(), self.environ | environ)
        assert lasts
        return outline

    def remember(self, **environ: str) -> Outline:
        outline = self.draw(**environ)
        remember(self.sources(), outline, self.environ)
        return outline

    def recall(self, **environ: str) -> Outline | None:
        return recall(self.sources(), self.environ | environ)

    @property
    def cached(self) -> Path:
        (file,) = (self.path / "cache" / "egress" / "outlines").iterdir()
        return file


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# Drawn


def test_a_persona_without_secrets_has_a_plain_outline(home: Home) -> None:
    home.write("a.example", more="    env: [LANG]\n")
    assert home.draw() == Outline(("LANG",), Filesystem())


def test_a_persona_must_be_given(home: Home) -> None:
    home.write("a.example")
    with pytest.raises(PlanError, match="no persona"):
        draw(home.sources(persona=None), home.environ)


def test_the_sandbox_gets_a_placeholder_and_never_the_value(home: Home) -> None:
    home.write(f"{{host: a.example, {TOKEN}}}")
    outline = home.draw(TOKEN="real-value")
    assert outline.variables == (("TOKEN", "egress-placeholder-TOKEN"),)
    assert outline.inspected == ("a.example",)
    assert "real-value" not in repr(outline)


def test_a_required_secret_that_is_missing_stops_the_start_by_name_and_line(home: Home) -> None:
    home.write(
        "{host: a.example, secret: {env: ONE, header: x-key}}",
        f"{{host: b.example, secret: {{file: {home.path}/none, header: x-key}}}}",
    )
    with pytest.raises(PolicyError) as caught:
        home.draw()
    first, second = map(str, caught.value.problems)
    assert first == f"{home.file}:5: the secret for a.example: $ONE is not there"
    assert second == f"{home.file}:6: the secret for b.example: the file {home.path}/none is not there"


def test_an_optional_secret_that_is_missing_has_no_placeholder_and_nothing_is_inspected(home: Home) -> None:
    home.write(f"{{host: a.example, {OPTIONAL}}}")
    outline = home.draw()
    assert (outline.variables, outline.inspected) == ((), ())
    assert outline.secrets == (("$TOKEN", False),)


def test_an_optional_secret_that_is_missing_leaves_the_rest_of_its_rule_inspected(home: Home) -> None:
    home.write(f"{{host: a.example, methods: [GET], {OPTIONAL}}}")
    assert home.draw().inspected == ("a.example",)


def test_a_secret_of_two_rules_is_one(home: Home) -> None:
    home.write(f"{{host: a.example, {TOKEN}}}", f"{{host: b.example, {TOKEN}}}")
    outline = home.draw(TOKEN="real")
    assert outline.variables == (("TOKEN", "egress-placeholder-TOKEN"),)
    assert outline.secrets == (("$TOKEN", True),)


def test_a_secret_from_a_command_is_not_asked_for_before_the_start(home: Home) -> None:
    home.write("{host: a.example, secret: {command: [/nowhere/tool], env: TOKEN, header: x-key}}")
    outline = home.draw()
    assert outline.variables == (("TOKEN", "egress-placeholder-TOKEN"),)
    assert outline.secrets == ()


def test_a_host_in_the_clear_needs_no_certificate(home: Home) -> None:
    home.write("{host: a.example, ports: [80], methods: [GET]}", "{host: b.example, methods: [GET]}")
    assert home.draw().inspected == ("b.example",)


# Remembered


def test_what_is_remembered_is_recalled_whole(home: Home) -> None:
    home.write(f"{{host: a.example, {TOKEN}}}", more="    env: [LANG]\n")
    assert home.recall(TOKEN="real") is None
    assert home.remember(TOKEN="real") == home.recall(TOKEN="another")


def test_a_variable_that_is_gone_makes_the_outline_unknown(home: Home) -> None:
    home.write(f"{{host: a.example, {TOKEN}}}")
    home.remember(TOKEN="real")
    assert home.recall() is None
    assert home.recall(TOKEN=" ") is None


def test_a_variable_that_has_come_makes_the_outline_unknown(home: Home) -> None:
    home.write(f"{{host: a.example, {OPTIONAL}}}")
    home.remember()
    assert home.recall() is not None
    assert home.recall(TOKEN="real") is None


def test_a_file_that_comes_or_goes_makes_the_outline_unknown(home: Home) -> None:
    key = home.path / "key"
    home.write(f"{{host: a.example, secret: {{file: {key}, header: x-key, optional: true}}}}")
    home.remember()
    assert home.recall() is not None
    key.write_text("real")
    assert home.recall() is None
    home.remember()
    assert home.recall() is not None
    key.unlink()
    assert home.recall() is None


def test_an_edit_makes_the_outline_unknown(home: Home) -> None:
    home.write("a.example")
    home.remember()
    home.write("a.example", "b.example")
    assert home.recall() is None


def test_another_persona_has_its_own_outline(home: Home) -> None:
    home.write("a.example", more="  q: {allow: [b.example], env: [LANG]}\n")
    home.remember()
    assert recall(home.sources("q"), home.environ) is None


def test_rules_of_the_command_line_are_always_read_anew(home: Home) -> None:
    home.write("a.example")
    home.remember()
    assert recall(home.sources(allow=("b.example",)), home.environ) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_cache_that_others_may_write_is_not_believed(home: Home, mode: int) -> None:
    home.write("a.example")
    home.remember()
    home.cached.chmod(mode)
    assert home.recall() is None


def test_a_cache_that_is_a_link_is_not_followed(home: Home) -> None:
    home.write("a.example")
    home.remember()
    moved = home.path / "moved"
    home.cached.rename(moved)
    (home.path / "cache" / "egress" / "outlines" / "p.1").symlink_to(moved)
    assert home.recall() is None


def test_a_cache_that_is_a_pipe_holds_nobody_up(home: Home) -> None:
    home.write("a.example")
    home.remember()
    path = home.cached
    path.unlink()
    os.mkfifo(path, 0o600)
    assert home.recall() is None


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\xfb", b"i\x01\x00\x00\x00", b"(\x00\x00\x00\x00"])
def test_a_cache_that_cannot_be_read_is_no_cache(home: Home, data: bytes) -> None:
    home.write("a.example")
    home.remember()
    home.cached.write_bytes(data)
    assert home.recall() is None


def test_a_cache_is_for_its_owner_alone(home: Home) -> None:
    home.write("a.example")
    home.remember()
    assert home.cached.stat().st_mode & 0o777 == 0o600
    assert home.cached.parent.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_written_is_no_error(home: Home) -> None:
    home.write("a.example")
    (home.path / "cache").write_text("in the way")
    home.remember()
    assert home.recall() is None
