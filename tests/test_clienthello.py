from __future__ import annotations

import shutil
import socket
import ssl
import subprocess

import hellos
import pytest
from hellos import alpn, ech, extension, hello, key_share, message, record, records, server_names, sni, vector
from wiredrive import STARVED, Outcome, Refusal, feed, however_cut, one_by_one, outcome, whole

from egress.limits import LIMITS
from egress.model import Host
from egress.names import parse_host
from egress.refusals import Reason, Refused
from egress.wire import clienthello
from egress.wire.clienthello import ClientHello

EARLY_DATA = record(b"early data", kind=23)
HOST = Host("allowed.test")


def read(data: bytes, trailing: bytes = EARLY_DATA) -> ClientHello:
    """The hello, however it is cut; the buffer must keep every byte."""
    value, sent, left = however_cut(clienthello.read, data, trailing)
    assert isinstance(value, ClientHello), value
    assert (sent, left) == (b"", data)
    return value


def refused(data: bytes) -> Refused:
    """The refusal, whose reason must not depend on the cut."""
    with pytest.raises(Refused) as caught:
        feed(clienthello.read(buffer := bytearray()), buffer, whole(data))
    expected = Refusal(caught.value.reason, caught.value.asked)
    assert however_cut(clienthello.read, data, b"x") == Outcome(expected, b"", b"")
    return caught.value


# What is read


@pytest.mark.parametrize(
    ("name", "protocols", "newest"),
    [
        ("allowed.test", (), None),
        ("allowed.test", ("h2", "http/1.1"), None),
        ("allowed.test", ("h2",), ssl.TLSVersion.TLSv1_2),
        ("a.very.deep.name.below.allowed.test", (), ssl.TLSVersion.TLSv1_2),
        (None, ("http/1.1",), None),
        (None, (), ssl.TLSVersion.TLSv1_2),
    ],
)
def test_hellos_of_openssl_are_read(
    name: str | None, protocols: tuple[str, ...], newest: ssl.TLSVersion | None
) -> None:
    data = hellos.openssl_hello(name, protocols, newest)
    assert read(data) == ClientHello(None if name is None else Host(name), False, protocols, len(data))


def test_the_name_is_canonical() -> None:
    assert read(hello(sni("ALLOWED.Test"))).name == "allowed.test"


def test_an_international_name_is_read_in_its_ascii_form() -> None:
    assert read(hello(sni("xn--bcher-kva.example"))).name == "xn--bcher-kva.example"


def test_the_size_ends_where_the_last_record_ends() -> None:
    data = records(message(sni("allowed.test")), 10)
    buffer = bytearray(data + EARLY_DATA)
    value, _ = feed(clienthello.read(buffer), buffer, [])
    assert buffer[value.size :] == EARLY_DATA


def test_a_name_far_behind_a_post_quantum_key_share_is_read() -> None:
    data = hello(extension(hellos.GREASE), key_share(1216), alpn(b"h2"), sni("allowed.test"))
    assert read(data) == ClientHello(HOST, False, ("h2",), len(data))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 40, 63, 64, 100])
def test_a_hello_may_be_spread_over_many_records(size: int) -> None:
    data = records(message(key_share(400), sni("allowed.test"), alpn(b"h2")), size)
    assert read(data) == ClientHello(HOST, False, ("h2",), len(data))


def test_a_post_quantum_hello_in_records_of_one_byte_is_read() -> None:
    data = records(message(key_share(1216), sni("allowed.test")), 1)
    assert read(data).name == HOST


def test_every_cut_in_two_gives_the_same_hello() -> None:
    data = records(message(sni("allowed.test"), alpn(b"h2")), 50)
    expected = outcome(clienthello.read, whole(data))
    for at in range(1, len(data)):
        assert outcome(clienthello.read, [data[:at], data[at:]]) == expected


def test_an_unfinished_hello_waits() -> None:
    data = records(message(sni("allowed.test")), 70)
    for size in range(len(data)):
        assert outcome(clienthello.read, whole(data[:size])).value == STARVED


