"""The session's authority and its leaves: what they say, and what OpenSSL, the strict way, makes of it."""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from egress.inspection import authority as module
from egress.inspection.authority import DAY, Authority, NotCovered

NAMES = ("api.example.com", "*.wild.test", "10.1.2.3", "fd00::7")
INSIDE = ("api.example.com", "a.wild.test", "b.a.wild.test", "10.1.2.3", "fd00::7")
KINDS = {"names": NAMES[:2], "addresses": NAMES[2:], "both": NAMES}
E = TypeVar("E", bound=x509.ExtensionType)


def certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def extension(found: x509.Certificate, kind: type[E]) -> tuple[bool, E]:
    it = found.extensions.get_extension_for_class(kind)
    return it.critical, it.value


def constraints(names: Sequence[str]) -> x509.NameConstraints:
    critical, value = extension(certificate(Authority.make(names).certificate_pem), x509.NameConstraints)
    assert critical
    return value


def network(text: str) -> x509.IPAddress:
    return x509.IPAddress(ipaddress.ip_network(text))


# ---- the authority


def test_an_authority_signs_leaves_and_nothing_else() -> None:
    found = certificate(Authority.make(NAMES).certificate_pem)
    assert extension(found, x509.BasicConstraints) == (True, x509.BasicConstraints(ca=True, path_length=0))
    critical, usage = extension(found, x509.KeyUsage)
    assert critical
    assert usage.key_cert_sign
    assert not any((usage.digital_signature, usage.crl_sign, usage.key_encipherment, usage.key_agreement))
    found.verify_directly_issued_by(found)


def test_an_authority_is_valid_for_a_day_and_a_little_before_now() -> None:
    found = certificate(Authority.make(NAMES).certificate_pem)
    now = time.time()
    assert now - 2 * 3600 < found.not_valid_before_utc.timestamp() < now - 600
    assert now + DAY - 60 < found.not_valid_after_utc.timestamp() <= now + DAY


def test_an_authority_says_whose_it_is_and_no_two_are_named_alike() -> None:
    one, two = (certificate(Authority.make(NAMES).certificate_pem) for _ in range(2))
    assert one.subject.rfc4514_string().startswith("CN=egress session CA ")
    assert one.subject == one.issuer
    assert one.subject != two.subject
    assert one.serial_number != two.serial_number


def test_constraints_permit_the_names_and_addresses_that_were_given() -> None:
    value = constraints(NAMES)
    assert value.permitted_subtrees == [
        x509.DNSName("api.example.com"),
        x509.DNSName("wild.test"),
        network("10.1.2.3/32"),
        network("fd00::7/128"),
    ]
    assert value.excluded_subtrees is None


def test_with_names_alone_every_address_is_excluded() -> None:
    value = constraints(["api.example.com"])
    assert value.permitted_subtrees == [x509.DNSName("api.example.com")]
    assert value.excluded_subtrees == [network("0.0.0.0/0"), network("::/0")]


def test_with_addresses_alone_every_name_is_excluded() -> None:
    value = constraints(["10.1.2.3"])
    assert value.permitted_subtrees == [network("10.1.2.3/32")]
    assert value.excluded_subtrees == [x509.DNSName("")]


def test_a_name_and_all_below_it_are_one_constraint() -> None:
    assert constraints(["x.test", "*.x.test"]).permitted_subtrees == [x509.DNSName("x.test")]


def test_there_is_no_authority_for_no_host() -> None:
    with pytest.raises(ValueError, match="expected at least one name"):
        Authority.make([])


def test_many_names_fit() -> None:
    names = [f"*.host-{number}.example" for number in range(2000)]
    made = Authority.make(names)
    assert len(constraints(names).permitted_subtrees or ()) == 2000
    certificate(made.leaf("a.host-1999.example")[1])


# ---- leaves


@pytest.mark.parametrize("host", INSIDE)
def test_a_leaf_is_for_one_host_and_for_servers(host: str) -> None:
    made = Authority.make(NAMES)
    key, chain = made.leaf(host)
    leaf, issuer = x509.load_pem_x509_certificates(chain)
    leaf.verify_directly_issued_by(issuer)
    assert issuer == certificate(made.certificate_pem)
    assert load_pem_private_key(key, None).public_key() == leaf.public_key()
    address = host[-1].isdigit()
    name = x509.IPAddress(ipaddress.ip_address(host)) if address else x509.DNSName(host)
    assert extension(leaf, x509.SubjectAlternativeName)[1] == x509.SubjectAlternativeName([name])
    assert extension(leaf, x509.ExtendedKeyUsage)[1] == x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    assert extension(leaf, x509.BasicConstraints) == (True, x509.BasicConstraints(ca=False, path_length=None))
    named = extension(leaf, x509.AuthorityKeyIdentifier)[1].key_identifier
    assert named == extension(issuer, x509.SubjectKeyIdentifier)[1].digest


