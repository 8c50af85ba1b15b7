from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wiredrive import FUZZ, STARVED, Outcome, Refusal, Starved, cuttings, feed, however_cut, one_by_one, outcome, whole

from egress.model import Target
from egress.refusals import TABLE, Reason, Refused
from egress.wire import socks5
from egress.wire.handshake import Handshake
from egress.wire.socks5 import Credentials, Rejected

LOGIN = b"\x01\x05alice\x06secret"


def with_password(buffer: bytearray) -> Handshake[Credentials | None]:
    return socks5.greeting(buffer, password=True)


def without_password(buffer: bytearray) -> Handshake[Credentials | None]:
    return socks5.greeting(buffer, password=False)


def ask(kind: int, address: bytes, port: int = 443, command: int = 1, version: int = 5, reserved: int = 0) -> bytes:
    return bytes((version, command, reserved, kind)) + address + port.to_bytes(2, "big")


def ask_name(name: bytes, port: int = 443) -> bytes:
    return ask(3, bytes((len(name),)) + name, port)


def rejection(handshake: Handshake[object], data: bytes, buffer: bytearray) -> Rejected:
    with pytest.raises(Rejected) as caught:
        feed(handshake, buffer, [data])
    return caught.value


def greeting_rejected(data: bytes, password: bool = False) -> Rejected:
    buffer = bytearray()
    return rejection(socks5.greeting(buffer, password), data, buffer)


def request_rejected(data: bytes) -> Rejected:
    buffer = bytearray()
    return rejection(socks5.request(buffer), data, buffer)


# The greeting


@pytest.mark.parametrize("methods", [b"\x00", b"\x00\x02", b"\x02\x01\x00", bytes(255)])
def test_an_open_gate_picks_no_authentication(methods: bytes) -> None:
    data = bytes((5, len(methods))) + methods
    assert however_cut(without_password, data, b"\x05\x01") == Outcome(None, b"\x05\x00", b"")


def test_an_open_gate_accepts_any_password_from_a_client_that_insists() -> None:
    data = b"\x05\x01\x02" + LOGIN
    assert however_cut(without_password, data, b"\x05\x01") == Outcome(None, b"\x05\x02" + socks5.AUTH_OK, b"")


@pytest.mark.parametrize("login", [b"\x01\x00\x00", b"\x01\x01a\x00", b"\x01\x02\xff\xfe\x01\x80"])
def test_an_open_gate_does_not_look_at_what_it_does_not_ask_for(login: bytes) -> None:
    assert outcome(without_password, [b"\x05\x01\x02", login]).sent == b"\x05\x02" + socks5.AUTH_OK


@pytest.mark.parametrize("methods", [b"\x02", b"\x00\x02", b"\x00\x01\x02"])
def test_a_gate_with_passwords_reads_them_and_leaves_the_status_to_the_gate(methods: bytes) -> None:
    data = bytes((5, len(methods))) + methods + LOGIN
    expected = Outcome(Credentials("alice", "secret"), b"\x05\x02", b"")
    assert however_cut(with_password, data, b"\x05\x01\x00") == expected


def test_credentials_are_utf8() -> None:
    user, password = "älice".encode(), "пароль".encode()
    login = bytes((1, len(user))) + user + bytes((len(password),)) + password
    assert outcome(with_password, [b"\x05\x01\x02", login]).value == Credentials("älice", "пароль")


def test_empty_credentials_are_read_for_the_gate_to_find_wrong() -> None:
    assert outcome(with_password, [b"\x05\x01\x02\x01\x00\x00"]).value == Credentials("", "")


def test_the_longest_credentials_are_read() -> None:
    login = b"\x01\xff" + b"u" * 255 + b"\xff" + b"p" * 255
    assert outcome(with_password, [b"\x05\x01\x02", login]).value == Credentials("u" * 255, "p" * 255)


def test_credentials_do_not_show_their_password() -> None:
    assert "secret" not in f"{Credentials('alice', 'secret')!r} {Credentials('alice', 'secret')}"


