"""What a refused client is told, byte for byte where its protocol is binary."""

from __future__ import annotations

import struct

import pytest

from egress.refusals import Reason, Refused
from egress.wire import answers


@pytest.mark.parametrize("host", ["a.test", "ab.test", "abc.test", "abcdefgh.test"])
def test_an_ssh_client_gets_a_version_and_a_disconnect_with_words(host: str) -> None:
    said = answers.ssh(Refused(Reason.NOT_LISTED), f"{host}:22", "p")
    version, _, packet = said.partition(b"\r\n")
    assert version == b"SSH-2.0-egress"
    length, padding = struct.unpack_from("!IB", packet)
    assert len(packet) == 4 + length
    assert len(packet) % 8 == 0
    assert 4 <= padding < 12
    kind, reason, size = struct.unpack_from("!BII", packet, 5)
    words = packet[14 : 14 + size].decode()
    assert (kind, reason) == (1, 1)  # SSH_MSG_DISCONNECT, SSH_DISCONNECT_HOST_NOT_ALLOWED_TO_CONNECT
    assert words.startswith(f"egress: blocked: {host}:22 is not on the allowlist of persona p\negress: reason: ")
    assert packet[14 + size :] == bytes(4 + padding)  # no language
