"""The authority of one session, and the certificates that it signs for the hosts that are inspected.

Whoever trusts it lets it speak for any host, so it is bound as X.509 can bind it: it says in itself, as a
critical name constraint, which hosts it may speak for; it is valid for a day; and its key is only ever in
memory. A constraint covers a name with all below it, so `example.com` and `*.example.com` both read
`example.com` there. What a rule means exactly is held here: for a host that no name covers there is no leaf.
Names of the kinds that were not asked for are excluded: without a word about addresses, all of them would be
permitted.

The authority that a user keeps (`egress ca`) outlives the policies that it serves, so it has no constraints.

A leaf has the authority's own validity: none that was handed out can expire before its issuer. All leaves
share one key: it is no less safe than the authority's, which is beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import lru_cache

from egress.inspection.certificate import Issuer, Key, key_id, key_pem, name, new_key, of_authority, of_leaf, sign
from egress.inspection.der import pem
from egress.record import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

    from cryptography.x509 import Certificate

DAY = 24 * 3600
_SKEW = 3600  # clocks differ, and that of a machine just restored is late
_MOST_LEAVES = 512  # below a wildcard there is no end of names


class NotCovered(ValueError):
    """This authority does not speak for that host."""


class Authority:
    """Names are hosts or `*.hosts`, as rules write them; None: any."""

    def __init__(self, key: Key, certificate: bytes, issuer: Issuer, names: Sequence[str] | None) -> None:
        self._key, self._issuer = key, issuer
        self._leaf_key = new_key()
        self.names = None if names is None else tuple(names)
        self.certificate_pem = pem("CERTIFICATE", certificate)
        self._chains = lru_cache(_MOST_LEAVES)(self._chain)

    @classmethod
    def make(cls, names: Sequence[str] | None, lifetime: int = DAY, title: str = "egress session CA") -> Self:
        """A new one for these names only, of this many seconds."""
        if names is not None and not names:
            raise ValueError("an authority for no host: expected at least one name")
        key, now = new_key(), int(time.time())
        subject = name("egress", f"{title} {os.urandom(4).hex()}")  # in a store of many, each has its own
        issuer = Issuer(subject, key_id(key), now - _SKEW, now + lifetime)
        return cls(key, sign(key, issuer, subject, key, of_authority(issuer, names)), issuer, names)

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes, names: Sequence[str] | None = None) -> Self:
        """One that was made before. Where its names are not given, they are what its certificate constrains it to."""
        from cryptography import x509  # see `der`: only where nobody waits
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        key, certificate = load_pem_private_key(key_pem, None), x509.load_pem_x509_certificate(certificate_pem)
        if not isinstance(key, Key) or key.public_key() != certificate.public_key():
            raise ValueError("the key is not that of the certificate, or not of an elliptic curve")
        times = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        since, until = (int(each.timestamp()) for each in times)
        issuer = Issuer(certificate.subject.public_bytes(), key_id(key), since, until)
        return cls(key, certificate.public_bytes(Encoding.DER), issuer, names or _constrained_to(certificate))

    @property
    def key_pem(self) -> bytes:
        return key_pem(self._key)

    @property
    def until(self) -> int:
        """When it expires, in seconds of the epoch."""
        return self._issuer.until

    def covers(self, host: str) -> bool:
        return self.names is None or any(_covers(pattern, host) for pattern in self.names)

    def leaf(self, host: str) -> tuple[bytes, bytes]:
        """The key and the certificate for a canonical host, both PEM; the authority's own follows the latter."""
        if not self.covers(host):
            raise NotCovered(f"{host!r} is none of the hosts that this authority is for")
        return key_pem(self._leaf_key), self._chains(host)

    def _chain(self, host: str) -> bytes:
        extensions = of_leaf(self._issuer, host)
        certificate = sign(self._key, self._issuer, name("inspected by egress"), self._leaf_key, extensions)
        return pem("CERTIFICATE", certificate) + self.certificate_pem


def _covers(pattern: str, host: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _constrained_to(certificate: Certificate) -> tuple[str, ...] | None:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return None
    permitted = found.permitted_subtrees or []
    hosts = [each.value for each in permitted if isinstance(each, x509.DNSName)]
    networks = [each.value for each in permitted if isinstance(each, x509.IPAddress)]
    return (*hosts, *(f"*.{host}" for host in hosts), *(str(each).partition("/")[0] for each in networks))
