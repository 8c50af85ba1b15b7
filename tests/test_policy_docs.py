"""docs/policy.md promises nothing that the code does not keep."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from policykit import problems

from egress import lint, overrides, policyfile, policyrequests, policyrules, policysources, urlpath
from egress.model import Host
from egress.policyfile import parse_document
from egress.policylayers import bind
from egress.problems import PolicyError
from egress.refusals import Reason

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "policy.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))


class At(NamedTuple):
    host: Host
    port: int
    tls: bool
    private: bool


def shipped() -> list[policyfile.Document]:
    paths = sorted(Path(policysources.locate(environ={}).shipped).glob("*.yaml"))
    return [parse_document(path.read_text(), path.name) for path in paths]


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_example_loads_over_what_ships_and_every_persona_in_it_can_be_made(block: str) -> None:
    example = parse_document(block, "example.yaml")
    book = bind([shipped(), [example]], lambda tool: [At(Host(f"{tool}.corp.example"), 443, True, False)])
    for name in example.personas:
        assert book.policy().personas[name].allow
    assert lint.lint(book, ["example.yaml"]) == []


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("The file", policyfile._TOP),
        ("Personas", policyfile._PERSONA),
        ("Rules", {key: reader for key, reader in policyrules._RULE.items() if key not in policyrequests.REQUESTS}),
        ("Requests", policyrequests.REQUESTS),
        ("Secrets", policyrequests._SECRET),
    ],
)
def test_every_key_has_its_row_and_every_row_its_key(section: str, keys: dict[str, object]) -> None:
    tables = re.findall(r"^\| key \|.*?\n\|[-|]+\n((?:\|.*\n)+)", SECTIONS[section], re.MULTILINE)
    assert len(tables) == 1
    assert re.findall(r"^\| `(\w+)` \|", tables[0], re.MULTILINE) == list(keys)


def test_every_word_in_the_table_of_rules_is_one() -> None:
    table = SECTIONS["Rules"].split("A mapping says more")[0]
    words = [word for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for word in re.findall("`(.*?)`", row)]
    assert len(words) >= 6
    entries = "".join(f"    - {word}\n" for word in words)
    assert len(parse_document(f"version: 1\ngroups:\n  g:\n{entries}", "f").groups["g"].entries) == len(words)


def test_what_is_said_to_be_an_error_is_one() -> None:
    for entry in (
        "*",
        "ex*mple.com",
        "*.com",
        "*.co.uk",
        "*.github.io",
        "*.workers.dev",
        "10.0.0.0/8",
        "https://a.test/",
    ):
        assert problems(f"version: 1\ngroups: {{g: ['{entry}']}}")


def test_the_errors_that_are_shown_are_those_that_are_given() -> None:
    lines = re.findall(r"^    (reviewer\.yaml:.*)$", SECTIONS["Errors"], re.MULTILINE)
    assert len(lines) == 4
    text = """\
version: 1
groups: {}
hosts: {}
personas:
  reviewer:
    alow: []
    allow:
      - "*.github.io"
      - https://example.com/
      - a.test
      - host: b.test
        tls: yes
"""
    with pytest.raises(PolicyError) as caught:
        parse_document(text, "reviewer.yaml")
    assert str(caught.value).splitlines() == lines


@pytest.mark.parametrize("section", ["Which rule speaks", "Which requests pass"])
def test_every_reason_that_is_named_exists(section: str) -> None:
    named = set(re.findall(r"`([a-z]+_[a-z_]+|listed|denied)`", SECTIONS[section]))
    assert len(named) >= 5
    assert named <= set(Reason)


def test_every_path_that_is_said_to_be_ambiguous_is() -> None:
    (row,) = re.findall(r"^\| two readings \|(.*)\|$", SECTIONS["Which requests pass"], re.MULTILINE)
    paths = re.findall("`(/.*?)`", row)
    assert len(paths) >= 10
    for path in paths:
        with pytest.raises(urlpath.Ambiguous):
            urlpath.canonical(path)


def test_the_globs_that_are_shown_mean_what_is_said() -> None:
    rows = re.findall(r"^\| (`/.*?) \| (.*?) \| (.*?) \|$", SECTIONS["Requests"], re.MULTILINE)
    assert len(rows) >= 4
    for glob, yes, no in rows:
        (pattern,) = re.findall("`(.*?)`", glob)
        assert all(urlpath.matches(pattern, path) for path in re.findall("`(.*?)`", yes))
        assert not any(urlpath.matches(pattern, path) for path in re.findall("`(.*?)`", no))


def test_the_headers_and_parameters_that_say_a_method_path_or_host_again_are_all_named() -> None:
    text = SECTIONS["Which requests pass"].lower()
    headers = overrides.METHOD_HEADERS | overrides.PATH_HEADERS | overrides.HOST_HEADERS | {overrides.FORWARDED}
    for name in headers | overrides.METHOD_PARAMETERS:
        assert f"`{name}`" in text


def test_the_limits_that_are_named_are_those_in_force() -> None:
    assert policysources.MAX_BYTES == 64 * 1024 * 1024
    assert "at most 64 MiB" in SECTIONS["The file"]
