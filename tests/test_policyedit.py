"""One more rule in a policy file: in its text, and on disk."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policykit import document

from egress import policysources
from egress.model import Host, Target
from egress.policyedit import CannotEdit, add_rule
from egress.policysources import Sources
from egress.policywriter import Keeper, NotKept, write_rule

NEW = Target(Host("new.example"), 443)
NOTE = "why"


def added(text: str, persona: str = "p", target: Target = NEW) -> str:
    return add_rule(dedent(text), "f.yaml", persona, target, NOTE)


EDITS = {
    "a list in lines": (
        """\
        version: 1
        personas:
          p:
            allow:
              - a.test   # because

            # the next one
          q: {}
        """,
        """\
        version: 1
        personas:
          p:
            allow:
              - a.test   # because
              - new.example:443  # why

            # the next one
          q: {}
        """,
    ),
    "lines that are not indented": (
        "version: 1\npersonas:\n  p:\n    allow:\n    - a.test\n    env: [A]\n",
        "version: 1\npersonas:\n  p:\n    allow:\n    - a.test\n    - new.example:443  # why\n    env: [A]\n",
    ),
    "a comment that belongs to the last line": (
        "version: 1\npersonas:\n  p:\n    allow:\n      - a.test\n      # and its story\n  # of q\n  q: {}\n",
        (
            "version: 1\npersonas:\n  p:\n    allow:\n      - a.test\n      # and its story\n"
            "      - new.example:443  # why\n  # of q\n  q: {}\n"
        ),
    ),
    "a mapping at the end of the list": (
        "version: 1\npersonas:\n  p:\n    allow:\n      - host: a.test\n        ports: [1]  # 2\n    deny: [b.test]\n",
        (
            "version: 1\npersonas:\n  p:\n    allow:\n      - host: a.test\n        ports: [1]  # 2\n"
            "      - new.example:443  # why\n    deny: [b.test]\n"
        ),
    ),
    "a list in brackets": (
        'version: 1\npersonas:\n  p:\n    allow: ["@g", a.test]  # two\ngroups: {g: [b.test]}\n',
        (
            'version: 1\npersonas:\n  p:\n    allow: ["@g", a.test, new.example:443]  # two  # new.example:443: why\n'
            "groups: {g: [b.test]}\n"
        ),
    ),
    "brackets over lines": (
        "version: 1\npersonas:\n  p:\n    allow: [\n      a.test,  # 1\n  ]\n",
        "version: 1\npersonas:\n  p:\n    allow: [\n      a.test, new.example:443,  # 1  # new.example:443: why\n  ]\n",
    ),
    "empty brackets": (
        "version: 1\npersonas:\n  p:\n    allow: []\n",
        "version: 1\npersonas:\n  p:\n    allow: [new.example:443]  # new.example:443: why\n",
    ),
    "all in brackets": (
        "{version: 1, personas: {p: {env: [A]}}}",
        "{version: 1, personas: {p: {env: [A], allow: [new.example:443]}}}  # new.example:443: why\n",
    ),
    "an empty key": (
        "version: 1\npersonas:\n  p:\n    allow:   # nothing yet\n    env: [A]\n",
        "version: 1\npersonas:\n  p:\n    allow:   # nothing yet\n      - new.example:443  # why\n    env: [A]\n",
    ),
    "a null": (
        "version: 1\npersonas:\n  p:\n    allow: ~\n",
        "version: 1\npersonas:\n  p:\n    allow: [new.example:443]  # new.example:443: why\n",
    ),
    "an empty persona": (
        "version: 1\npersonas:\n  p:\n  q: {}\n",
        "version: 1\npersonas:\n  p:\n    allow:\n      - new.example:443  # why\n  q: {}\n",
    ),
    "no allow": (
        "version: 1\npersonas:\n  p:\n    description: >\n      long\n      text\n\n  q: {}\n",
        (
            "version: 1\npersonas:\n  p:\n    description: >\n      long\n      text\n    allow:\n"
            "      - new.example:443  # why\n\n  q: {}\n"
        ),
    ),
    "no such persona": (
        "version: 1\npersonas:\n    q:\n        allow: [a.test]  # one\n\n# the end\n",
        (
            "version: 1\npersonas:\n    q:\n        allow: [a.test]  # one\n    p:\n      extends: p\n      allow:\n"
            "        - new.example:443  # why\n\n# the end\n"
        ),
    ),
    "no personas": (
        "version: 1\n# nothing\ngroups:\n  g: [a.test]",
        (
            "version: 1\n# nothing\ngroups:\n  g: [a.test]\npersonas:\n  p:\n    extends: p\n    allow:\n"
            "      - new.example:443  # why\n"
        ),
    ),
    "line ends of another system": (
        "version: 1\r\npersonas:\r\n  p:\r\n    allow:\r\n      - a.test # x\r\n",
        "version: 1\r\npersonas:\r\n  p:\r\n    allow:\r\n      - a.test # x\r\n      - new.example:443  # why\r\n",
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_the_rule_is_put_in_and_all_else_stays(case: str) -> None:
    before, after = EDITS[case]
    assert added(before) == dedent(after)


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\npersonas:\n  p: {allow: &a [a.test]}\n  q: {allow: *a}\n",
        "version: 1\npersonas:\n  q: {allow: &a [a.test]}\n  p: {allow: *a}\n",
        "version: 1\npersonas:\n  q: &q {allow: [a.test]}\n  p: *q\n",
    ],
)
def test_what_would_change_another_persona_is_not_written(text: str) -> None:
    with pytest.raises(CannotEdit):
        added(text)


@pytest.mark.parametrize(
    ("host", "port", "written"),
    [
        ("new.example", 22, "new.example:22"),
        ("null", 443, '"null:443"'),
        ("1.1.1.1", 443, '"1.1.1.1:443"'),
        ("2606:4700::1", 443, '"[2606:4700::1]:443"'),
    ],
)
def test_every_target_can_be_written(host: str, port: int, written: str) -> None:
    for text in (
        "version: 1\npersonas: {p: {allow: [a.test]}}",
        "version: 1\npersonas:\n  p:\n    allow:\n      - a.test",
    ):
        after = added(text, target=Target(Host(host), port))
        assert written in after
        assert document(after).personas["p"].allow[1].pattern.host == host


NAMES = st.sampled_from(["p", "q", "null", "allow", "personas", "1.5", "a-b_c.d"])
ENTRIES = st.sampled_from(["a.test", '"*.b.test"', "{host: c.test, ports: [1]}", '"@g"', "d.test:22"])
BLANKS = st.sampled_from(["", "  # words", "\n", "\n      # a line\n"])


@st.composite
def policies(draw: st.DrawFn) -> str:
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    lines = ["version: 1", "groups: {g: [g.test]}"]
    lines += ["personas:"] if names or draw(st.booleans()) else []
    for name in names:
        entries = draw(st.lists(ENTRIES, max_size=3))
        flow = draw(st.booleans()) or not entries
        listed = f" [{', '.join(entries)}]" if flow else "".join(f"\n      - {each}{draw(BLANKS)}" for each in entries)
        allow = f"    allow:{listed}"
        lines += draw(st.permutations([f"  {name}:"]))
        lines += draw(st.permutations([allow, "    env: [A]"]))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n# end\n"]))


@given(policies(), NAMES)
def test_whatever_the_file_looks_like_it_says_the_same_and_one_rule_more(text: str, persona: str) -> None:
    before, after = document(text), added(text, persona)
    rest = iter(after)
    assert all(character in rest for character in text)  # every character of it, in its order
    known = before.personas.get(persona)
    profile = document(after).personas[persona]
    assert len(profile.allow) == len(known.allow if known else ()) + 1
    assert profile.allow[-1].pattern.host == NEW.host
    assert (profile.extends is not None) == (known is None)


# On disk

SHIPPED = "version: 1\npersonas: {reviewer: {allow: [shipped.test], deny: [denied.test]}}\n"


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "personas.yaml").write_text(SHIPPED)
    return Sources(str(tmp_path / "shipped"), str(tmp_path / "config" / "egress"))


def own(sources: Sources, name: str, text: str, mode: int = 0o640) -> Path:
    path = Path(sources.user or "") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def write(sources: Sources, persona: str = "reviewer", target: Target = NEW) -> str:
    return write_rule(sources, persona, target, "2026-11-18")


def may(sources: Sources, persona: str = "reviewer", target: Target = NEW) -> bool:
    return policysources.load(sources).personas[persona].decide(target).allowed


def test_a_shipped_persona_gets_a_file_of_the_users_own(sources: Sources) -> None:
    path = Path(write(sources))
    assert path == Path(sources.user or "") / "reviewer.yaml"
    assert path.read_text() == dedent("""\
        version: 1
        personas:
          reviewer:
            extends: reviewer
            allow:
              - new.example:443  # allowed from the question, 2026-11-18
        """)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert may(sources)
    assert may(sources, target=Target(Host("shipped.test"), 443))
    assert os.listdir(path.parent) == ["reviewer.yaml"]


def test_a_persona_of_the_users_own_is_added_to_where_it_stands(sources: Sources) -> None:
    path = own(
        sources, "mine.yaml", "# mine\nversion: 1\npersonas:\n  reviewer:\n    extends: reviewer\n    allow: [a.test]\n"
    )
    assert write(sources) == str(path)
    assert path.read_text().startswith("# mine\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert may(sources)
    write(sources, target=Target(Host("second.example"), 22))
    assert may(sources)
    assert may(sources, target=Target(Host("second.example"), 22))
    assert not may(sources, target=Target(Host("second.example"), 443))


def test_a_persona_that_a_named_file_replaces_is_not_written_in_vain(sources: Sources, tmp_path: Path) -> None:
    named = tmp_path / "named.yaml"
    named.write_text("version: 1\npersonas: {reviewer: {allow: [a.test]}}\n")
    over = sources._replace(files=(policysources.File(str(named), "named.yaml"),))
    with pytest.raises(NotKept, match=r"defined by named.yaml:2, which your own files cannot add to"):
        write(over)
    assert not os.path.exists(sources.user or "")
    named.write_text("version: 1\npersonas: {reviewer: {extends: reviewer}}\n")
    write(over)
    assert may(over)
    assert named.read_text() == "version: 1\npersonas: {reviewer: {extends: reviewer}}\n"


@pytest.mark.parametrize(
    ("persona", "host", "words"),
    [
        ("reviewer", "denied.test", "denies it, and a denial always wins"),
        ("reviewer", "shipped.test", "allows it already"),
        ("nobody", "new.example", "no longer defined"),
    ],
)
def test_what_would_not_help_is_not_written(sources: Sources, persona: str, host: str, words: str) -> None:
    with pytest.raises(NotKept, match=words):
        write(sources, persona, Target(Host(host), 443))
    assert not os.path.exists(sources.user or "")


def test_a_broken_file_is_left_as_it_is(sources: Sources) -> None:
    path = own(sources, "mine.yaml", "version: 1\npersonas: [\n")
    with pytest.raises(NotKept, match=r"mine\.yaml:"):
        write(sources)
    assert path.read_text() == "version: 1\npersonas: [\n"


def test_a_link_is_not_written_through(sources: Sources, tmp_path: Path) -> None:
    text = "version: 1\npersonas: {reviewer: {extends: reviewer}}\n"
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(text)
    own(sources, "other.yaml", "version: 1\n")
    (Path(sources.user or "") / "mine.yaml").symlink_to(elsewhere)
    with pytest.raises(NotKept, match="is a symbolic link"):
        write(sources)
    assert elsewhere.read_text() == text


def test_an_edit_by_somebody_else_in_between_stays(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own(sources, "mine.yaml", "version: 1\npersonas: {reviewer: {extends: reviewer}}\n")
    theirs = "version: 1\npersonas: {reviewer: {extends: reviewer, deny: [new.example]}}\n"
    monkeypatch.setattr(os, "fsync", lambda _: path.write_text(theirs))
    with pytest.raises(NotKept, match="changed by somebody else"):
        write(sources)
    assert path.read_text() == theirs
    assert os.listdir(path.parent) == ["mine.yaml"]


def test_without_a_home_nothing_is_written(sources: Sources) -> None:
    with pytest.raises(NotKept, match="no home"):
        write(sources._replace(user=None))


async def test_the_keeper_says_where_it_is_kept_or_that_it_is_not(sources: Sources) -> None:
    said: list[str] = []
    keeper = Keeper(sources, asyncio.get_running_loop(), said.append)
    keeper.keep("reviewer", NEW)
    keeper.keep("reviewer", Target(Host("denied.test"), 443))
    await keeper.close()
    assert said[0] == f"new.example:443 is allowed for persona reviewer from now on, by {sources.user}/reviewer.yaml"
    assert said[1].startswith(
        "error: denied.test:443 is allowed for this session only: policies/personas.yaml:2 denied"
    )
    assert said[1].splitlines()[1].startswith("hint: egress check denied.test:443 --persona reviewer ")
    assert len(said) == 2
    assert may(sources)
