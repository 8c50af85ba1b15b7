"""The authorities that programs inside trust: the system's, the user's own, and ours.

A command waits for this, so certificates are cut out of their files as text and not understood: two hundred of
them in a millisecond. Only certificates are taken. Whatever else a user's file holds beside them, such as a
private key, stays on the host.
"""

from __future__ import annotations

import os
import stat
from binascii import Error, a2b_base64
from collections.abc import Iterable, Iterator, Mapping

from egress.inspection.der import pem
from egress.rootfiles import BUNDLES

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_MOST = 8 << 20  # bytes of one file


def certificates(*files: bytes) -> tuple[bytes, ...]:
    """All certificates of PEM files, in DER: each once, in their order."""
    return tuple(dict.fromkeys(found for file in files for found in _cut(file)))


def bundle(certificates: Iterable[bytes], ours: bytes) -> bytes:
    """One PEM file. `ours` is PEM already, and stands first: it is what most chains inside will need."""
    return b"".join((ours, *(pem("CERTIFICATE", each) for each in certificates)))


def roots(environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """What is trusted on this host: the distribution's authorities, and those of SSL_CERT_FILE."""
    distribution = next(filter(None, map(_read, BUNDLES)), b"")
    return certificates(distribution, _read(environ.get("SSL_CERT_FILE", "")))


def _cut(file: bytes) -> Iterator[bytes]:
    for part in file.split(_BEGIN)[1:]:
        text, end, _ = part.partition(_END)
        try:
            if end and (found := a2b_base64(text)):
                yield found
        except Error:  # not PEM after all; a program that reads the file by itself skips or refuses it too
            continue


def _read(path: str) -> bytes:
    """A file, or nothing: which it is, every program on the host finds out for itself as well."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            return file.read(_MOST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
