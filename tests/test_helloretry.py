from __future__ import annotations

import contextlib
import ssl

import hellos
import pytest
import trustme
from hellos import hello, message, record, records, sni
from wiredrive import STARVED, Refusal, feed, however_cut, one_by_one, outcome, whole

from egress.limits import LIMITS
from egress.refusals import Reason
from egress.wire import clienthello, helloretry
from egress.wire.clienthello import ClientHello

RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
CHANGE = record(b"\x01", kind=20, version=b"\x03\x03")
EARLY = record(bytes(500), kind=23, version=b"\x03\x03")


def server_hello(random: bytes, kind: int = 2) -> bytes:
    body = b"\x03\x03" + random + b"\x00" + b"\x13\x01" + b"\x00"
    return record(bytes([kind]) + hellos.vector(3, body))


class Dialogue:
    """A client and a server of OpenSSL that do not agree on a key share at first."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.names: list[str | None] = []
        self.to_client, self.to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.from_client, self.from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("allowed.test").configure_cert(server)
        server.set_ecdh_curve("secp384r1")
        server.sni_callback = lambda _sock, name, _context: self.names.append(name)
        self.server = server.wrap_bio(self.to_server, self.from_server, server_side=True)
        self.client = hellos.client_context().wrap_bio(self.to_client, self.from_client, server_hostname="allowed.test")

    def client_says(self, heard: bytes = b"") -> bytes:
        self.to_client.write(heard)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.client.do_handshake()
        return self.from_client.read()

    def server_says(self, heard: bytes) -> bytes:
        self.to_server.write(heard)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.server.do_handshake()
        return self.from_server.read()


def test_a_retry_of_openssl_is_seen_and_its_second_hello_read() -> None:
    dialogue = Dialogue()
    answer = dialogue.server_says(dialogue.client_says())
    assert however_cut(helloretry.is_retry, answer).value is True
    second = dialogue.client_says(answer)
    value = however_cut(helloretry.read, second, b"\x17").value
    assert value == ClientHello("allowed.test", False, (), len(second))
    answer = dialogue.server_says(second)
    assert however_cut(helloretry.is_retry, answer).value is False


def test_a_server_goes_by_the_second_name_which_is_why_it_is_read() -> None:
    dialogue = Dialogue()
    second = dialogue.client_says(dialogue.server_says(dialogue.client_says()))
    forged = second.replace(b"allowed.test", b"evilest.test")
    assert dialogue.server_says(forged)
    assert dialogue.names == ["allowed.test", "evilest.test"]
    value = outcome(helloretry.read, whole(forged)).value
    assert isinstance(value, ClientHello)
    assert value.name == "evilest.test"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (server_hello(RETRY), True),
        (server_hello(bytes(32)), False),
        (server_hello(RETRY[:-1] + b"\x00"), False),
        (server_hello(RETRY, kind=1), False),
        (clienthello.ALERT_ACCESS_DENIED, False),
        (b"\x15", False),
        (b"HTTP/1.1 400 Bad Request", False),
    ],
)
def test_only_the_random_of_the_rfc_makes_a_retry(answer: bytes, expected: bool) -> None:
    value, sent, left = outcome(helloretry.is_retry, one_by_one(answer))
    assert (value, sent, left) == (expected, b"", answer)


def test_an_unfinished_answer_waits() -> None:
    answer = server_hello(RETRY)
    assert outcome(helloretry.is_retry, []).value == STARVED
    assert outcome(helloretry.is_retry, whole(answer[:42])).value == STARVED


@pytest.mark.parametrize("before", [b"", CHANGE, EARLY, EARLY + CHANGE, CHANGE + EARLY * 3])
def test_what_may_stand_before_the_second_hello_is_skipped(before: bytes) -> None:
    data = before + records(message(sni("allowed.test")), 100)
    value, _, left = however_cut(helloretry.read, data, EARLY)
    assert value == ClientHello("allowed.test", False, (), len(data))
    assert left == data


def test_an_unfinished_second_hello_waits() -> None:
    data = CHANGE + hello(sni("allowed.test"))
    for size in range(len(data)):
        assert outcome(helloretry.read, whole(data[:size])).value == STARVED


@pytest.mark.parametrize("data", [b"\x15\x03\x03\x00\x02\x02\x28", CHANGE + b"GET", record(message(kind=2))])
def test_what_is_no_second_hello_is_refused(data: bytes) -> None:
    assert however_cut(helloretry.read, data).value == Refusal(Reason.NOT_TLS, "")


def test_what_stands_before_it_counts_towards_the_limit() -> None:
    endless = EARLY * (LIMITS.client_hello // len(EARLY) + 1)
    assert however_cut(helloretry.read, endless).value == Refusal(Reason.LIMIT, "")
    near = EARLY * (LIMITS.client_hello // len(EARLY)) + hello(sni("allowed.test"), hellos.key_share(1000))
    assert however_cut(helloretry.read, near).value == Refusal(Reason.LIMIT, "")


def test_the_buffer_is_left_as_it_is() -> None:
    data = CHANGE + hello(sni("allowed.test"))
    buffer = bytearray(data)
    value, _ = feed(helloretry.read(buffer), buffer, [])
    assert buffer[: value.size] == data