def test_a_hello_up_to_the_limit_is_read_and_one_byte_more_is_not() -> None:
    bare = len(message(sni("allowed.test"), extension(21, b"")))
    overhead = 4 * 5  # of the four records that 64 KiB need
    padding = extension(21, bytes(LIMITS.client_hello - overhead - bare))
    data = records(message(sni("allowed.test"), padding))
    assert len(data) == LIMITS.client_hello
    assert read(data).size == LIMITS.client_hello
    longer = records(message(sni("allowed.test"), padding, alpn(b"h2")))
    assert refused(longer).reason is Reason.LIMIT


def test_the_limit_counts_the_headers_of_records() -> None:
    data = records(message(key_share(11000), sni("allowed.test")), 1)
    assert len(data) > LIMITS.client_hello
    assert refused(data).reason is Reason.LIMIT


def test_a_hello_too_long_is_refused_by_its_length_alone() -> None:
    assert refused(b"\x16\x03\x01\x02\x00\x01\x01\x00\x00").reason is Reason.LIMIT


def test_the_limit_is_the_callers() -> None:
    data = hello(sni("allowed.test"))
    for limit, accepted in ((len(data), True), (len(data) - 1, False), (9, False)):
        value = outcome(lambda buffer, limit=limit: clienthello.read(buffer, limit), one_by_one(data)).value
        assert (isinstance(value, ClientHello), value == Refusal(Reason.LIMIT, "")) == (accepted, not accepted)


def test_what_comes_behind_the_hello_does_not_count() -> None:
    data = hello(sni("allowed.test"))
    buffer = bytearray(data + bytes(2 * LIMITS.client_hello))
    assert feed(clienthello.read(buffer), buffer, [])[0].size == len(data)


@pytest.mark.parametrize("version", [b"\x03\x00", b"\x03\x01", b"\x03\x02", b"\x03\x03"])
def test_the_version_of_a_record_means_nothing(version: bytes) -> None:
    assert read(record(message(sni("allowed.test")), version=version)).name == HOST


@pytest.mark.parametrize("version", [b"\x03\x01", b"\x03\x02", b"\x03\x03"])
def test_every_version_of_tls_is_read(version: bytes) -> None:
    assert read(records(message(sni("allowed.test"), version=version))).name == HOST


@pytest.mark.parametrize("session", [b"", b"x", bytes(32)])
def test_a_session_id_of_any_lawful_length_is_read(session: bytes) -> None:
    assert read(records(message(sni("allowed.test"), session=session))).name == HOST


@pytest.mark.parametrize("block", [b"", vector(2, b"")])
def test_a_hello_without_extensions_names_no_server(block: bytes) -> None:
    assert read(records(message(block=block))).name is None


def test_the_shortest_hello_is_read() -> None:
    data = records(message(session=b"", ciphers=b"\x13\x01", block=b""))
    assert read(data) == ClientHello(None, False, (), len(data))


def test_grease_passes() -> None:
    exts = [extension(0x0A0A), sni("allowed.test"), alpn(b"\x0a\x0a", b"h2"), extension(0xFAFA, b"\x00")]
    value = read(records(message(*exts, ciphers=b"\x0a\x0a\x13\x01")))
    assert (value.name, value.alpn) == (HOST, ("\n\n", "h2"))


def test_ech_is_seen() -> None:
    value = read(hello(ech(), sni("allowed.test")))
    assert (value.name, value.ech) == (HOST, True)
    assert read(hello(ech(key=b""), sni("allowed.test"))).ech


# What is not TLS


@pytest.mark.parametrize(
    "banner",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n",
        b"EHLO a.test\r\n",
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
        b"\x05\x01\x00",
        b"\x00",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x14\x03\x03\x00\x01\x01",
        b"\x17\x03\x03\x00\x10",
        b"\x16\xfe\xff\x00\x00",
    ],
)
def test_what_is_not_tls_is_refused_at_once(banner: bytes) -> None:
    assert refused(banner).reason is Reason.NOT_TLS
    first_two = one_by_one(banner[:2])
    assert outcome(clienthello.read, first_two).value == Refusal(Reason.NOT_TLS, "")


def test_the_refusal_shows_what_came() -> None:
    assert "b'SSH-2.0-OpenSSH_'" in refused(b"SSH-2.0-OpenSSH_9.6\r\n").detail


