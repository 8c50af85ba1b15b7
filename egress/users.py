"""Proxy credentials: a file of users, each with a persona and a hashed password.

    # name:persona:hash, made by `egress users hash`
    ci:reviewer:scrypt$16384$8$1$6pQ…$k0Zx…

Checking a password is slow by design, so it is done in a thread, a few at a time, and a password once
found right is remembered as a keyed digest whose key dies with the process.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import NamedTuple, Protocol

from egress.refusals import Reason, Refused

_N, _R, _P, _SIZE = 16384, 8, 1, 32
_MAX_N, _MAX_COST = 1 << 17, 64
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_AT_ONCE, _MOST_WAITING = 2, 64
_REMEMBERED = 1024


class UsersError(Exception):
    """What is wrong with the file, with its line."""


class User(NamedTuple):
    name: str
    persona: str
    hash: str


class Doorkeeper(Protocol):
    """Knows whom a name and a password stand for."""

    async def persona(self, name: str, password: str) -> str | None: ...


class OneGuest:
    """The one visitor of a port that is open for one run. Its password is random: nothing slow guards it better."""

    def __init__(self, name: str, password: str, persona: str) -> None:
        self._known, self._persona = f"{name}\0{password}".encode(), persona

    async def persona(self, name: str, password: str) -> str | None:
        right = hmac.compare_digest(f"{name}\0{password}".encode(), self._known)
        return self._persona if right else None


class Users:
    def __init__(self, users: dict[str, User]) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, str] = {}
        self._turns, self._waiting = asyncio.Semaphore(_AT_ONCE), 0
        self._nobody = User("", "", hash_password(secrets.token_hex(8)))

    def replace(self, users: dict[str, User]) -> None:
        """Take up an edit; passwords that were remembered are asked anew."""
        self._users = users
        self._known.clear()

    @property
    def personas(self) -> frozenset[str]:
        return frozenset(user.persona for user in self._users.values())

    async def persona(self, name: str, password: str) -> str | None:
        """The persona of whoever knows this password, or None."""
        digest = hashlib.blake2b(f"{name}\0{password}".encode(), key=self._key).digest()
        if known := self._known.get(digest):
            return known
        user = self._users.get(name, self._nobody)  # an unknown name takes as long as a wrong password
        right = await self._check(password, user)
        if not right or self._users.get(name) is not user:  # nobody, or somebody else by now
            return None
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[digest] = user.persona
        return user.persona

    async def _check(self, password: str, user: User) -> bool:
        if self._waiting >= _MOST_WAITING:
            raise Refused(Reason.LIMIT, "too many passwords are being checked")
        self._waiting += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(verify_password, password, user.hash)
        finally:
            self._waiting -= 1


def parse_users(text: str, file: str) -> dict[str, User]:
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            user = _parse_user(line.strip(), f"{file}:{number}")
            if user.name in users:
                raise UsersError(f"{file}:{number}: user {user.name!r} stands here twice")
            users[user.name] = user
    if not users:
        raise UsersError(f"{file}: no users, so nobody could use the gate")
    return users


def hash_password(password: str) -> str:
    salt = secrets.token_bytes(16)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(_scrypt(password, salt, _N, _R, _P))}"


def verify_password(password: str, stored: str) -> bool:
    salt, digest, n, r, p = _parse_hash(stored)
    return hmac.compare_digest(_scrypt(password, salt, n, r, p), digest)


def parse_basic(value: str) -> tuple[str, str] | None:
    """The name and password of a `Basic` authorization, or None."""
    scheme, _, encoded = value.partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (name, password) if colon and scheme.lower() == "basic" else None


def _parse_user(line: str, where: str) -> User:
    parts = line.split(":")
    if len(parts) != 3 or not _NAME.fullmatch(parts[0]) or not parts[1]:
        raise UsersError(f"{where}: expected name:persona:hash (make the hash with `egress users hash`)")
    try:
        _parse_hash(parts[2])
    except ValueError:
        raise UsersError(f"{where}: the hash is not one of ours (make it with `egress users hash`)") from None
    return User(*parts)


def _parse_hash(stored: str) -> tuple[bytes, bytes, int, int, int]:
    kind, n, r, p, salt, digest = stored.split("$")
    numbers = int(n), int(r), int(p)
    if kind != "scrypt" or numbers[0] > _MAX_N or numbers[1] * numbers[2] > _MAX_COST:
        raise ValueError(stored)
    return base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True), *numbers


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, dklen=_SIZE, maxmem=256 * 1024 * 1024)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
