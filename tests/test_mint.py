"""The session's certificate: what a sandbox is given of it, what the engine is, and what is left when it fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from gatekit import descriptors

from egress.inspection.authority import Authority
from launcher import mint, trust
from launcher.mint import Mint, config, end
from launcher.mounts import Kind, PlanError

NAMES = ("a.example", "*.b.example")


@pytest.fixture
def started() -> Iterator[Mint]:
    before = descriptors()
    made = mint.start(NAMES, ("/roots.pem",), trust.given())
    yield made
    end(made)
    for read in made.given.values():
        os.close(read)
    assert descriptors() == before


def read(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def test_the_directory_is_mounted_before_the_files_in_it() -> None:
    first, *files = mint.mounts()
    assert (first.kind, first.path) == (Kind.EMPTY, trust.DIRECTORY)
    assert {trust.BUNDLE, trust.AUTHORITY, trust.STORE} <= {mount.path for mount in files}


def test_the_files_are_mounted_in_the_order_in_which_they_are_filled(started: Mint) -> None:
    files = mint.mounts()[1:]
    assert [mount.kind for mount in files] == [Kind.GIVEN] * len(files)
    assert [mount.path for mount in files] == list(started.given)


def test_what_the_sandbox_trusts_is_what_the_engine_signs_with(started: Mint) -> None:
    got = {path: read(descriptor) for path, descriptor in started.given.items()}
    made = config(started)
    assert (made.names, made.upstream_roots) == (NAMES, ("/roots.pem",))
    assert got[trust.AUTHORITY] == made.certificate
    assert got[trust.BUNDLE].startswith(made.certificate)
    assert got[trust.STORE][:4] == b"\xfe\xed\xfe\xed"
    key = load_pem_private_key(made.key, None)
    assert key.public_key() == x509.load_pem_x509_certificate(made.certificate).public_key()


def test_an_engine_can_load_it_and_speaks_for_its_hosts_only(started: Mint) -> None:
    made = config(started)
    authority = Authority.load(made.key, made.certificate, made.names)
    assert authority.covers("a.example")
    assert not authority.covers("c.example")


def test_each_session_has_its_own(started: Mint) -> None:
    other = mint.start(NAMES, (), trust.given())
    assert config(other).key != config(started).key
    for read_end in other.given.values():
        os.close(read_end)


def test_one_that_was_killed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mint, "_make", lambda *_: signal.pause())
    made = mint.start(NAMES, (), trust.given())
    os.kill(made.pid, signal.SIGKILL)
    with pytest.raises(PlanError, match="could not be made"):
        config(made)
    for descriptor in made.given.values():
        os.close(descriptor)


def test_one_that_cannot_make_it_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Authority, "make", lambda names: 1 / 0)
    made = mint.start(NAMES, (), trust.given())
    assert [read(descriptor) for descriptor in made.given.values()] == [b""] * len(made.given)
    with pytest.raises(PlanError, match="could not be made"):
        config(made)
    for descriptor in made.given.values():
        os.close(descriptor)