@pytest.mark.parametrize(
    "start",
    [
        b"\x15",
        b"\x16\x02",
        b"\x16\x04",
        b"\x16\x03\x04",
        b"\x16\x03\xff",
        b"\x16\x03\x01\x41",
        b"\x16\x03\x01\xff",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x02\x00\x02",
        b"\x16\x03\x01\x02\x00\x00",
        b"\x16\x03\x01\x00\x2c\x01\x00\x00\x28",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfb",
    ],
)
def test_the_first_wrong_byte_is_enough(start: bytes) -> None:
    assert outcome(clienthello.read, one_by_one(start[:-1])).value == STARVED
    assert refused(start).reason is Reason.NOT_TLS


def middle(kind: int, content: bytes = b"\x01") -> bytes:
    """A hello in two records with another record between them."""
    whole_message = message(sni("allowed.test"))
    return record(whole_message[:50]) + record(content, kind) + record(whole_message[50:])


@pytest.mark.parametrize(
    "data",
    [
        middle(20),
        middle(21, b"\x01\x00"),
        middle(23),
        middle(22, b""),
        record(b""),
        record(message(sni("allowed.test")), kind=23),
        record(message(sni("allowed.test"), kind=2)),
        record(message(sni("allowed.test"), kind=0)),
        record(message(sni("allowed.test")) + b"\x00"),
        record(message(sni("allowed.test")) + message(sni("evil.test"))),
        record(message(sni("allowed.test"))[:60]) + record(message(sni("allowed.test"))[60:] + b"\x01"),
    ],
    ids=[
        "a ChangeCipherSpec inside",
        "an alert inside",
        "application data inside",
        "an empty record inside",
        "an empty record",
        "a hello in application data",
        "a ServerHello",
        "a HelloRequest",
        "a byte behind it in its record",
        "a second hello behind it in its record",
        "a byte behind it in its last record",
    ],
)
def test_records_must_hold_one_hello_and_nothing_else(data: bytes) -> None:
    assert refused(data).reason is Reason.NOT_TLS


@pytest.mark.parametrize(
    "content",
    [
        message(sni("allowed.test"), version=b"\x03\x00"),
        message(sni("allowed.test"), version=b"\x03\x04"),
        message(sni("allowed.test"), version=b"\x02\x00"),
        message(sni("allowed.test"), session=bytes(33)),
        message(sni("allowed.test"), ciphers=b""),
        message(sni("allowed.test"), ciphers=b"\x13\x01\x13"),
        message(sni("allowed.test"), compression=b""),
        message(block=vector(2, sni("allowed.test"), lie=1)),
        message(block=vector(2, sni("allowed.test"), lie=-1)),
        message(block=vector(2, sni("allowed.test")) + b"\x00"),
        message(block=b"\x00"),
        message(sni("allowed.test"), b"\x00"),
        message(sni("allowed.test"), b"\x00\x17\x00"),
        message(sni("allowed.test"), extension(23, b"", lie=1)),
        message(sni("allowed.test"), extension(23, b"x", lie=-1)),
        message(sni("allowed.test"), extension(23), extension(23)),
        message(sni("allowed.test"), sni("allowed.test")),
        message(sni("allowed.test"), extension(hellos.GREASE), extension(hellos.GREASE)),
        message(sni("allowed.test"), alpn()),
        message(sni("allowed.test"), alpn(b"h2", b"")),
        message(sni("allowed.test"), extension(hellos.ALPN)),
        message(sni("allowed.test"), extension(hellos.ALPN, b"\x00\x03\x03h2")),
        message(sni("allowed.test"), extension(hellos.ALPN, b"\x00\x03\x02h2\x00")),
        message(sni("allowed.test"), ech(kind=1)),
        message(sni("allowed.test"), ech(kind=2)),
        message(sni("allowed.test"), ech(payload=b"")),
        message(sni("allowed.test"), ech(behind=b"\x00")),
        message(sni("allowed.test"), extension(hellos.ECH)),
        message(sni("allowed.test"), extension(hellos.ECH, b"\x01")),
        message(sni("allowed.test"), extension(hellos.ECH, bytes(8))),
    ],
)
def test_a_malformed_hello_is_refused(content: bytes) -> None:
    assert refused(records(content)).reason is Reason.NOT_TLS


