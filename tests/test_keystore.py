"""The trust store for Java, taken apart by hand; Java itself reads it in scenarios."""

from __future__ import annotations

import hashlib
import io
import struct
from typing import Any, NamedTuple

from egress.inspection.authority import Authority
from egress.inspection.bundle import certificates
from egress.inspection.keystore import PASSWORD, keystore

MADE = 1_795_000_000.25


class Entry(NamedTuple):
    kind: int
    alias: str
    date: int
    form: str
    certificate: bytes


class Reader(io.BytesIO):
    def take(self, form: str) -> Any:
        return struct.unpack(form, self.read(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.read(self.take(">H")).decode()

    def entry(self) -> Entry:
        return Entry(self.take(">I"), self.text(), self.take(">q"), self.text(), self.read(self.take(">I")))


def make(count: int) -> tuple[bytes, ...]:
    return certificates(*(Authority.make(["x.test"]).certificate_pem for _ in range(count)))


def test_a_store_has_every_certificate_under_a_name_of_its_own() -> None:
    ours, *roots = make(4)
    reader = Reader(keystore(roots, ours, MADE))
    assert [reader.take(">I") for _ in range(3)] == [0xFEEDFEED, 2, 4]
    entries = [reader.entry() for _ in range(4)]
    assert [entry.certificate for entry in entries] == [ours, *roots]
    assert [entry.alias for entry in entries] == ["egress", "root-1", "root-2", "root-3"]
    assert {(entry.kind, entry.form, entry.date) for entry in entries} == {(2, "X.509", 1_795_000_000_250)}
    assert len(reader.read()) == 20


def test_a_store_ends_in_the_digest_that_its_password_gives() -> None:
    store = keystore(make(2), make(1)[0], MADE)
    expected = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store[:-20]).digest()
    assert store[-20:] == expected


def test_a_store_of_a_host_without_roots_has_ours() -> None:
    assert Reader(keystore((), make(1)[0], MADE)[8:]).take(">I") == 1
