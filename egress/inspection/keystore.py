"""A trust store as Java reads it: JKS, which every Java since 1.2 knows by its first bytes.

    magic, version, count
    for each     2 (a trusted certificate), its alias, when it came, "X.509", its length and DER
    a digest     SHA-1 of a password, a phrase and all of the above

Numbers are big-endian, and texts are UTF-8 behind a length of two bytes. PKCS #12, which Java writes today,
would have to be encrypted to be read without a password by the older ones. Nothing here is secret, and Java is
given no password: then it does not look at the digest. Who lists the store with `keytool` gives the usual one.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack

from cryptography.hazmat.primitives import hashes

PASSWORD = "changeit"  # noqa: S105  # as that of every trust store since Java has them
_MAGIC, _VERSION = 0xFEEDFEED, 2
_TRUSTED = 2
_PHRASE = b"Mighty Aphrodite"


def keystore(certificates: Iterable[bytes], ours: bytes, made: float) -> bytes:
    """A store of these certificates in DER and of our own; `made` is the time that it shows for all of them."""
    when = int(made * 1000)
    aliased = [("egress", ours), *((f"root-{number}", each) for number, each in enumerate(certificates, 1))]
    head = pack(">III", _MAGIC, _VERSION, len(aliased))
    body = b"".join((head, *(_entry(alias, certificate, when) for alias, certificate in aliased)))
    return body + _digest(body)


def _entry(alias: str, certificate: bytes, when: int) -> bytes:
    name = _text(alias) + pack(">Q", when) + _text("X.509")
    return pack(">I", _TRUSTED) + name + pack(">I", len(certificate)) + certificate


def _text(text: str) -> bytes:
    return pack(">H", len(text)) + text.encode("ascii")


def _digest(body: bytes) -> bytes:
    digest = hashes.Hash(hashes.SHA1())  # noqa: S303  # the format's; it guards against accidents
    digest.update(PASSWORD.encode("utf-16-be") + _PHRASE + body)
    return digest.finalize()