@pytest.mark.parametrize("lie", [-1, 1])
def test_the_length_of_the_message_must_fit_its_fields(lie: int) -> None:
    whole_message = message(sni("allowed.test"), lie=lie)
    assert refused(records(whole_message + bytes(max(0, lie)))).reason is Reason.NOT_TLS


def test_every_length_inside_a_hello_is_checked() -> None:
    """Wherever a length stands, one more or one less is refused: it is never the same hello again."""
    content = message(sni("allowed.test"), alpn(b"h2"), ech(), session=bytes(32))
    at_session = 4 + 2 + 32
    at_ciphers = at_session + 33
    at_compression = at_ciphers + 6
    at_block = at_compression + 2
    at_sni = at_block + 2
    at_alpn = at_sni + len(sni("allowed.test"))
    at_ech = at_alpn + len(alpn(b"h2"))
    lengths = [3, at_session, at_ciphers + 1, at_compression, at_block + 1]
    lengths += [at_sni + 3, at_sni + 5, at_sni + 8, at_alpn + 3, at_alpn + 5, at_alpn + 6, at_ech + 3]
    lengths += [at_ech + 11, at_ech + 45]
    for at in lengths:
        for lie in (-1, 1):
            changed = bytearray(content)
            changed[at] = (changed[at] + lie) % 256
            value = outcome(clienthello.read, whole(records(bytes(changed)) + bytes(9))).value
            assert isinstance(value, Refusal), (at, lie)


# Names that are refused


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b".",
        b"allowed.test.",
        b"allowed.test..",
        b".allowed.test",
        b"evil.test\x00.allowed.test",
        b"allowed.test\x00",
        b"\x00",
        b"127.0.0.1",
        b"192.0.2.1",
        b"::1",
        b"[::1]",
        b"127.1",
        b"0x7f.1",
        b"2130706433",
        b"allowed.test:443",
        b"user@allowed.test",
        b"*.allowed.test",
        b"a_b.test",
        b"allowed test",
        b"allowed.test\r\n",
        "bücher.example".encode(),
        b"b\xfccher.example",
        "ａllowed.test".encode(),
        b"xn--a.test",
        b"a" * 64 + b".test",
        b"a." * 127 + b"a",
    ],
)
def test_a_malformed_name_is_refused_and_kept_for_the_record(name: bytes) -> None:
    refusal = refused(hello(sni(name)))
    assert (refusal.reason, refusal.asked) == (Reason.BAD_SNI, name.decode("latin-1")[:253])


def test_a_huge_name_is_refused_and_recorded_in_part() -> None:
    refusal = refused(hello(sni(b"a" * 5000)))
    assert (refusal.reason, refusal.asked) == (Reason.BAD_SNI, "a" * 253)
    assert len(refusal.detail) < 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        vector(2, b""),
        vector(2, b"\x00"),
        vector(2, b"\x00\x00"),
        server_names((0, b"allowed.test"), (0, b"evil.test")),
        server_names((0, b"allowed.test"), (0, b"allowed.test")),
        server_names((0, b"allowed.test"), (1, b"evil.test")),
        server_names((1, b"evil.test"), (0, b"allowed.test")),
        server_names((1, b"allowed.test")),
        server_names((255, b"allowed.test")),
        server_names((0, b"allowed.test"), lie=1),
        server_names((0, b"allowed.test"), lie=-1),
        server_names((0, b"allowed.test")) + b"\x00",
        vector(2, b"\x00" + vector(2, b"allowed.test", lie=1)),
        vector(2, b"\x00" + vector(2, b"allowed.test", lie=-1)),
        vector(2, b"\x00" + vector(2, b"allowed.test") + b"\x00"),
    ],
)
def test_a_server_name_list_that_is_not_one_host_name_is_refused(content: bytes) -> None:
    assert refused(hello(extension(hellos.SERVER_NAME, content))).reason is Reason.BAD_SNI


@pytest.mark.parametrize("kind", [0xFFCE, 0xFE08, 0xFE09, 0xFE0A, 0xFE0B, 0xFE0C])
def test_encrypted_names_of_abandoned_drafts_are_refused(kind: int) -> None:
    assert refused(hello(sni("allowed.test"), extension(kind, b"x"))).reason is Reason.ECH