@pytest.mark.parametrize("login", [b"\x01\x01\xff\x01p", b"\x01\x01u\x02\xc3\x28"])
def test_credentials_that_are_not_utf8_fail(login: bytes) -> None:
    refused = greeting_rejected(b"\x05\x01\x02" + login, password=True)
    assert (refused.reason, refused.answer) == (Reason.CREDENTIALS, socks5.AUTH_FAILED)


@pytest.mark.parametrize("password", [True, False])
def test_another_version_of_the_password_message_fails(password: bool) -> None:
    refused = greeting_rejected(b"\x05\x01\x02\x05\x05alice\x06secret", password)
    assert (refused.reason, refused.answer) == (Reason.MALFORMED_REQUEST, socks5.AUTH_FAILED)


@pytest.mark.parametrize(
    ("methods", "password", "reason"),
    [
        (b"", False, Reason.UNSUPPORTED),
        (b"", True, Reason.CREDENTIALS),
        (b"\x00", True, Reason.CREDENTIALS),
        (b"\x00\x01\x03\x80\xff", True, Reason.CREDENTIALS),
        (b"\x01", False, Reason.UNSUPPORTED),
        (b"\x01\x03\xff", False, Reason.UNSUPPORTED),
    ],
)
def test_no_method_in_common_is_said(methods: bytes, password: bool, reason: Reason) -> None:
    refused = greeting_rejected(bytes((5, len(methods))) + methods, password)
    assert (refused.reason, refused.answer) == (reason, b"\x05\xff")


@pytest.mark.parametrize("version", [0, 4, 6, 0x47])
def test_another_version_of_the_greeting_is_refused(version: int) -> None:
    refused = greeting_rejected(bytes((version, 1, 0)))
    assert (refused.reason, refused.answer) == (Reason.MALFORMED_REQUEST, socks5.NO_METHOD)


@pytest.mark.parametrize("start", [with_password, without_password])
def test_an_unfinished_greeting_waits(start: Callable[[bytearray], Handshake[object]]) -> None:
    data = b"\x05\x01\x02" + LOGIN
    for size in range(len(data)):
        assert outcome(start, one_by_one(data[:size])).value == STARVED


def test_the_method_is_said_before_the_password_is_awaited() -> None:
    buffer = bytearray()
    handshake = with_password(buffer)
    assert next(handshake) == b""
    buffer += b"\x05\x01\x02"
    assert next(handshake) == b"\x05\x02"
    assert next(handshake) == b""


# The request


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (ask_name(b"example.com"), ("example.com", 443)),
        (ask_name(b"EXAMPLE.com."), ("example.com", 443)),
        (ask_name(b"a", 1), ("a", 1)),
        (ask_name(b"xn--bcher-kva.example", 65535), ("xn--bcher-kva.example", 65535)),
        (ask_name(b".".join([b"a" * 63] * 3) + b"." + b"b" * 61), (".".join(["a" * 63] * 3) + "." + "b" * 61, 443)),
        (ask(1, bytes((192, 0, 2, 1)), 80), ("192.0.2.1", 80)),
        (ask(1, bytes(4)), ("0.0.0.0", 443)),
        (ask(4, ip_address("2001:db8::1").packed), ("2001:db8::1", 443)),
        (ask(4, ip_address("::1").packed), ("::1", 443)),
    ],
)
def test_a_request_names_its_target(data: bytes, target: tuple[str, int]) -> None:
    assert however_cut(socks5.request, data, b"\x16\x03\x01") == Outcome(Target(*target), b"", b"")


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "::1", "2001:db8::1", "::ffff:127.0.0.1", "fd00:ec2::254"]
)
def test_an_address_is_the_same_target_in_text_and_in_binary(address: str) -> None:
    packed = ip_address(address).packed
    binary = outcome(socks5.request, [ask(1 if len(packed) == 4 else 4, packed)])
    text = outcome(socks5.request, [ask_name(address.encode())])
    assert binary == text
    assert isinstance(binary.value, Target)


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b".",
        b"evil.test\x00.allowed.test",
        b"allowed.test..",
        b"[allowed.test]",
        b"[::1]",
        b"127.1",
        b"0177.0.0.1",
        b"0x7f.1",
        b"2130706433",
        b"fe80::1%eth0",
        b"user@allowed.test",
        b"allowed.test:443",
        b"allowed.test/path",
        b"allowed%2etest",
        b"allowed.test ",
        b" allowed.test",
        b"allowed.test\r\n",
        b"a_b.test",
        b"-a.test",
        b"*.allowed.test",
        "bücher.example".encode(),
        b"b\xfccher.example",
        "ａllowed.test".encode(),
        "allowed。test".encode(),
        b"xn--a.test",
        b"a" * 64 + b".test",
        b"a." * 127 + b"a",
        b"\xff" * 255,
    ],
)
def test_a_malformed_name_is_refused_and_kept_for_the_record(name: bytes) -> None:
    refused = request_rejected(ask_name(name))
    assert (refused.reason, refused.asked) == (Reason.MALFORMED_HOST, name.decode("latin-1"))
    assert refused.answer == socks5.reply(0x01)
    assert however_cut(socks5.request, ask_name(name), b"x").value == Refusal(refused.reason, refused.asked)


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (ask_name(b"example.com", 0), "example.com:0"),
        (ask(1, bytes((192, 0, 2, 1)), 0), "192.0.2.1:0"),
        (ask(4, ip_address("::1").packed, 0), "[::1]:0"),
    ],
)
def test_port_zero_is_refused(data: bytes, asked: str) -> None:
    refused = request_rejected(data)
    assert (refused.reason, refused.asked) == (Reason.MALFORMED_HOST, asked)


