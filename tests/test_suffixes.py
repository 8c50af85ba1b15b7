from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import publicsuffixlist
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policykit import one_rule, problems

from egress.model import Host
from egress.rules import Pattern
from egress.suffixes import REVIEWED, is_public_suffix, suffixes_below

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = publicsuffixlist.PublicSuffixList()
LABELS = "com uk co jp kawasaki city io github ck www example amazonaws s3 a"


@pytest.mark.parametrize(
    "base",
    ["com", "test", "co.uk", "org.uk", "github.io", "gitlab.io", "workers.dev", "pages.dev", "s3.amazonaws.com", "ck",
     "foo.ck", "kawasaki.jp", "a.kawasaki.jp", "herokuapp.com", "vercel.app", "netlify.app", "cloudfront.net",
     "ngrok.io", "blob.core.windows.net", "us-east-1.elasticbeanstalk.com", "xn--p1ai", "xn--55qx5d.cn"],
)  # fmt: skip
def test_a_wildcard_on_a_public_suffix_says_what_to_write(base: str) -> None:
    (problem,) = problems(f"version: 1\ngroups:\n  g: ['*.{base}', a.test]")
    assert problem.startswith(
        f"f.yaml:3: '*.{base}': anyone may register a name below {base} (a public suffix); write "
    )
    assert f"*.example.{base}" in problem


@pytest.mark.parametrize(
    "base", ["example.co.uk", "me.github.io", "www.ck", "city.kawasaki.jp", "a.b.kawasaki.jp", "corp.example",
             "wild.test", "github.com", "githubusercontent.com", "amazonaws.com", "x.xn--p1ai", "xn--mnchen-3ya.test"],
)  # fmt: skip
def test_a_wildcard_below_a_public_suffix_is_a_wildcard(base: str) -> None:
    assert one_rule(f"'*.{base}'").pattern == Pattern(Host(base), below=True)


def test_a_public_suffix_by_itself_is_a_host_like_any_other() -> None:
    assert one_rule("github.io").pattern == Pattern(Host("github.io"))


def test_every_entry_of_the_list_is_refused_but_those_reviewed() -> None:
    text = Path(publicsuffixlist.PSLFILE).read_text("utf-8")
    entries = [line for line in text.splitlines() if line and not line.startswith("//")]
    assert len(entries) > 9000
    for entry in entries:
        name = entry.lstrip("!*.").encode("idna").decode()
        if entry.startswith("!"):
            assert not is_public_suffix(name)
        else:
            assert is_public_suffix(name) or name in REVIEWED, entry
        if entry.startswith("*."):
            assert is_public_suffix(f"anything.{name}")


@given(
    st.lists(
        st.sampled_from(LABELS.split()),
        min_size=1,
        max_size=4,
    )
)
def test_the_answer_is_that_of_the_lists_own_package(labels: list[str]) -> None:
    host = ".".join(labels)
    assert is_public_suffix(host) == SUFFIXES.is_public(host)


def test_a_name_knows_a_public_suffix_below_it() -> None:
    assert suffixes_below()["amazonaws.com"].endswith(".amazonaws.com")
    assert is_public_suffix(suffixes_below()["amazonaws.com"])
    assert "github.com" not in suffixes_below()


def test_the_shipped_policy_needs_no_list_and_imports_nothing_slow() -> None:
    script = (
        "import sys; from egress import policysources as p; p.load(p.locate(persona='craftsman', environ={}));"
        "print(*{'publicsuffixlist', 'idna', 'difflib', 'dataclasses', 'asyncio', 'msgspec'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == ""