def test_a_leaf_is_valid_as_long_as_its_authority() -> None:
    leaf, issuer = x509.load_pem_x509_certificates(Authority.make(NAMES).leaf("api.example.com")[1])
    assert leaf.not_valid_before_utc == issuer.not_valid_before_utc
    assert leaf.not_valid_after_utc == issuer.not_valid_after_utc


@pytest.mark.parametrize(
    "host",
    [
        *("evil.test", "example.com", "a.api.example.com", "notapi.example.com", "api.example.com.evil.test"),
        *("wild.test", "evilwild.test", "a.wild.test.evil.test", "10.1.2.4", "fd00::8", ""),
    ],
)
def test_there_is_no_leaf_for_another_host(host: str) -> None:
    made = Authority.make(NAMES)
    assert not made.covers(host)
    with pytest.raises(NotCovered, match="none of the hosts"):
        made.leaf(host)


def test_a_leaf_is_made_once() -> None:
    made = Authority.make(NAMES)
    assert made.leaf("a.wild.test")[1] is made.leaf("a.wild.test")[1]
    assert made.leaf("b.wild.test")[1] != made.leaf("a.wild.test")[1]


def test_leaves_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LEAVES", 3)
    made = Authority.make(NAMES)
    first = made.leaf("h0.wild.test")[1]
    for number in range(1, 4):
        made.leaf(f"h{number}.wild.test")
    assert made.leaf("h0.wild.test")[1] is not first
    assert made.leaf("h3.wild.test")[1] is made.leaf("h3.wild.test")[1]


# ---- once more, from what was kept


def test_an_authority_that_was_loaded_goes_on_where_it_was() -> None:
    made = Authority.make(NAMES)
    again = Authority.load(made.key_pem, made.certificate_pem, NAMES)
    assert (again.key_pem, again.certificate_pem) == (made.key_pem, made.certificate_pem)
    assert (again.names, again.until) == (made.names, made.until)
    leaf, issuer = x509.load_pem_x509_certificates(again.leaf("a.wild.test")[1])
    leaf.verify_directly_issued_by(issuer)


def test_an_authority_without_its_names_is_held_to_its_constraints() -> None:
    made = Authority.make(NAMES)
    again = Authority.load(made.key_pem, made.certificate_pem)
    assert all(again.covers(host) for host in (*INSIDE, "wild.test", "a.api.example.com"))
    assert not any(again.covers(host) for host in ("example.com", "evilwild.test", "10.1.2.4", "fd00::8"))


def test_an_authority_without_constraints_speaks_for_any_host() -> None:
    made = Authority.make(None)
    again = Authority.load(made.key_pem, made.certificate_pem)
    assert again.names is None
    assert again.leaf("evil.test")
    with pytest.raises(x509.ExtensionNotFound):
        extension(certificate(made.certificate_pem), x509.NameConstraints)


def test_a_key_of_another_authority_is_refused() -> None:
    with pytest.raises(ValueError, match="not that of the certificate"):
        Authority.load(Authority.make(NAMES).key_pem, Authority.make(NAMES).certificate_pem)


# ---- a client


def greet(made: Authority, host: str, directory: Path) -> None:
    """A TLS handshake in memory, with a client that trusts this authority alone and is as strict as it can be."""
    key, chain = made.leaf(host)
    (directory / "key").write_bytes(key)
    (directory / "chain").write_bytes(chain)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "chain", directory / "key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=made.certificate_pem.decode())
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there, server_hostname=host)
    theirs = server.wrap_bio(there, back, server_side=True)
    for side in (ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert ours.version() == "TLSv1.3"


@pytest.mark.parametrize("host", INSIDE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_strict_client_takes_what_the_constraints_permit_and_nothing_else(
    kind: str, host: str, tmp_path: Path
) -> None:
    made = Authority.make(KINDS[kind])
    if made.covers(host):
        greet(made, host, tmp_path)
        return
    made.names = None  # as if its own refusal were got round
    with pytest.raises(ssl.SSLCertVerificationError, match="subtree violation"):
        greet(made, host, tmp_path)


@pytest.mark.parametrize("host", ["evil.test", "evilwild.test", "10.1.2.4", "fd00::8"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stolen_key_is_of_no_use_for_another_host(kind: str, host: str, tmp_path: Path) -> None:
    made = Authority.make(KINDS[kind])
    made.names = None
    with pytest.raises(ssl.SSLCertVerificationError, match="subtree violation"):
        greet(made, host, tmp_path)
