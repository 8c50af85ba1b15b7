from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress import urlpath
from egress.urlpath import Ambiguous, canonical, matches


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b/"),
        ("/a?b=c/../d#e", "/a"),
        ("/?", "/"),
        ("/%61%2D%5F%2e%7Eb", "/a-_.~b"),
        ("/%e2%82%ac", "/%E2%82%AC"),
        ("/%20", "/%20"),
        ("/%21%40%3a", "/%21%40%3A"),
        ("/!$&'()*+,=:@", "/!$&'()*+,=:@"),
        ('/a|b[c]{d}^`"<>', '/a|b[c]{d}^`"<>'),
        ("/compare/a...b", "/compare/a...b"),
        ("/.git/..a/b../.%61", "/.git/..a/b../.a"),
        ("/100%25", "/100%25"),
        ("/100%25zz", "/100%25zz"),
        ("/100%25%20", "/100%25%20"),
        ("/acme/x.git/info/refs?service=git-upload-pack", "/acme/x.git/info/refs"),
    ],
)
def test_a_path_with_one_reading_has_one_spelling(raw: str, expected: str) -> None:
    assert canonical(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        # segments that are walked
        "/a/../b", "/a/./b", "/..", "/.", "/../a", "/a/..", "/a/.", "/a/../", "/%2e%2e/a", "/%2E./a", "/.%2e/a",
        "/a/%2e/b", "/a/%2e%2e", "/.../a", "/a/..%20/b", "/a/%20../b", "/a/.%20.", "/a/..?b",
        # separators that are not seen, or not by all
        "//", "//a", "/a//b", "/a//", "//evil.test/a", "/a%2Fb", "/a%2fb", "/a/..%2fb", "/a\\b", "/a%5Cb", "/a%5cb",
        "/\\..\\a", "/a/..\\b",
        # what some cut off
        "/a;b", "/a;/b", "/..;/a", "/a%3Bb", "/a%3bb", "/a;jsessionid=1", "/a#b", "/#", "/a%23b", "/a%3Fb", "/a%3fb",
        # escapes of escapes
        "/%252e%252e/a", "/%252f", "/%2525", "/a%255cb", "/%25%32%65", "/%25%32e", "/%2541", "/%25ab", "/%25AB",
        # escapes that are none
        "/%", "/%2", "/%zz", "/%2g", "/%%41", "/a%", "/%u002e", "/%+41", "/% 1", "/%２e",
        # controls, blanks and what is not ASCII
        "/\0", "/%00", "/a%00.js", "/%0d%0aX:%20y", "/%0A", "/%1f", "/%7F", "/%09", "/a b", "/a\tb", "/a\r\nb", "/\x7f",
        "/é", "/\u2025/a", "/\uff0f", "/\u2028", "/\ud800",
        # not UTF-8, and look-alikes
        "/%C0%AF", "/%c0%ae%c0%ae/a", "/%E0%80%AF", "/%F0%80%80%AF", "/%FF", "/%80", "/%C3", "/%C3/%A9", "/%ED%A0%80",
        "/%EF%BC%8F", "/%EF%BC%8E%EF%BC%8E/a", "/%E2%80%A5/a", "/%EF%BC%BC", "/%EF%BC%9B", "/%EF%BC%85", "/%EF%BC%9F",
        # not a path
        "", "*", "a", "?/a", "https://a.test/", "%2Fa", " /a",
    ],
)  # fmt: skip
def test_a_path_with_two_readings_has_none(raw: str) -> None:
    with pytest.raises(Ambiguous, match=r"^(has|is|does) "):
        canonical(raw)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("/", ["/"], ["/a", "//"]),
        ("/a", ["/a"], ["/", "/a/", "/A", "/ab", "/a/b", "/b/a"]),
        ("/a/", ["/a/"], ["/a", "/a/b"]),
        ("/*", ["/a", "/a.b"], ["/", "/a/", "/a/b"]),
        ("/a/*", ["/a/b"], ["/a", "/a/", "/a/b/c"]),
        ("/a/*/c", ["/a/b/c"], ["/a/c", "/a/b/b/c", "/a/b/d"]),
        ("/*/*/git-upload-pack", ["/acme/x/git-upload-pack", "/acme/x.git/git-upload-pack"],
         ["/acme/x/git-receive-pack", "/acme/git-upload-pack", "/a/b/c/git-upload-pack", "/acme/x/git-upload-pack/"]),
        ("/**", ["/", "/a", "/a/", "/a/b/c"], []),
        ("/a/**", ["/a", "/a/", "/a/b", "/a/b/c/"], ["/", "/ab", "/b/a"]),
        ("/**/a", ["/a", "/b/a", "/b/c/a"], ["/", "/a/", "/ba", "/a/b"]),
        ("/a/**/b", ["/a/b", "/a/x/b", "/a/x/y/b", "/a/b/b"], ["/a", "/b", "/a/b/c", "/a/bb"]),
        ("/a/**/b/**/c", ["/a/b/c", "/a/b/b/c", "/a/x/b/y/c", "/a/c/b/c"], ["/a/c", "/a/b", "/a/c/b"]),
        ("/**/a/**/a/b", ["/a/a/b", "/a/b/a/b", "/x/a/a/a/b"], ["/a/b", "/a/a/c"]),
        ("/**/*", ["/a", "/a/b"], ["/", "/a/"]),
        ("/**/**", ["/", "/a/b"], []),
        ("/**/a/b/**", ["/a/b", "/a/a/b/c", "/x/a/b"], ["/a", "/a/x/b"]),
        ("/a*", ["/a", "/ab"], ["/", "/ba", "/a/b"]),
        ("/*a", ["/a", "/ba"], ["/ab"]),
        ("/a*b", ["/ab", "/axb", "/abb"], ["/a", "/b", "/aba"]),
        ("/a*a", ["/aa", "/aba"], ["/a"]),
        ("/a*b*c", ["/abc", "/axbxc", "/abbcc"], ["/ac", "/acb", "/ab"]),
        ("/*ab*ab*", ["/abab", "/xabyabz"], ["/aba", "/abba"]),
        ("/x-*.tar.gz", ["/x-1.tar.gz", "/x-.tar.gz"], ["/x-1.tar.xz", "/x.tar.gz"]),
        ("/a.c", ["/a.c"], ["/abc"]),
    ],
)  # fmt: skip
def test_a_glob_stands_for_these_paths_and_no_others(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(pattern, path)] == []
    assert [path for path in no if matches(pattern, path)] == []


