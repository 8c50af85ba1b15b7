"""Heads as they are passed on."""

from __future__ import annotations

import pytest

from egress.model import Host, Target
from egress.net.upstream import Upstream
from egress.refusals import Reason, Refused
from egress.wire.http1 import CHUNKED, UNTIL_CLOSE, Field, Fields, Request, Response
from egress.wire.rewrite import check_demands, request_head, response_head, wants_websocket

TARGET = Target(Host("allowed.test"), 80)
SOCKET = {"connection": "Upgrade", "upgrade": "websocket"}


def request(method: str = "GET", length: int = 0, minor: int = 1, **fields: str) -> Request:
    written = (("host", "written.test"), *((name.replace("_", "-"), value) for name, value in fields.items()))
    return Request(method, "http://allowed.test/x", minor, Fields(Field(*field) for field in written), length)


def response(status: int = 200, length: int = 5, **fields: str) -> Response:
    written = Fields(Field(name.replace("_", "-"), value) for name, value in fields.items())
    return Response(status, "Fine", 1, written, length)


def lines(head: bytes) -> list[bytes]:
    assert head.endswith(b"\r\n\r\n")
    return head[:-4].split(b"\r\n")


def answer(value: Response, chunked: bool = True, stays: bool = True) -> list[bytes]:
    return lines(response_head(value, chunked=chunked, stays=stays))


# Requests


def test_the_target_is_the_host_whatever_the_client_wrote() -> None:
    assert lines(request_head(request(), TARGET, "/x")) == [b"GET /x HTTP/1.1", b"Host: allowed.test"]


@pytest.mark.parametrize(
    ("host", "port", "written"),
    [
        ("allowed.test", 80, b"allowed.test"),
        ("allowed.test", 8080, b"allowed.test:8080"),
        ("allowed.test", 443, b"allowed.test:443"),
        ("2001:db8::80", 80, b"[2001:db8::80]"),
        ("2001:db8::80", 8080, b"[2001:db8::80]:8080"),
    ],
)
def test_a_port_is_written_unless_it_is_the_usual_one(host: str, port: int, written: bytes) -> None:
    assert b"Host: " + written in lines(request_head(request(), Target(Host(host), port), "/"))


def test_an_older_client_is_passed_on_as_the_gate_speaks() -> None:
    assert request_head(request(minor=0), TARGET, "/x").startswith(b"GET /x HTTP/1.1\r\n")


def test_the_framing_is_the_gates_own() -> None:
    chunked = request_head(request("POST", CHUNKED, transfer_encoding="cHUNKED"), TARGET, "/")
    assert lines(chunked)[2:] == [b"Transfer-Encoding: chunked"]
    sized = request_head(request("POST", 5, content_length="5", connection="content-length, host"), TARGET, "/")
    assert lines(sized)[1:] == [b"Host: allowed.test", b"content-length: 5"]


def test_what_was_meant_for_the_gate_stays_there() -> None:
    head = request_head(request(proxy_authorization="Basic x", te="gzip", connection="x-mine", x_mine="1"), TARGET, "/")
    assert lines(head)[2:] == []


def test_a_next_proxy_gets_the_whole_uri_and_its_own_credentials() -> None:
    proxy = Upstream(Host("proxy.test"), 3128, "Basic b3VyczpvdXJz")
    head = lines(request_head(request(proxy_authorization="Basic dGhlaXJz"), TARGET._replace(port=8080), "/x?y", proxy))
    assert head[0] == b"GET http://allowed.test:8080/x?y HTTP/1.1"
    assert head[1:] == [b"Host: allowed.test:8080", b"Proxy-Authorization: Basic b3VyczpvdXJz"]
    options = request_head(request("OPTIONS"), TARGET, "*", proxy)
    assert options.startswith(b"OPTIONS http://allowed.test HTTP/1.1\r\n")


def test_a_websocket_is_asked_for_in_the_gates_own_words() -> None:
    wanted = request(connection="keep-alive,\tUpgrade", upgrade="WebSocket", sec_websocket_key="k")
    assert wants_websocket(wanted)
    head = lines(request_head(wanted, TARGET, "/"))
    assert head[2:] == [b"sec-websocket-key: k", b"Connection: Upgrade", b"Upgrade: websocket"]


@pytest.mark.parametrize(
    "fields", [{}, {"upgrade": "websocket"}, {"connection": "upgrade"}, {"connection": "close", "upgrade": "websocket"}]
)
def test_an_upgrade_takes_both_headers(fields: dict[str, str]) -> None:
    assert not wants_websocket(request(**fields))
    check_demands(request(**fields))


@pytest.mark.parametrize("value", ["h2c", "HTTP/2.0", "websocket, h2c", "h2c, websocket", "web socket", "TLS/1.0", "x"])
def test_no_other_upgrade_is_granted(value: str) -> None:
    with pytest.raises(Refused) as caught:
        check_demands(request(connection="upgrade", upgrade=value))
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize(("method", "length"), [("POST", 0), ("GET", 5), ("GET", CHUNKED), ("HEAD", 0), ("OPTIONS", 0)])
def test_a_websocket_begins_with_a_get_that_has_no_body(method: str, length: int) -> None:
    with pytest.raises(Refused) as caught:
        check_demands(request(method, length, **SOCKET))
    assert caught.value.reason is Reason.UNSUPPORTED


def test_the_one_expectation() -> None:
    check_demands(request("POST", 5, expect="100-Continue"))
    for other in ("200-ok", "100-continue, x", "", "100-continue;x"):
        with pytest.raises(Refused):
            check_demands(request("POST", 5, expect=other))


# Answers


def test_an_answer_keeps_its_fields_and_says_whether_the_connection_stays() -> None:
    value = response(content_length="5", x="y", set_cookie="a=b")
    assert answer(value) == [
        b"HTTP/1.1 200 Fine", b"content-length: 5", b"x: y", b"set-cookie: a=b", b"Connection: keep-alive",
    ]  # fmt: skip
    assert answer(value, stays=False)[-1] == b"Connection: close"


def test_what_leads_the_client_past_the_gate_is_removed() -> None:
    assert answer(response(alt_svc='h3=":443"', upgrade="h2c", keep_alive="max=5", connection="x", x="1"))[1:-1] == []


@pytest.mark.parametrize("length", [CHUNKED, UNTIL_CLOSE])
def test_a_body_of_unknown_length_is_chunked_for_who_knows_chunks(length: int) -> None:
    assert b"Transfer-Encoding: chunked" in answer(response(length=length))
    assert b"Transfer-Encoding: chunked" not in answer(response(length=length), chunked=False)


@pytest.mark.parametrize("status", [100, 103, 204])
def test_what_has_no_body_has_no_length(status: int) -> None:
    assert not any(b"content-length" in line for line in answer(response(status, 0, content_length="5")))


@pytest.mark.parametrize("status", [200, 304])
def test_an_answer_to_head_or_unchanged_keeps_the_length_it_speaks_of(status: int) -> None:
    assert b"content-length: 5" in answer(response(status, 0, content_length="5"))


def test_interim_answers_say_nothing_of_the_connection() -> None:
    assert answer(response(103, 0, link="</x>", connection="close")) == [b"HTTP/1.1 103 Fine", b"link: </x>"]


def test_a_switch_is_to_what_was_asked_for() -> None:
    switched = answer(response(101, 0, sec_websocket_accept="k", upgrade="h2c", connection="upgrade"))
    assert switched[1:] == [b"sec-websocket-accept: k", b"Connection: Upgrade", b"Upgrade: websocket"]