# Whether it is the right name


def verdict(hello: ClientHello, host: str) -> Reason | None:
    try:
        clienthello.verify(hello, parse_host(host))
    except Refused as refusal:
        return refusal.reason
    return None


def said(name: str | None, ech: bool = False) -> ClientHello:
    return ClientHello(None if name is None else parse_host(name), ech, (), 0)


@pytest.mark.parametrize(
    ("hello", "host", "reason"),
    [
        (said("allowed.test"), "allowed.test", None),
        (said("ALLOWED.test"), "allowed.test.", None),
        (said("evil.test"), "allowed.test", Reason.SNI_MISMATCH),
        (said("a.allowed.test"), "allowed.test", Reason.SNI_MISMATCH),
        (said("allowed.test"), "a.allowed.test", Reason.SNI_MISMATCH),
        (said("allowed.test.evil.test"), "allowed.test", Reason.SNI_MISMATCH),
        (said(None), "allowed.test", Reason.NO_SNI),
        (said("allowed.test", ech=True), "allowed.test", None),
        (said("public.test", ech=True), "allowed.test", Reason.ECH),
        (said(None, ech=True), "allowed.test", Reason.ECH),
        (said(None), "192.0.2.1", None),
        (said(None), "2001:db8::1", None),
        (said(None, ech=True), "192.0.2.1", None),
        (said("allowed.test"), "192.0.2.1", Reason.SNI_MISMATCH),
        (said("allowed.test"), "::1", Reason.SNI_MISMATCH),
        (said("public.test", ech=True), "192.0.2.1", Reason.ECH),
    ],
)
def test_the_hello_must_name_the_host(hello: ClientHello, host: str, reason: Reason | None) -> None:
    assert verdict(hello, host) is reason


def test_a_mismatch_says_both_names() -> None:
    with pytest.raises(Refused) as caught:
        clienthello.verify(said("evil.test"), HOST)
    assert "'evil.test'" in caught.value.detail
    assert "'allowed.test'" in caught.value.detail


# The alert


def test_the_alert_is_understood_by_openssl() -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = hellos.client_context().wrap_bio(incoming, outgoing, server_hostname="allowed.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    incoming.write(clienthello.ALERT_ACCESS_DENIED)
    with pytest.raises(ssl.SSLError, match=r"(?i)access.denied"):
        client.do_handshake()


@pytest.mark.scenario
@pytest.mark.parametrize(
    ("command", "expected", "complaint"),
    [
        (
            ["curl", "-sS", "--noproxy", "*", "--connect-to", "::127.0.0.1:{}", "https://allowed.test/"],
            ("h2", "http/1.1"),
            "access denied",
        ),
        (
            ["curl", "-sS", "--noproxy", "*", "--no-alpn", "--connect-to", "::127.0.0.1:{}", "https://allowed.test/"],
            (),
            "access denied",
        ),
        (["openssl", "s_client", "-connect", "127.0.0.1:{}", "-servername", "allowed.test"], (), "access denied"),
        (
            ["openssl", "s_client", "-connect", "127.0.0.1:{}", "-servername", "allowed.test", "-tls1_2", "-alpn", "x"],
            ("x",),
            "access denied",
        ),
    ],
    ids=["curl", "curl without ALPN", "openssl", "openssl with TLS 1.2"],
)
def test_real_clients_are_read_and_told(command: list[str], expected: tuple[str, ...], complaint: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [word.format(listener.getsockname()[1]) for word in command]
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as client:
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(10)
                value = hello_from(accepted)
                accepted.sendall(clienthello.ALERT_ACCESS_DENIED)
            _, said = client.communicate(timeout=10)
    assert (value.name, value.ech, value.alpn) == (HOST, False, expected)
    assert client.returncode != 0
    assert complaint in said.lower()


def hello_from(client: socket.socket) -> ClientHello:
    buffer = bytearray()
    value, _ = feed(clienthello.read(buffer), buffer, iter(lambda: client.recv(100), b""))
    assert value.size == len(buffer)
    return value
