"""ClientHellos: made by hand, field by field and with any of them wrong, and made by OpenSSL."""

from __future__ import annotations

import contextlib
import ssl

GREASE = 0x1A1A
KEY_SHARE, ALPN, SERVER_NAME, ECH = 51, 16, 0, 0xFE0D


def vector(width: int, content: bytes, lie: int = 0) -> bytes:
    """A length and its content; `lie` makes the length wrong by so much."""
    return ((len(content) + lie) % 256**width).to_bytes(width, "big") + content


def extension(kind: int, content: bytes = b"", lie: int = 0) -> bytes:
    return kind.to_bytes(2, "big") + vector(2, content, lie)


def server_names(*names: tuple[int, bytes], lie: int = 0) -> bytes:
    """The content of a server_name extension."""
    return vector(2, b"".join(bytes([kind]) + vector(2, name) for kind, name in names), lie)


def sni(name: bytes | str, kind: int = 0) -> bytes:
    return extension(SERVER_NAME, server_names((kind, name.encode() if isinstance(name, str) else name)))


def alpn(*names: bytes) -> bytes:
    return extension(ALPN, vector(2, b"".join(vector(1, name) for name in names)))


def ech(kind: int = 0, key: bytes = bytes(32), payload: bytes = bytes(128), behind: bytes = b"") -> bytes:
    return extension(ECH, bytes([kind, 0, 1, 0, 1, 7]) + vector(2, key) + vector(2, payload) + behind)


def key_share(size: int) -> bytes:
    """A share of that many bytes; 1216 is X25519MLKEM768."""
    return extension(KEY_SHARE, vector(2, (0x11EC).to_bytes(2, "big") + vector(2, bytes(size))))


def message(
    *extensions: bytes,
    version: bytes = b"\x03\x03",
    session: bytes = bytes(32),
    ciphers: bytes = b"\x13\x01\x13\x02",
    compression: bytes = b"\x00",
    block: bytes | None = None,
    kind: int = 1,
    lie: int = 0,
) -> bytes:
    """The handshake message. `block` replaces the extensions with their length."""
    block = vector(2, b"".join(extensions)) if block is None else block
    body = version + bytes(range(32)) + vector(1, session) + vector(2, ciphers) + vector(1, compression) + block
    return bytes([kind]) + vector(3, body, lie)


def record(content: bytes, kind: int = 22, version: bytes = b"\x03\x01") -> bytes:
    return bytes([kind]) + version + vector(2, content)


def records(content: bytes, size: int = 1 << 14) -> bytes:
    return b"".join(record(content[at : at + size]) for at in range(0, len(content), size))


def hello(*extensions: bytes) -> bytes:
    return records(message(*extensions))


def client_context(protocols: tuple[str, ...] = (), newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if newest:
        context.maximum_version = newest
    return context


def openssl_hello(name: str | None, protocols: tuple[str, ...] = (), newest: ssl.TLSVersion | None = None) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = client_context(protocols, newest).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
