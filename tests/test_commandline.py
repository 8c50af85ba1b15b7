"""What is kept of a command line, and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress import commandline
from egress.commandline import LONGEST, MOST_BYTES, shown

KEY = "hunter2-0123456789abcdef"


def words(*each: str) -> bytes:
    return "".join(f"{word}\0" for word in each).encode()


def test_words_are_shown_with_blanks_between_them() -> None:
    assert shown(words("curl", "-s", "https://evil.example/x?a=b")) == "curl -s https://evil.example/x?a=b"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["curl", "-H", f"Authorization: Bearer {KEY}", "https://a.test"], "curl -H Authorization: *** https://a.test"),
        (["curl", "-H", f"x-api-key:{KEY}"], "curl -H x-api-key:***"),
        (["curl", "-H", f"Private-Token: {KEY}"], "curl -H Private-Token: ***"),
        (["curl", "-H", f"cookie: a={KEY}; b={KEY}", "-v"], "curl -H cookie: *** -v"),
        (["curl", f"--header=Proxy-Authorization: Basic {KEY}"], "curl --header=Proxy-Authorization: ***"),
        (["curl", f"https://a.test/?token={KEY}&n=1"], "curl https://a.test/?token=***&n=1"),
        (["curl", f"https://a.test/?n=1&key={KEY}"], "curl https://a.test/?n=1&key=***"),
        (["curl", f"https://a.test/?X-Amz-Signature={KEY}"], "curl https://a.test/?X-Amz-Signature=***"),
        (["git", "clone", f"https://me:{KEY}@a.test/x.git"], "git clone https://***@a.test/x.git"),
        (["git", "clone", f"https://{KEY}@a.test/x.git"], "git clone https://***@a.test/x.git"),
        (["psql", f"postgresql://me:p@{KEY}@db.test/x"], "psql postgresql://***@db.test/x"),
        (["curl", "-u", f"me:{KEY}", "https://a.test"], "curl -u me:*** https://a.test"),
        (["curl", f"-ume:{KEY}"], "curl -ume:***"),
        (["curl", f"--user=me:{KEY}"], "curl --user=me:***"),
        (["tool", "--password", KEY, "-v"], "tool --password *** -v"),
        (["tool", f"--api-key={KEY}"], "tool --api-key=***"),
        (["tool", "--github-access-token", KEY], "tool --github-access-token ***"),
        (["env", f"GH_TOKEN={KEY}", "gh"], "env GH_TOKEN=*** gh"),
        (["env", f"AWS_SECRET_ACCESS_KEY={KEY}"], "env AWS_SECRET_ACCESS_KEY=***"),
        (["sh", "-c", f"GH_TOKEN='{KEY} x' gh pr"], "sh -c GH_TOKEN='***' gh pr"),
        (["sh", "-c", f"curl -H 'Authorization: token {KEY}' a.test"], "sh -c curl -H 'Authorization: ***' a.test"),
        (["sh", "-c", f"tool --password {KEY} -v"], "sh -c tool --password *** -v"),
        (["sh", "-c", f'tool --password "{KEY} {KEY}" -v'], 'sh -c tool --password "***" -v'),
        (["curl", "-d", f'{{"password": "{KEY}\'{KEY}", "n": 1}}'], 'curl -d {"password": "***", "n": 1}'),
        (["curl", "-d", f"user=me&passwd={KEY}&n=1"], "curl -d user=me&passwd=***&n=1"),
        (["sqlcmd", f"Server=a;Uid=sa;Pwd={KEY};Timeout=1"], "sqlcmd Server=a;Uid=sa;Pwd=***;Timeout=1"),
        (["tool", "ghp_0123456789abcdefghijABCDEFGHIJ012345"], "tool ghp_***"),
        (["tool", "sk-ant-api03-0123456789abcdef"], "tool sk-***"),
        (["tool", "AKIA0123456789ABCDEF"], "tool AKIA***"),
        (["tool", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"], "tool eyJ***"),
        (["tool", f"said bearer {KEY}"], "tool said bearer ***"),
    ],
)
def test_credentials_are_masked(command: list[str], kept: str) -> None:
    assert shown(words(*command)) == kept


@pytest.mark.parametrize(
    "command",
    [
        "git commit --author=Bob -m fix the token count",
        "git log --author Bob",
        "llm --max-tokens 100 tokenize",
        "gh auth login",
        "ssh git@github.com git-upload-pack acme/x.git",
        "curl -s https://a.test/v1/tokens?page=2",
        "npm install left-pad@1.3.0",
        "python -u script.py --verbose",
        "cat /home/me/.config/secret.txt",
    ],
)
def test_other_words_are_left_alone(command: str) -> None:
    assert shown(words(*command.split(" "))) == command


@pytest.mark.parametrize(
    "word",
    [
        "x-api-key: egress-placeholder-ANTHROPIC_API_KEY",
        "Authorization: Bearer egress-placeholder-GH_TOKEN",
        "GH_TOKEN=egress-placeholder-GH_TOKEN",
    ],
)
def test_a_placeholder_is_no_secret(word: str) -> None:
    assert shown(words("curl", "-H", word)) == f"curl -H {word}"


def test_what_only_begins_like_a_placeholder_is_masked() -> None:
    assert shown(words("curl", "-H", f"x-api-key: egress-placeholder-X {KEY}")) == "curl -H x-api-key: ***"


def test_a_secret_that_a_cut_would_lay_bare_is_masked_before_it() -> None:
    url = f"https://me:{'s' * 300}@a.test/"
    assert shown(words("git", "clone", url)) == "git clone https://***@a.test/"


def test_a_last_word_that_the_reading_cut_is_left_out() -> None:
    url = f"https://me:{'s' * MOST_BYTES}@a.test/"
    assert shown(words("git", "clone", url)[:MOST_BYTES]) == "git clone"


def test_it_is_cut_to_a_length() -> None:
    assert shown(words("x" * 1000)) == "x" * LONGEST


def test_hostile_text_stays_visible_ascii_on_one_line() -> None:
    assert shown(b"a\nb\0\x1b[31m\0\xff\xc3\xa9\0") == r"a\nb \x1b[31m \udcff\xe9"


@given(st.binary(max_size=6000))
def test_whatever_a_process_calls_itself_fits(cmdline: bytes) -> None:
    text = shown(cmdline)
    assert len(text) <= LONGEST
    assert text.isascii()
    assert text.isprintable()


FRAGMENTS = st.sampled_from(
    [
        "token",
        "=",
        ":",
        " ",
        "\0",
        "--",
        "-u",
        '"',
        "'",
        "\\",
        "@",
        "://",
        "a",
        KEY,
        "password",
        "bearer ",
        "sk-",
        "?key",
    ]
)


@given(st.lists(FRAGMENTS, max_size=400).map("".join))
def test_however_it_is_put_together_no_named_value_is_shown(noise: str) -> None:
    assert KEY not in shown(f"--password={KEY}\0{noise.replace(KEY, '')}".encode())


@pytest.mark.parametrize(
    "piece", ["token", "a://", "-" * 7, "--a", "password\\\"'", "auth ", "x@", "sk-", "a", "-u a", "bearer ", "key\t"]
)
def test_no_text_takes_long(monkeypatch: pytest.MonkeyPatch, piece: str) -> None:
    """Nothing is timed: with a pattern that goes back and forth, so much text takes longer than a test may."""
    most = 1 << 18
    monkeypatch.setattr(commandline, "MOST_BYTES", most)
    assert len(shown((piece * most)[: most - 1].encode())) <= LONGEST