# Texts of what makes paths: separators and dots, their escapes, and parts of escapes.
BITS = st.sampled_from([*"/.aA;%\\?#25eEfF~é ", "%2e", "%2F", "%25", "%41", "%C3%A9", "%c3", "%20", "%00", "//", "../"])
RAW = st.lists(BITS, max_size=12).map(lambda bits: "/" + "".join(bits))
SEGMENT = st.lists(st.sampled_from(["a", "b", "*"]), max_size=4).map("".join).filter(lambda text: "**" not in text)
GLOB = st.lists(st.just("**") | SEGMENT, min_size=1, max_size=5).map(lambda segments: "/" + "/".join(segments))
PATH = st.lists(st.text("ab", max_size=4), min_size=1, max_size=6).map(lambda segments: "/" + "/".join(segments))


@given(RAW)
def test_the_one_spelling_is_its_own(raw: str) -> None:
    try:
        path = canonical(raw)
    except Ambiguous:
        return
    assert canonical(path) == path
    assert not {".", ".."} & set(path.split("/"))
    assert "//" not in path


@given(RAW, st.data())
def test_an_escape_that_means_nothing_changes_nothing(raw: str, data: st.DataObject) -> None:
    def spell(character: str) -> str:
        escape = f"%{ord(character):02x}"
        return data.draw(st.sampled_from([character, escape, escape.upper()]))

    try:
        path = canonical(raw)
    except Ambiguous:
        return
    parts = re.findall(r"%..|[A-Za-z0-9._~-]|.", path)
    assert canonical("".join(spell(part) if re.fullmatch("[A-Za-z0-9._~-]", part) else part for part in parts)) == path


def slowly(pattern: str, path: str) -> bool:
    """What the globs mean, with all ways tried."""
    if not pattern:
        return not path
    if pattern == "/**" or pattern.startswith("/**/"):
        rest = pattern[3:]
        ends = [match.start() for match in re.finditer("/", path)] + [len(path)]
        return any(slowly(rest, path[end:]) for end in ends)
    segment, rest = re.fullmatch(r"/([^/]*)(.*)", pattern).groups()  # type: ignore[union-attr]
    word = "[^/]+" if segment == "*" else "[^/]*".join(map(re.escape, segment.split("*")))
    found = re.match(rf"/{word}(?=/|$)", path)
    return found is not None and slowly(rest, path[found.end() :])


@given(GLOB, PATH)
def test_matching_finds_what_trying_everything_finds(pattern: str, path: str) -> None:
    assert matches(pattern, path) == slowly(pattern, path)


class Counting(str):
    """A text that counts how much of it is searched."""

    __slots__ = ()
    searched = 0

    def find(self, text: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        found = super().find(text, start, end)
        Counting.searched += (found if found >= 0 else len(self)) - start + len(text)
        return found


def test_a_segment_is_gone_through_once_however_many_stars() -> None:
    segment = Counting("a" * 10_000)
    Counting.searched = 0
    assert not urlpath._fits(("", *"aaaaaaaa", "b", ""), segment)
    assert 0 < Counting.searched < 2 * len(segment)


def test_a_path_is_gone_through_once_however_many_stars(monkeypatch: pytest.MonkeyPatch) -> None:
    fits, steps = urlpath._fits, 0

    def counting(piece: urlpath.Piece, segment: str) -> bool:
        nonlocal steps
        steps += 1
        return fits(piece, segment)

    monkeypatch.setattr(urlpath, "_fits", counting)
    pattern = "/**/a/a/**/a/b/**/a/c/**/a/**/z"
    for length in (100, 1000):
        steps = 0
        assert not matches(pattern, "/a" * length + "/z")
        assert length <= steps <= 3 * length
