from __future__ import annotations

import pytest

from egress.wire.sniff import Protocol, protocol


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b"CONNECT a:1", b"get /", b"M-SEARCH *", b"PRI * HTTP/2.0", b"*"])
def test_a_method_is_http(line: bytes) -> None:
    assert protocol(line[0]) is Protocol.HTTP


def test_versions_of_socks_are_told_apart() -> None:
    assert protocol(0x05) is Protocol.SOCKS5
    assert protocol(0x04) is Protocol.SOCKS4


def test_a_handshake_record_is_tls() -> None:
    assert protocol(0x16) is Protocol.TLS


@pytest.mark.parametrize("first", [0x00, 0x0A, 0x0D, 0x14, 0x15, 0x17, 0x20, 0x22, 0x28, 0x2F, 0x3A, 0x7F, 0x80, 0xFF])
def test_anything_else_is_other(first: int) -> None:
    assert protocol(first) is Protocol.OTHER


def test_exactly_the_77_characters_of_a_token_are_http() -> None:
    found = [first for first in range(256) if protocol(first) is Protocol.HTTP]
    assert len(found) == 26 + 26 + 10 + 15
    assert not any(chr(first) in '"(),/:;<=>?@[\\]{} ' or first < 0x21 or first > 0x7E for first in found)
