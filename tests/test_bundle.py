"""The bundle: certificates cut out of files, each once, and nothing else of them."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from egress.inspection import bundle as module
from egress.inspection.authority import Authority
from egress.inspection.bundle import bundle, certificates, roots


def made() -> bytes:
    return Authority.make(["x.test"]).certificate_pem


def der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


def write(path: Path, *parts: bytes) -> str:
    path.write_bytes(b"".join(parts))
    return str(path)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose bundle is the second of the places where one may be."""
    path = tmp_path / "distribution.pem"
    monkeypatch.setattr(module, "BUNDLES", (str(tmp_path / "missing.pem"), str(path), str(tmp_path / "third.pem")))
    return path


def test_certificates_come_in_order_and_each_once() -> None:
    one, two = made(), made()
    assert certificates(one + two, two + one) == (der(one), der(two))


def test_the_same_certificate_in_other_lines_is_the_same() -> None:
    one = made()
    head, *lines, tail = one.splitlines()
    assert certificates(one, b"\r\n".join((head, b"".join(lines), tail))) == (der(one),)


def test_only_certificates_are_taken_from_a_file() -> None:
    one = made()
    secret = Authority.make(["x.test"]).key_pem
    file = (
        b"# a comment\n"
        + secret
        + one
        + b"-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n"
    )
    whole = bundle(certificates(file), made())
    assert certificates(file) == (der(one),)
    assert b"PRIVATE" not in whole
    assert b"comment" not in whole
    assert secret.splitlines()[1] not in whole


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"-----BEGIN CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n",
        b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        b"\0\xff" * 100,
    ],
)
def test_what_is_broken_is_passed_over(broken: bytes) -> None:
    one = made()
    assert certificates(broken) == ()
    assert certificates(one + broken) == (der(one),)


def test_ours_comes_first_and_the_whole_is_read_by_openssl() -> None:
    ours, one, two = made(), made(), made()
    whole = bundle(certificates(one, two), ours)
    assert whole.startswith(ours)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=whole.decode())
    assert sorted(context.get_ca_certs(binary_form=True)) == sorted(map(der, (ours, one, two)))


def test_roots_are_the_distributions_and_those_of_the_user(distribution: Path, tmp_path: Path) -> None:
    system, own = made(), made()
    write(distribution, system)
    write(tmp_path / "third.pem", made())
    mine = write(tmp_path / "mine.pem", own, system)
    assert roots({"SSL_CERT_FILE": mine}) == (der(system), der(own))
    assert roots({}) == (der(system),)


def test_an_empty_bundle_of_the_distribution_is_not_the_last_word(distribution: Path, tmp_path: Path) -> None:
    other = made()
    write(distribution)
    write(tmp_path / "third.pem", other)
    assert roots({}) == (der(other),)


def test_a_host_without_roots_has_none(distribution: Path, tmp_path: Path) -> None:
    assert not distribution.exists()
    assert roots({"SSL_CERT_FILE": str(tmp_path / "nowhere")}) == ()


def test_what_is_not_a_file_is_not_waited_for(distribution: Path, tmp_path: Path) -> None:
    write(distribution, one := made())
    os.mkfifo(tmp_path / "pipe")
    assert roots({"SSL_CERT_FILE": str(tmp_path / "pipe")}) == (der(one),)
    assert roots({"SSL_CERT_FILE": str(tmp_path)}) == (der(one),)