@pytest.mark.parametrize(
    ("command", "word"), [(2, "BIND"), (3, "UDP ASSOCIATE"), (0, "0x00"), (4, "0x04"), (0xFF, "0xff")]
)
def test_only_connect_is_served(command: int, word: str) -> None:
    refused = request_rejected(ask(1, bytes(4), 0, command))
    assert (refused.reason, refused.answer) == (Reason.UNSUPPORTED, socks5.reply(0x07))
    assert word in refused.detail


@pytest.mark.parametrize("kind", [0, 2, 5, 0x80, 0xFF])
def test_an_unknown_address_type_has_its_own_reply(kind: int) -> None:
    refused = request_rejected(ask(kind, bytes(4)))
    assert (refused.reason, refused.answer) == (Reason.UNSUPPORTED, socks5.reply(0x08))


@pytest.mark.parametrize(
    "data", [ask(1, bytes(4), version=4), ask(1, bytes(4), version=0), ask(1, bytes(4), reserved=1)]
)
def test_a_request_with_wrong_fixed_bytes_is_refused(data: bytes) -> None:
    refused = request_rejected(data)
    assert (refused.reason, refused.answer) == (Reason.MALFORMED_REQUEST, socks5.reply(0x01))


@pytest.mark.parametrize("data", [ask_name(b"example.com"), ask(1, bytes((192, 0, 2, 1))), ask(4, bytes(15) + b"\x01")])
def test_an_unfinished_request_waits(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(Starved):
            feed(socks5.request(buffer := bytearray()), buffer, whole(data[:size]))


def test_a_client_that_sends_everything_at_once_is_served() -> None:
    buffer = bytearray(b"\x05\x01\x02" + LOGIN + ask_name(b"example.com") + b"\x16\x03\x01")
    assert feed(without_password(buffer), buffer, []) == (None, b"\x05\x02\x01\x00")
    assert feed(socks5.request(buffer), buffer, []) == (Target("example.com", 443), b"")
    assert buffer == b"\x16\x03\x01"


# The answers


def test_replies_are_those_of_rfc_1928() -> None:
    assert bytes.fromhex("05000001000000000000") == socks5.SUCCEEDED
    assert socks5.reply(0x02) == bytes.fromhex("05020001000000000000")


def test_socks4_is_refused_in_its_own_words() -> None:
    assert bytes.fromhex("005b000000000000") == socks5.SOCKS4_REFUSED


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_reply(reason: Reason) -> None:
    assert socks5.answer(Refused(reason)) == socks5.reply(TABLE[reason].socks)


def test_a_rejection_brings_its_own_answer() -> None:
    assert socks5.answer(Rejected(socks5.NO_METHOD, Reason.CREDENTIALS, "")) == b"\x05\xff"


# Fuzz


small = st.binary(max_size=6)
counted = st.binary(max_size=20).map(lambda content: bytes((len(content),)) + content)
greetings = st.tuples(st.sampled_from([b"\x05", b"\x04", b""]), counted).map(b"".join)
logins = st.tuples(st.sampled_from([b"\x01", b"\x05"]), counted, counted, small).map(b"".join)
names = st.sampled_from([b"a.test", b"A.TEST.", b"127.0.0.1", b"::1", b"a\0b", b""]) | st.binary(max_size=255)
requests = st.tuples(
    st.sampled_from([b"\x05", b"\x05", b"\x05", b"\x04"]),
    st.sampled_from([b"\x01", b"\x01", b"\x01", b"\x02", b"\x03", b"\xff"]),
    st.sampled_from([b"\x00", b"\x00", b"\x00", b"\x01"]),
    names.map(lambda name: b"\x03" + bytes((len(name),)) + name)
    | st.binary(min_size=4, max_size=4).map(b"\x01".__add__)
    | st.binary(min_size=16, max_size=16).map(b"\x04".__add__)
    | small,
    small,
).map(b"".join)


def start_anything(buffer: bytearray, password: bool) -> Handshake[tuple[object, Target]]:
    credentials = yield from socks5.greeting(buffer, password)
    target = yield from socks5.request(buffer)
    return credentials, target


@FUZZ
@given(st.data(), st.booleans())
def test_any_dialogue_ends_the_same_way_however_it_is_cut(data: st.DataObject, password: bool) -> None:
    dialogue = data.draw(st.tuples(greetings, logins | st.just(b""), requests).map(b"".join) | st.binary(max_size=64))

    def start(buffer: bytearray) -> Handshake[tuple[object, Target]]:
        return start_anything(buffer, password)

    expected = outcome(start, whole(dialogue))
    assert outcome(start, data.draw(cuttings(dialogue))) == expected
    assert outcome(start, one_by_one(dialogue)) == expected


@FUZZ
@given(st.data())
def test_any_request_becomes_a_canonical_target_or_is_refused(data: st.DataObject) -> None:
    asked = data.draw(requests)
    value, sent, left = outcome(socks5.request, data.draw(cuttings(asked)))
    assert sent == b""
    if isinstance(value, Target):
        assert asked.endswith(left)
        again = ask_name(value.host.encode(), value.port)
        assert outcome(socks5.request, [again]).value == value
    else:
        assert value == STARVED or isinstance(value, Refusal)


# Real clients


@pytest.mark.scenario
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("words", "password", "credentials"),
    [
        (["--proxy", "socks5h://{}"], False, None),
        (["--proxy", "socks5h://{}", "--proxy-user", "alice:secret"], False, None),
        (["--proxy", "socks5h://{}", "--proxy-user", "alice:secret"], True, Credentials("alice", "secret")),
        (["--proxy", "socks5h://alice@{}"], True, Credentials("alice", "")),
    ],
)
def test_curl_is_understood_and_told(words: list[str], password: bool, credentials: Credentials | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = f"127.0.0.1:{listener.getsockname()[1]}"
        command = ["curl", "--silent", "--show-error", *(word.format(proxy) for word in words), "http://a.test:8080/"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as curl:
            client, _ = listener.accept()
            with client:
                client.settimeout(10)
                buffer = bytearray()
                assert over_socket(socks5.greeting(buffer, password), buffer, client) == credentials
                if password:
                    client.sendall(socks5.AUTH_OK)
                assert over_socket(socks5.request(buffer), buffer, client) == Target("a.test", 8080)
                client.sendall(socks5.reply(0x02))
            _, complaint = curl.communicate(timeout=10)
    assert curl.returncode == 97
    assert "(2)" in complaint


def over_socket(handshake: Handshake[object], buffer: bytearray, client: socket.socket) -> object:
    while True:
        try:
            answer = next(handshake)
        except StopIteration as done:
            return done.value
        if answer:
            client.sendall(answer)
            continue
        data = client.recv(4096)
        assert data, "the client went away"
        buffer += data
