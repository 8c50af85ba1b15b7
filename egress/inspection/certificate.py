"""A certificate, put together: what each field and extension says, after RFC 5280.

The elliptic curve is P-256 everywhere: every client knows it, and a signature takes a tenth of a millisecond.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from egress.inspection.der import (
    bits,
    boolean,
    explicit,
    implicit,
    integer,
    moment,
    octets,
    oid,
    pem,
    sequence,
    set_of,
    utf8,
)
from egress.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from egress.names import Address

Key = ec.EllipticCurvePrivateKey

_SERIAL = 20  # bytes, the top bit of which is not used

_P256 = sequence(oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7"))
_ECDSA_SHA256 = sequence(oid("1.2.840.10045.4.3.2"))
_SERVER = oid("1.3.6.1.5.5.7.3.1")
_DNS, _IP = 2, 7  # the kinds of GeneralName
_SIGNS_CERTIFICATES, _SIGNS = bits(b"\x04", unused=2), bits(b"\x80", unused=7)
_EVERY_NAME = (implicit(_DNS, b""),)
_EVERY_ADDRESS = (implicit(_IP, bytes(8)), implicit(_IP, bytes(32)))


class Issuer(NamedTuple):
    """What a leaf repeats of its authority."""

    subject: bytes  # in DER
    key_id: bytes
    since: int  # seconds of the epoch
    until: int


def sign(key: Key, issuer: Issuer, subject: bytes, owner: Key, extensions: Iterable[bytes]) -> bytes:
    """A certificate, version 3 (RFC 5280, 4.1)."""
    body = sequence(
        explicit(0, integer(2)),
        integer(int.from_bytes(os.urandom(_SERIAL)) >> 1),
        _ECDSA_SHA256,
        issuer.subject,
        sequence(moment(issuer.since), moment(issuer.until)),
        subject,
        sequence(_P256, bits(_point(owner))),
        explicit(3, sequence(*extensions)),
    )
    return sequence(body, _ECDSA_SHA256, bits(key.sign(body, ec.ECDSA(hashes.SHA256()))))


def of_authority(issuer: Issuer, names: Iterable[str] | None) -> list[bytes]:
    always = [
        _extension("2.5.29.19", sequence(boolean(True), integer(0)), critical=True),  # it signs leaves only
        _extension("2.5.29.15", _SIGNS_CERTIFICATES, critical=True),
        _extension("2.5.29.14", octets(issuer.key_id)),
    ]
    return always if names is None else [*always, _extension("2.5.29.30", _constraints(names), critical=True)]


def of_leaf(issuer: Issuer, host: str) -> list[bytes]:
    address = _address(host)
    spelled = implicit(_DNS, host.encode("ascii")) if address is None else implicit(_IP, address.packed)
    return [
        _extension("2.5.29.19", sequence(), critical=True),
        _extension("2.5.29.15", _SIGNS, critical=True),
        _extension("2.5.29.37", sequence(_SERVER)),
        _extension("2.5.29.35", sequence(implicit(0, issuer.key_id))),
        _extension("2.5.29.17", sequence(spelled)),
    ]


def _extension(number: str, value: bytes, critical: bool = False) -> bytes:
    return sequence(oid(number), *([boolean(True)] if critical else []), octets(value))


def _constraints(names: Iterable[str]) -> bytes:
    """NameConstraints (RFC 5280, 4.2.1.10): each kind of name is permitted by value, or excluded whole."""
    hosts = dict.fromkeys(name.removeprefix("*.") for name in names)
    addresses = [address for host in hosts if (address := _address(host))]
    dns = [implicit(_DNS, host.encode("ascii")) for host in hosts if _address(host) is None]
    permitted = [*dns, *map(_network, addresses)]
    excluded = [*(() if dns else _EVERY_NAME), *(() if addresses else _EVERY_ADDRESS)]
    subtrees = ((0, permitted), (1, excluded))
    return sequence(*(explicit(number, *map(sequence, kinds)) for number, kinds in subtrees if kinds))


def _address(host: str) -> Address | None:
    """A canonical host is an address if it looks like one; so the parser is loaded only for those that do."""
    if ":" not in host and not host[-1:].isdigit():
        return None
    from egress.model import Host
    from egress.names import as_address

    return as_address(Host(host))


def _network(address: Address) -> bytes:
    """That address alone: itself, and a mask of ones."""
    return implicit(_IP, address.packed + b"\xff" * len(address.packed))


def name(organization: str, common: str = "") -> bytes:
    """A leaf has no common name: where there is no DNS name either, GnuTLS would hold it against the constraints."""
    parts = [("2.5.4.10", organization), ("2.5.4.3", common)]
    return sequence(*(set_of(sequence(oid(kind), utf8(text))) for kind, text in parts if text))


# ---- keys


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def key_id(key: Key) -> bytes:
    """160 bits of the digest of the public key (RFC 7093, 2)."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(_point(key))
    return digest.finalize()[:20]


def _point(key: Key) -> bytes:
    """The public key, uncompressed (RFC 5480, 2.2)."""
    numbers = key.public_key().public_numbers()
    return b"\x04" + numbers.x.to_bytes(32) + numbers.y.to_bytes(32)


def key_pem(key: Key) -> bytes:
    """PKCS #8 around the private key (RFC 5958, RFC 5915)."""
    value = key.private_numbers().private_value.to_bytes(32)
    inner = sequence(integer(1), octets(value), explicit(1, bits(_point(key))))
    return pem("PRIVATE KEY", sequence(integer(0), _P256, octets(inner)))
