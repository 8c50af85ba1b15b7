"""Proxy credentials."""

from __future__ import annotations

import base64
import hashlib

import pytest

from egress import users
from egress.users import Users, UsersError, hash_password, parse_basic, parse_users, verify_password

LINE = f"ci:reviewer:{hash_password('hunter2 and more')}"


def test_a_hash_verifies_its_password_and_no_other() -> None:
    stored = hash_password("hunter2")
    assert verify_password("hunter2", stored)
    assert not verify_password("hunter3", stored)
    assert "hunter2" not in stored


def test_the_same_password_is_hashed_differently_each_time() -> None:
    assert hash_password("x") != hash_password("x")


async def test_a_known_password_gives_its_persona() -> None:
    table = Users(parse_users(f"# comment\n\n{LINE}\n", "users.txt"))
    assert await table.persona("ci", "hunter2 and more") == "reviewer"
    assert await table.persona("ci", "hunter2") is None
    assert await table.persona("nobody", "hunter2 and more") is None


async def test_a_password_once_found_right_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Users(parse_users(LINE, "users.txt"))
    assert await table.persona("ci", "hunter2 and more") == "reviewer"
    monkeypatch.setattr(users, "verify_password", lambda *_: pytest.fail("hashed again"))
    assert await table.persona("ci", "hunter2 and more") == "reviewer"


async def test_an_unknown_name_costs_as_much_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Users(parse_users(LINE, "users.txt"))
    hashed = []
    real = hashlib.scrypt
    monkeypatch.setattr(hashlib, "scrypt", lambda *args, **kw: hashed.append(1) or real(*args, **kw))
    await table.persona("nobody", "x")
    await table.persona("ci", "x")
    assert len(hashed) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no users"),
        ("ci:reviewer", "users.txt:1: expected name:persona:hash"),
        ("ci:reviewer:plain", "the hash is not one of ours"),
        ("c i:reviewer:x", "expected name:persona:hash"),
        (f"{LINE}\n{LINE}", "users.txt:2: user 'ci' stands here twice"),
        ("ci:reviewer:scrypt$1073741824$8$1$AAAA$AAAA", "the hash is not one of ours"),
    ],
)
def test_a_file_that_cannot_be_understood_says_where(text: str, says: str) -> None:
    with pytest.raises(UsersError, match=says.replace("(", r"\(")):
        parse_users(text, "users.txt")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Basic " + base64.b64encode(b"ci:a:b").decode(), ("ci", "a:b")),
        ("basic " + base64.b64encode(b"ci:").decode(), ("ci", "")),
        ("Basic " + base64.b64encode(b"no colon").decode(), None),
        ("Basic !!!", None),
        ("Basic", None),
        ("Bearer " + base64.b64encode(b"ci:x").decode(), None),
        ("Basic " + base64.b64encode(b"\xff:x").decode(), None),
    ],
)
def test_basic_credentials_are_read_strictly(value: str, expected: tuple[str, str] | None) -> None:
    assert parse_basic(value) == expected


async def test_an_edit_of_the_file_takes_passwords_back() -> None:
    table = Users(parse_users(LINE, "users.txt"))
    assert await table.persona("ci", "hunter2 and more") == "reviewer"
    table.replace(parse_users(f"ci:reviewer:{hash_password('another')}", "users.txt"))
    assert await table.persona("ci", "hunter2 and more") is None
    assert await table.persona("ci", "another") == "reviewer"


async def test_a_password_that_was_replaced_while_it_was_checked_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Users(parse_users(LINE, "users.txt"))

    def replaced(password: str, stored: str) -> bool:
        table.replace(parse_users(f"ci:reviewer:{hash_password('another')}", "users.txt"))
        return True

    monkeypatch.setattr(users, "verify_password", replaced)
    assert await table.persona("ci", "hunter2 and more") is None
