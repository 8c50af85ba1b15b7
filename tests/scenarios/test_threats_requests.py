"""What an attacker inside does with requests that the gate looks into: a real gate, its real engine, and servers
that write down what reaches them. What must not arrive did not arrive.
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
import wsproto
import wsproto.events
from gateprocess import GateProcess, egress, until
from requestkit import NOTHING, Heard, Http1, Inside, Pairs, Recorder, Reply, running, tunnel
from servers import WebSocketEcho

pytestmark = pytest.mark.scenario

KEY, TOKEN = "sk-real-0123456789abcdef", "gho_RealTokenOfTheHost42"
STARS = "*" * len(KEY)
HOLDER, TOKEN_HOLDER = "egress-placeholder-API_KEY", "egress-placeholder-GH_TOKEN"
VERSIONS = pytest.mark.parametrize("version", ["h1", "h2"])
MIB = 1024 * 1024

# Names that lead to a server of HTTP/1.1, so that what comes as HTTP/2 is written anew; and to one of HTTP/2.
ONE = ("downgraded", "reading", "keyed", "token", "other", "small", "session", "strict", "mixed")
TWO = ("both", "keyed2", "small2", "session2")
RULES = """
- {host: both.test, paths: ["/ok/**", "/ok"], methods: [GET, POST]}
- {host: downgraded.test, paths: ["/ok/**", "/ok"], methods: [GET, POST]}
- {host: reading.test, methods: [GET, HEAD]}
- {host: keyed.test, ports: [80, 443], secret: {env: API_KEY, header: x-api-key}}
- {host: keyed2.test, secret: {env: API_KEY, header: x-api-key}}
- {host: token.test, secret: {env: GH_TOKEN, header: authorization, format: "Bearer {}"}}
- {host: other.test, ports: [80, 443], inspect: true}
- {host: small.test, ports: [80, 443], upload_limit: 1K}
- {host: small2.test, upload_limit: 1K}
- {host: session.test, ports: [80, 443], upload_limit: {session: 4K}}
- {host: session2.test, upload_limit: {session: 4K}}
- {host: socket.test, upload_limit: 1K, secret: {env: API_KEY, header: x-api-key}}
- {host: strict.test, methods: [GET, POST], headers: {require: {x-mode: safe}, forbid: [x-debug]}}
- {host: mixed.test, secret: {env: API_KEY, header: x-api-key, allow_other: true}}
- {host: mixed.test, secret: {env: GH_TOKEN, header: authorization}}
- {host: untrusted.test, inspect: true}
- {host: expired.test, inspect: true}
- {host: misnamed.test, inspect: true}
"""


class Telling(WebSocketEcho):
    """Says the key back, too, as a careless server would."""

    def _reply(self, event: wsproto.events.Event) -> wsproto.events.Event:
        reply = super()._reply(event)
        if isinstance(reply, wsproto.events.TextMessage):
            return wsproto.events.TextMessage(f"{reply.data} {KEY}", message_finished=reply.message_finished)
        return reply


class World(NamedTuple):
    gate: GateProcess
    inside: Inside
    one: Recorder  # speaks HTTP/1.1
    two: Recorder  # speaks HTTP/2
    bad: dict[str, Recorder]  # with certificates that are no good
    socket: Telling

    @property
    def arrived(self) -> list[str]:
        return self.one.lines + self.two.lines

    @property
    def refusals(self) -> list[str]:
        return [record["reason"] for record in self.gate.records(event="decision", verdict="deny")]

    @property
    def engine(self) -> int:
        """The process that opens TLS: the gate's only child."""
        pid = self.gate.process.pid
        (engine,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return engine

    @property
    def resident(self) -> int:
        """The engine's memory, in bytes."""
        return int(Path(f"/proc/{self.engine}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def ask(self, version: str, host: str, line: str, more: Pairs = (), body: bytes = b"") -> Heard:
        method, path = line.split(" ", 1)
        return self.inside.once(version, f"{host}.test", method, path, more, body)


def policy(ports: dict[str, int], rules: str) -> str:
    hosts = ", ".join(f"{name}.test: '127.0.0.1:{port}'" for name, port in ports.items())
    allow = "\n".join(f"      {line[:-1]}, private: true}}" for line in rules.strip().splitlines())
    return f"version: 1\nhosts: {{{hosts}}}\npersonas:\n  p:\n    allow:\n{allow}\n"


def context(ca: trustme.CA, names: list[str], alpn: str = "http/1.1", **more: Any) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names, **more).configure_cert(made)
    made.set_alpn_protocols([alpn])
    return made


@contextmanager
def build(home: Path, rules: str = RULES) -> Iterator[World]:
    ca = trustme.CA()
    roots = home / "outside.pem"
    ca.cert_pem.write_to_path(str(roots))
    names = [f"{name}.test" for name in ONE + TWO]
    one, two = Recorder(context(ca, names)), Recorder(context(ca, names, "h2"))
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    bad = {
        "untrusted": Recorder(context(trustme.CA(), ["untrusted.test"])),
        "expired": Recorder(context(ca, ["expired.test"], not_after=past)),
        "misnamed": Recorder(context(ca, ["another.test"])),
    }
    socket = Telling(context(ca, ["socket.test"]))
    ports = (
        {"socket": socket.port}
        | dict.fromkeys(ONE, one.port)
        | dict.fromkeys(TWO, two.port)
        | {name: bad[name].port for name in bad}
    )
    with running(one, two, *bad.values(), socket):
        words = ("--persona", "p", "--listen", "127.0.0.1:0", "--upstream-ca", roots)
        gate = GateProcess(home / "gate", policy(ports, rules), *words, API_KEY=KEY, GH_TOKEN=TOKEN)
        try:
            yield World(gate, Inside(gate.port, egress(home / "gate", "ca").out), one, two, bad, socket)
        finally:
            gate.stop()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with build(tmp_path_factory.mktemp("requests")) as made:
        yield made


@pytest.fixture
def world(standing: World) -> World:
    standing.gate.forget()
    for server in (standing.one, standing.two, *standing.bad.values()):
        server.forget()
        server.answering = lambda _: Reply()
    return standing


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., Any]:
    """A gate for one test, which may harm it."""
    return lambda rules=RULES: build(tmp_path, rules)


def request(line: str, host: str, more: str = "", body: bytes = b"") -> bytes:
    return f"{line} HTTP/1.1\r\nHost: {host}.test\r\n{more}\r\n".encode("latin-1") + body


def head(host: str, path: str = "/ok", method: str = "GET") -> list[tuple[str, str]]:
    return [(":method", method), (":scheme", "https"), (":authority", f"{host}.test"), (":path", path)]


class TestForWhomItIs:
    """Host and :authority are the connection's target, on every request."""

    @pytest.mark.parametrize(
        "wrong",
        [
            "evil.test",
            "both.test.evil.test",
            "both.test:80",
            "both.test:8443",
            "both.test@evil.test",
            "",
            "both.test, evil.test",
        ],
    )
    def test_another_host_is_421_in_either_version(self, world: World, wrong: str) -> None:
        with world.inside.http1("both.test") as one:
            one.say(f"GET /ok HTTP/1.1\r\nHost: {wrong}\r\n\r\n".encode())
            assert one.hear().status in (421, 400)
        with world.inside.http2("both.test") as two:
            fields = [(name, wrong if name == ":authority" else value) for name, value in head("both")]
            assert two.hear(two.ask(fields)).status in (421, 0)
        assert world.arrived == []

    def test_a_later_request_of_a_connection_is_judged_by_itself(self, world: World) -> None:
        with world.inside.http1("downgraded.test") as client:
            client.say(
                request("GET /ok/1", "downgraded") + request("GET /ok/2", "other") + request("GET /ok/3", "downgraded")
            )
            assert [client.hear().told for _ in range(3)] == [(200, ""), (421, "host_mismatch"), (200, "")]
        assert world.arrived == ["GET /ok/1", "GET /ok/3"]
        assert world.refusals == ["host_mismatch"]

    @pytest.mark.parametrize("host", ["both", "downgraded"])
    def test_one_stream_of_several_is_421_and_the_others_are_unharmed(self, world: World, host: str) -> None:
        with world.inside.http2(f"{host}.test") as client:
            names = [host, "other", host, "other", host]
            streams = [client.ask(head(name, f"/ok/{at}")) for at, name in enumerate(names)]
            assert [client.hear(stream).status for stream in streams] == [200, 421, 200, 421, 200]
        assert sorted(world.arrived) == ["GET /ok/0", "GET /ok/2", "GET /ok/4"]

    @pytest.mark.parametrize(
        "text",
        [
            "GET https://evil.test/ok HTTP/1.1\r\nHost: downgraded.test\r\n\r\n",
            "GET https://downgraded.test/ok HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "GET http://evil.test/ok HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "GET https://downgraded.test@evil.test/ok HTTP/1.1\r\nHost: downgraded.test\r\n\r\n",
            "GET /ok HTTP/1.1\r\nHost: downgraded.test\r\nHost: evil.test\r\n\r\n",
            "GET /ok HTTP/1.1\r\nHost: evil.test\r\nhost: downgraded.test\r\n\r\n",
            "GET /ok HTTP/1.1\r\n\r\n",
            "GET /ok HTTP/1.0\r\n\r\n",
            "GET @evil.test/ok HTTP/1.1\r\nHost: downgraded.test\r\n\r\n",
            "GET //evil.test/ok HTTP/1.1\r\nHost: downgraded.test\r\n\r\n",
        ],
    )
    def test_a_request_that_names_two_hosts_or_none_goes_nowhere(self, world: World, text: str) -> None:
        with world.inside.http1("downgraded.test") as client:
            client.say(text.encode())
            assert client.hear().status in (400, 421)
        assert world.arrived == []

    def test_absolute_form_for_the_target_goes_up_in_origin_form(self, world: World) -> None:
        with world.inside.http1("downgraded.test") as client:
            client.say(b"GET https://downgraded.test/ok HTTP/1.1\r\nHost: downgraded.test\r\n\r\n")
            assert client.hear().status == 200
        assert world.arrived == ["GET /ok"]
        assert world.one.got[0].values("host") == ["downgraded.test"]

    @VERSIONS
    @pytest.mark.parametrize(
        "field",
        [
            ("x-forwarded-host", "evil.test"),
            ("x-forwarded-host", "other.test, evil.test"),
            ("x_forwarded_host", "evil.test"),
            ("forwarded", "for=x;host=evil.test"),
            ("x-host", "evil.test"),
            ("x-http-host-override", "evil.test"),
        ],
    )
    def test_a_header_gives_no_second_host(self, world: World, version: str, field: tuple[str, str]) -> None:
        assert world.ask(version, "other", "GET /", [field]).told == (421, "host_mismatch")
        assert world.ask(version, "other", "GET /same", [("x-forwarded-host", "other.test")]).status == 200
        assert world.arrived == ["GET /same"]

    @pytest.mark.parametrize("more", [[("host", "evil.test")], [("host", "both.test"), ("host", "evil.test")]])
    def test_a_host_field_beside_the_authority_must_agree(self, world: World, more: Pairs) -> None:
        with world.inside.http2("both.test") as client:
            assert client.hear(client.ask([*head("both"), *more])).status in (0, 421)
        assert world.arrived == []


class TestFraming:
    """What has two readings has none."""

    SMUGGLED = b"GET /forbidden HTTP/1.1\r\nHost: downgraded.test\r\n\r\n"

    @pytest.mark.parametrize(
        "fields",
        [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: 5_0\r\n",
            "Content-Length : 5\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\r\n chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "X: a\r\n b\r\n",
            "X: a\rTransfer-Encoding: chunked\r\n",
            "X\x00: a\r\n",
            "X: a\x00b\r\n",
            "no colon\r\n",
            " X: leading\r\n",
        ],
    )
    def test_lengths_that_disagree_and_fields_that_are_none_are_400_and_the_end(
        self, world: World, fields: str
    ) -> None:
        with world.inside.http1("downgraded.test") as client:
            client.say(request("POST /ok", "downgraded", fields, b"0\r\n\r\n" + self.SMUGGLED))
            assert client.hear().status == 400
            assert client.is_cut()
        assert world.arrived == []
        assert b"forbidden" not in world.one.raw

    @pytest.mark.parametrize("size", ["0x5", "+5", "5 ", "-1", "fffffffffffffffffffff", "5\n", "5;a\nb", ""])
    def test_a_chunk_whose_size_has_two_readings_ends_the_connection(self, world: World, size: str) -> None:
        with world.inside.http1("downgraded.test") as client:
            chunk = f"{size}\r\nhello\r\n0\r\n\r\n".encode()
            client.say(request("POST /ok", "downgraded", "Transfer-Encoding: chunked\r\n", chunk + self.SMUGGLED))
            heard = client.hear()
            assert heard.status in (0, 400, 502) or world.one.got[0].body == b"hello"
            client.hear()
        assert "GET /forbidden" not in world.arrived

    @pytest.mark.parametrize("host", ["both", "downgraded"])
    @pytest.mark.parametrize(
        "field",
        [
            ("x\r\nevil", "1"),
            ("x", "1\r\nevil: 1"),
            ("x", "1\nevil: 1"),
            ("x", "1\rGET"),
            ("x", "a\x00b"),
            ("x y", "1"),
            ("X-Upper", "1"),
            ("x:", "1"),
            ("x:evil", "1"),
            ("", "1"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("upgrade", "h2c"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("te", "gzip"),
            ("content-length", "1, 1"),
            ("content-length", "-1"),
            ("content-length", "+0"),
            (":path", "/forbidden"),
            (":method", "DELETE"),
            (":authority", "evil.test"),
            (":unknown", "1"),
            (":status", "200"),
            (":protocol", "websocket"),
        ],
    )
    def test_a_field_that_would_be_another_in_http1_goes_nowhere(self, world: World, host: str, field: Any) -> None:
        with world.inside.http2(f"{host}.test") as client:
            heard = client.hear(client.ask([*head(host), field]))
        assert heard.status in (0, 400, 405)
        assert world.arrived == []

    @pytest.mark.parametrize("host", ["both", "downgraded"])
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (":path", "/ok HTTP/1.1\r\nHost: evil.test\r\n\r\nGET /forbidden"),
            (":path", "/ok HTTP/1.1"),
            (":path", "/ok\n"),
            (":path", "/ok\x00"),
            (":path", "/ok\t"),
            (":path", ""),
            (":path", "ok"),
            (":path", "https://evil.test/ok"),
            (":path", "*"),
            (":method", "GET /forbidden HTTP/1.1\r\nx:"),
            (":method", "GET "),
            (":method", "G\x00T"),
            (":method", ""),
            (":method", "get"),
            (":method", "CONNECT"),
            (":method", "TRACE"),
            (":authority", "both.test\r\nx: 1"),
            (":scheme", "https://evil.test/?"),
            (":scheme", "http\r\nx: 1"),
        ],
    )
    def test_a_pseudo_field_that_would_be_more_in_http1_goes_nowhere(
        self, world: World, host: str, name: str, value: str
    ) -> None:
        with world.inside.http2(f"{host}.test") as client:
            fields = [(field, value if field == name else was) for field, was in head(host)]
            heard = client.hear(client.ask(fields))
        if name == ":scheme" and heard.status == 200:  # it is not passed on
            assert [got.values(":scheme") for got in world.two.got + world.one.got] in ([["https"]], [[]])
            assert b"evil" not in world.one.raw
            return
        assert heard.status in (0, 400, 403, 405, 421)
        assert world.arrived == []

    @pytest.mark.parametrize("host", ["both", "downgraded"])
    @pytest.mark.parametrize("missing", [":method", ":path", ":scheme", ":authority"])
    def test_a_pseudo_field_must_be_there(self, world: World, host: str, missing: str) -> None:
        with world.inside.http2(f"{host}.test") as client:
            heard = client.hear(client.ask([pair for pair in head(host) if pair[0] != missing]))
        assert heard.status in (0, 400, 421)
        assert world.arrived == []

    @pytest.mark.parametrize("host", ["both", "downgraded"])
    def test_a_body_that_is_shorter_than_announced_is_not_taken_for_whole(self, world: World, host: str) -> None:
        """Else what comes next on the way would be read as the rest of it."""
        trailers = [("x-trailer", "1")]
        with world.inside.http2(f"{host}.test") as client:
            assert client.hear(client.ask([*head(host), ("content-length", "60")])).status == 400
            cut = client.ask([*head(host, "/ok/2", "POST"), ("content-length", "60")], body=b"abc", trailers=trailers)
            assert client.hear(cut).status in (0, 400)
        assert world.arrived == []

    @pytest.mark.parametrize("host", ["both", "downgraded"])
    @pytest.mark.parametrize("announced", ["2", "4"])
    def test_a_body_that_is_not_as_long_as_announced_is_not_passed_as_one(
        self, world: World, host: str, announced: str
    ) -> None:
        with world.inside.http2(f"{host}.test") as client:
            asked = client.ask([*head(host, method="POST"), ("content-length", announced)], body=b"abc")
            assert client.hear(asked).status == 0
        assert world.arrived == []

    @pytest.mark.parametrize("host", ["both", "downgraded"])
    def test_trailers_of_a_request_bring_nothing(self, world: World, host: str) -> None:
        trailers = [("x-api-key", "attacker"), ("content-length", "0"), ("transfer-encoding", "chunked")]
        with world.inside.http2(f"{host}.test") as client:
            for trailer in trailers:
                heard = client.hear(client.ask(head(host, method="POST"), body=b"abc", trailers=[trailer]))
                assert heard.status in (0, 200)
                if client.is_over:
                    break
        assert [got.values("x-api-key") for got in world.one.got + world.two.got] in ([[]], [[], []], [[], [], []])

    def test_chunked_trailers_of_http1_are_dropped(self, world: World) -> None:
        with world.inside.http1("downgraded.test") as client:
            body = b"3\r\nabc\r\n0\r\nX-Trailer: attacker\r\n\r\n"
            client.say(request("POST /ok", "downgraded", "Transfer-Encoding: chunked\r\n", body))
            assert client.hear().status == 200
        assert b"attacker" not in world.one.raw

    @pytest.mark.parametrize(
        "more",
        [
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
            "Connection: Upgrade\r\nUpgrade: h2c\r\n",
            "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
            "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
        ],
    )
    def test_no_connection_becomes_another_kind(self, world: World, more: str) -> None:
        with world.inside.http1("downgraded.test") as client:
            client.say(request("GET /ok", "downgraded", more))
            assert client.hear().told == (405, "unsupported")
        assert world.arrived == []
        until(lambda: world.refusals == ["unsupported"])

    @pytest.mark.parametrize("line", ["CONNECT evil.test:443", "CONNECT downgraded.test:443", "TRACE /ok", "PRI *"])
    def test_no_method_that_changes_the_connection(self, world: World, line: str) -> None:
        with world.inside.http1("other.test") as client:
            client.say(request(line, "other"))
            assert client.hear().status in (400, 405, 421)
        assert world.arrived == []

    def test_no_tunnel_in_a_stream(self, world: World) -> None:
        """Neither the old CONNECT nor the extended one (RFC 8441)."""
        with world.inside.http2("both.test") as client:
            heard = client.hear(client.ask([(":method", "CONNECT"), (":authority", "both.test")]))
            assert heard.status in (0, 400, 403, 405)
        with world.inside.http2("both.test") as client:
            heard = client.hear(client.ask([*head("both", method="CONNECT"), (":protocol", "websocket")]))
            assert heard.status in (0, 400, 403, 405)
        assert world.arrived == []

    def test_connection_cannot_strip_what_the_server_needs(self, world: World) -> None:
        with world.inside.http1("keyed.test") as client:
            client.say(
                request("GET /", "keyed", f"Connection: x-api-key, host, content-length\r\nX-Api-Key: {HOLDER}\r\n")
            )
            assert client.hear().status == 200
        (got,) = world.one.got
        assert (got.values("x-api-key"), got.values("connection")) == ([KEY], [])


class TestTls:
    @pytest.mark.parametrize("name", ["untrusted", "expired", "misnamed"])
    @VERSIONS
    def test_a_server_that_proves_nothing_gets_nothing(self, world: World, name: str, version: str) -> None:
        heard = world.ask(version, name, "POST /", [("x-data", "precious")], b"precious")
        assert heard.told == (502, "bad_certificate")
        assert (world.bad[name].got, world.bad[name].raw) == ([], b"")

    def test_a_client_that_rejects_us_never_passes_through(self, world: World) -> None:
        for _ in range(3):
            with pytest.raises(ssl.SSLCertVerificationError):
                world.inside.tls("other.test", context=ssl.create_default_context())
        assert world.one.connections == 0
        assert world.ask("h1", "other", "GET /").status == 200

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_a_client_without_alpn_is_looked_into_all_the_same(self, world: World, version: ssl.TLSVersion) -> None:
        plain = world.inside.trust()
        plain.minimum_version = plain.maximum_version = version
        with closing(Http1(world.inside.tls("reading.test", context=plain))) as client:
            client.say(request("DELETE /", "reading") + request("GET /", "reading"))
            assert [client.hear().told for _ in range(2)] == [(403, "method_not_listed"), (200, "")]
        assert world.arrived == ["GET /"]

    def test_alpn_for_something_else_leads_nowhere(self, world: World) -> None:
        with closing(Http1(world.inside.tls("other.test", "ftp", "xmpp-client"))) as client:
            client.say(b"<stream:stream>\r\n\r\n")
            assert client.hear().status in (0, 400)
        assert world.one.connections == 0

    def test_http2_without_its_alpn_is_not_http2(self, world: World) -> None:
        with world.inside.http1("both.test") as client:
            client.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert client.hear().status in (0, 400, 405)
        assert world.two.connections == 0

    def test_another_name_in_the_hello_is_refused_before_anything_is_opened(self, world: World) -> None:
        with pytest.raises(OSError):
            world.inside.tls("other.test", sni="reading.test")
        until(lambda: world.refusals == ["sni_mismatch"])
        assert world.one.connections == 0

    @pytest.mark.parametrize(
        "data",
        [
            b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
            b"SSH-2.0-x\r\n",
            b"\x00" * 300,
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        ],
    )
    def test_what_is_not_tls_does_not_reach_an_inspected_host(self, world: World, data: bytes) -> None:
        with closing(Http1(tunnel(world.gate.port, "other.test"))) as client:
            client.say(data)
            client.sock.shutdown(socket.SHUT_WR)
            assert client.hear() == NOTHING
        until(lambda: len(world.refusals) == 1)
        assert world.refusals == ["not_tls"]
        assert world.one.connections == 0

    def test_garbage_after_a_good_hello_reaches_nobody(self, world: World) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = world.inside.trust().wrap_bio(incoming, outgoing, server_hostname="other.test")
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()
        with closing(Http1(tunnel(world.gate.port, "other.test"))) as client:
            client.say(outgoing.read() + b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n" * 100)
            assert client.hear() == NOTHING
        assert world.one.connections == 0
        assert world.ask("h1", "other", "GET /").status == 200


@VERSIONS
class TestPathsAndMethods:
    @pytest.mark.parametrize("host", ["both", "downgraded"])
    @pytest.mark.parametrize(
        "path",
        [
            "/ok/../forbidden",
            "/ok/%2e%2e/forbidden",
            "/ok/%2E./forbidden",
            "/ok/.%2e/forbidden",
            "/ok/..%2fforbidden",
            "/ok/..%5cforbidden",
            "/ok\\..\\forbidden",
            "/ok/..\\forbidden",
            "//ok/x",
            "/ok//../forbidden",
            "/ok/;/../forbidden",
            "/ok/..;/forbidden",
            "/ok/..;x=y/forbidden",
            "/ok/%2e%2e;/forbidden",
            "/ok/%252e%252e/forbidden",
            "/ok/%25%32%65/x",
            "/ok%2fx",
            "/ok/%00",
            "/ok/%0d%0aX:1",
            "/ok/%0a",
            "/ok/x#/../forbidden",
            "/ok/%c0%ae%c0%ae/forbidden",
            "/ok/%ef%bc%8e%ef%bc%8e/forbidden",
            "/ok/%",
            "/ok/%zz",
            "/ok/%u002e%u002e/forbidden",
            "/ok/./x",
            "/ok/..",
            "/ok/.",
            "/ok/\xe9",
            "/ok/%3f/../forbidden",
            "/ok/%20../x/..%20/forbidden",
        ],
    )
    def test_a_path_with_two_readings_has_none(self, world: World, version: str, host: str, path: str) -> None:
        heard = world.ask(version, host, f"GET {path}")
        assert heard.status in (400, 0)
        assert heard.reason in ("ambiguous_path", "malformed_request", "")
        assert world.arrived == []

    @pytest.mark.parametrize(
        "path", ["/forbidden", "/okx", "/OK", "/%66orbidden", "/ok%2Ex", "/", "/forbidden?/ok/", "/o%6Bx"]
    )
    def test_a_path_that_is_not_listed_is_not_in_any_spelling(self, world: World, version: str, path: str) -> None:
        assert world.ask(version, "both", f"GET {path}").told == (403, "path_not_listed")
        assert world.arrived == []

    @pytest.mark.parametrize("path", ["/ok", "/%6fk/a", "/ok/a?x=/../y", "/ok/%7Ea", "/ok/a%20b"])
    def test_a_listed_path_is_in_every_spelling_with_one_reading(self, world: World, version: str, path: str) -> None:
        assert world.ask(version, "both", f"GET {path}").status == 200
        assert world.arrived == [f"GET {path}"]

    @pytest.mark.parametrize(
        "name", ["x-original-url", "x-rewrite-url", "x_original_url", "x-forwarded-uri", "x-envoy-original-path"]
    )
    def test_a_header_gives_no_second_path(self, world: World, version: str, name: str) -> None:
        assert world.ask(version, "both", "GET /ok", [(name, "/forbidden")]).told == (400, "ambiguous_path")
        assert world.arrived == []

    @pytest.mark.parametrize(
        ("path", "more"),
        [
            ("/", [("x-http-method-override", "DELETE")]),
            ("/", [("x-http-method", "delete")]),
            ("/", [("x-method-override", "PUT")]),
            ("/", [("x_http_method_override", "PUT")]),
            ("/", [("x-http-method-override", "GET"), ("x-http-method-override", "PUT")]),
            ("/", [("x-http-method-override", "GET, PUT")]),
            ("/?_method=DELETE", []),
            ("/?a=b&%5fmethod=DELETE", []),
            ("/?.method=DELETE", []),
            ("/?%5Bmethod=DELETE", []),
            ("/?_method%00x=DELETE", []),
            ("/", [("x-method", "DELETE")]),
            ("/", [("method_override", "DELETE")]),
            ("/", [("x-http-verb", "DELETE")]),
            ("/", [("x-method", "GET, HEAD, A, B, C")]),
        ],
    )
    def test_no_method_in_disguise(self, world: World, version: str, path: str, more: Pairs) -> None:
        assert world.ask(version, "reading", f"GET {path}", more).told == (403, "method_not_listed")
        assert world.arrived == []

    @pytest.mark.parametrize(
        ("more", "status"),
        [
            ([("x-mode", "safe")], 200),
            ([("x-mode", "safe"), ("x_mode", "evil")], 403),
            ([("x_mode", "evil"), ("x-mode", "safe")], 403),
            ([("x_mode", "safe")], 403),
            ([("x-mode", "safe"), ("x_debug", "1")], 403),
        ],
    )
    def test_no_header_in_disguise(self, world: World, version: str, more: Pairs, status: int) -> None:
        assert world.ask(version, "strict", "GET /", more).status == status
        assert world.arrived == (["GET /"] if status == 200 else [])

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "get", "PROPFIND", "GETX", "MKCOL"])
    def test_reading_is_not_writing(self, world: World, version: str, method: str) -> None:
        heard = world.ask(version, "reading", f"{method} /acme/x/git-receive-pack", body=b"pack")
        assert heard.told == (403, "method_not_listed")
        assert world.arrived == []


class TestCredentials:
    @VERSIONS
    def test_the_placeholder_becomes_the_key_on_its_way_out(self, world: World, version: str) -> None:
        for host, server in (("keyed", world.one), ("keyed2", world.two)):
            assert world.ask(version, host, "GET /", [("x-api-key", HOLDER)]).status == 200
            assert [got.values("x-api-key") for got in server.got] == [[KEY]]

    @VERSIONS
    @pytest.mark.parametrize(
        "more",
        [
            [("x-api-key", "sk-attacker")],
            [("X-Api-Key", "sk-attacker")],
            [("x_api_key", "sk-attacker")],
            [("x-api_key", "sk-attacker")],
            [("x-api-key", f"{HOLDER}, sk-attacker")],
            [("x-api-key", f"{HOLDER} sk-attacker")],
            [("x-api-key", f"x{HOLDER}")],
            [("x-api-key", HOLDER.upper())],
            [("x-api-key", HOLDER), ("x-api-key", "sk-attacker")],
            [("x-api-key", "sk-attacker"), ("x-api-key", HOLDER)],
            [("x-api-key", HOLDER), ("x-api-key", HOLDER)],
            [("x-api-key", HOLDER), ("authorization", "Bearer sk-attacker")],
            [("authorization", "Bearer sk-attacker")],
            [("Authorization", "Basic " + base64.b64encode(b"attacker:x").decode())],
            [("api-key", "sk-attacker")],
            [("x-goog-api-key", "sk-attacker")],
            [("private-token", "sk-attacker")],
            [("x-auth-token", "sk-attacker")],
            [("x_auth_token", "sk-attacker")],
            [("x-api-key", "")],
            [("x-vault-token", "sk-attacker")],
            [("x-serverless-authorization", "Bearer sk-attacker")],
            [("ocp-apim-subscription-key", "sk-attacker")],
            [("dd_api_key", "sk-attacker")],
            [("x-access-key", "sk-attacker")],
            [("sec-websocket-protocol", "realtime, openai-insecure-api-key.sk-attacker")],
            [("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2s")],
        ],
    )
    def test_no_other_key_goes_to_a_host_that_has_one(self, world: World, version: str, more: Pairs) -> None:
        if version == "h2":  # where names are in lower case; others are malformed, and tried elsewhere
            more = [(name.lower(), value) for name, value in more]
        for host in ("keyed", "keyed2"):
            assert world.ask(version, host, "POST /v1/files", more, b"stolen").told == (403, "credential_mismatch")
        assert world.arrived == []
        assert world.refusals == ["credential_mismatch"] * 2

    @pytest.mark.parametrize("spaces", ["  {}", "{}  ", "\t{}\t"])
    def test_blanks_around_a_key_make_no_difference(self, world: World, spaces: str) -> None:
        with world.inside.http1("keyed.test") as client:
            client.say(request("GET /1", "keyed", f"X-API-KEY:{spaces.format(HOLDER)}\r\n"))
            client.say(request("GET /2", "keyed", f"x-ApI-kEy:{spaces.format('sk-attacker')}\r\n"))
            assert [client.hear().told for _ in range(2)] == [(200, ""), (403, "credential_mismatch")]
        assert [got.values("x-api-key") for got in world.one.got] == [[KEY]]

    @VERSIONS
    def test_a_token_is_put_in_as_the_client_wrote_it(self, world: World, version: str) -> None:
        for written, expected in {
            f"Bearer {TOKEN_HOLDER}": f"Bearer {TOKEN}",
            f"token {TOKEN_HOLDER}": f"token {TOKEN}",
            _basic(f"x-access-token:{TOKEN_HOLDER}"): _basic(f"x-access-token:{TOKEN}"),
            _basic(f"{TOKEN_HOLDER}:x-oauth-basic"): _basic(f"{TOKEN}:x-oauth-basic"),
        }.items():
            assert world.ask(version, "token", "GET /", [("authorization", written)]).status == 200
            assert world.one.got[-1].values("authorization") == [expected]

    @pytest.mark.parametrize(
        "written",
        [
            "Bearer gho_attacker",
            "token gho_attacker",
            TOKEN_HOLDER + "x",
            f"Bearer  {TOKEN_HOLDER}",
            f"Digest {TOKEN_HOLDER}",
            f"Bearer {TOKEN_HOLDER},Bearer gho_attacker",
            f"Bearer gho_attacker, {TOKEN_HOLDER}",
            "Basic !!!",
            "Basic",
            "Basic " + base64.b64encode(b"attacker:gho_attacker").decode(),
            "Basic " + base64.b64encode(f"{TOKEN_HOLDER}:gho_attacker".encode()).decode(),
            "Basic " + base64.b64encode(f"x:{TOKEN_HOLDER}:gho_attacker".encode()).decode(),
            "Basic " + base64.b64encode(f"gho_attacker:{TOKEN_HOLDER}".encode()).decode(),
        ],
    )
    def test_no_other_token_in_any_scheme(self, world: World, written: str) -> None:
        assert world.ask("h1", "token", "POST /gists", [("authorization", written)], b"x").told == (
            403,
            "credential_mismatch",
        )
        assert world.arrived == []

    @VERSIONS
    def test_what_one_secret_lets_pass_is_for_its_own_header(self, world: World, version: str) -> None:
        for name in ("authorization", "x-vault-token"):
            assert world.ask(version, "mixed", "GET /1", [(name, "sk-attacker")]).told == (403, "credential_mismatch")
        assert world.ask(version, "mixed", "GET /2", [("x-api-key", "sk-mine")]).status == 200
        assert world.arrived == ["GET /2"]

    @VERSIONS
    def test_elsewhere_the_placeholder_goes_out_as_it_stands(self, world: World, version: str) -> None:
        for host, name in (("other", "x-api-key"), ("keyed", "x-note"), ("other", "authorization")):
            assert world.ask(version, host, f"POST /{HOLDER}?{HOLDER}", [(name, HOLDER)], HOLDER.encode()).status == 200
            got = world.one.got[-1]
            assert (got.values(name), got.body, got.path) == ([HOLDER], HOLDER.encode(), f"/{HOLDER}?{HOLDER}")
        assert KEY.encode() not in world.one.raw

    def test_a_key_is_not_sent_in_the_clear(self, world: World) -> None:
        tunnelled = tunnel(world.gate.port, "keyed.test", 80)
        forwarded = socket.create_connection(("127.0.0.1", world.gate.port))
        for sock, uri in ((tunnelled, "/"), (forwarded, "http://keyed.test/")):
            with closing(Http1(sock)) as client:
                client.say(request(f"GET {uri}", "keyed", f"X-Api-Key: {HOLDER}\r\n"))
                assert client.hear().reason == "not_tls"
        assert world.arrived == []

    def test_nor_another_key(self, world: World) -> None:
        with closing(Http1(socket.create_connection(("127.0.0.1", world.gate.port)))) as client:
            client.say(request("GET http://keyed.test/", "keyed", "X-Api-Key: sk-attacker\r\n"))
            assert client.hear().told == (403, "credential_mismatch")
        assert world.arrived == []

    def test_no_value_is_in_the_log_or_in_what_is_said(self, world: World) -> None:
        world.one.answering = lambda got: Reply(got.values("x-api-key")[0].encode())
        world.ask("h1", "keyed", "GET /?k=v", [("x-api-key", HOLDER)])
        world.ask("h1", "keyed", "GET /", [("x-api-key", KEY)])
        world.ask("h1", "keyed", f"GET /{HOLDER}", [("x-api-key", "sk-attacker")])
        everything = world.gate.audit.read_text() + "\n".join(world.gate.said)
        assert KEY not in everything
        assert "sk-attacker" not in everything


def _basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@VERSIONS
class TestEchoes:
    """A server that says the key back tells it to nobody."""

    def echo(self, world: World, version: str, reply: Reply, host: str = "keyed") -> Heard:
        world.one.answering = world.two.answering = lambda _: reply
        heard = world.ask(version, host, "GET /", [("x-api-key", HOLDER)])
        assert KEY not in str(heard)
        assert (world.one.got + world.two.got)[-1].values("accept-encoding") == ["identity"]
        return heard

    def test_in_the_body(self, world: World, version: str) -> None:
        for host in ("keyed", "keyed2"):
            heard = self.echo(world, version, Reply(f"<{KEY}>{KEY}{KEY}".encode()), host)
            assert heard.body == f"<{STARS}>{STARS}{STARS}".encode()

    @pytest.mark.parametrize("pieces", [2, 3, 7, 26])
    def test_in_pieces(self, world: World, version: str, pieces: int) -> None:
        heard = self.echo(world, version, Reply(f"<{KEY}>".encode(), pieces=pieces))
        assert heard.body == f"<{STARS}>".encode()

    def test_in_headers_a_redirect_and_a_cookie(self, world: World, version: str) -> None:
        fields = [("location", f"https://evil.test/?k={KEY}"), ("set-cookie", f"k={KEY}"), ("x-echo", KEY)]
        heard = self.echo(world, version, Reply(b"", fields, f"302 Found {KEY}"))
        assert heard.status == 302
        assert heard.fields["location"] == f"https://evil.test/?k={STARS}"

    def test_in_an_error(self, world: World, version: str) -> None:
        heard = self.echo(world, version, Reply(f'{{"error": "bad key {KEY}"}}'.encode(), status=f"401 {KEY}"))
        assert (heard.status, heard.body) == (401, f'{{"error": "bad key {STARS}"}}'.encode())

    @pytest.mark.parametrize("coding", ["gzip", "deflate"])
    def test_compressed(self, world: World, version: str, coding: str) -> None:
        packed = gzip.compress(f"<{KEY}>".encode()) if coding == "gzip" else _deflated(f"<{KEY}>".encode())
        heard = self.echo(world, version, Reply(packed, [("content-encoding", coding)]))
        assert heard.body == f"<{STARS}>".encode()

    @pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "unheard-of"])
    def test_what_cannot_be_read_through_is_not_passed(self, world: World, version: str, coding: str) -> None:
        heard = self.echo(world, version, Reply(KEY.encode(), [("content-encoding", coding)]))
        assert heard.told == (502, "bad_response")

    def test_in_trailers(self, world: World, version: str) -> None:
        heard = self.echo(world, version, Reply(trailers=[("x-echo", KEY), ("grpc-message", f"bad {KEY}")]), "keyed2")
        assert heard.fields.get("grpc-message", f"bad {STARS}") == f"bad {STARS}"

    def test_of_a_token_in_basic(self, world: World, version: str) -> None:
        world.one.answering = lambda got: Reply(got.values("authorization")[0].encode() + f" {TOKEN}".encode())
        heard = world.ask(version, "token", "GET /", [("authorization", _basic(f"x:{TOKEN_HOLDER}"))])
        assert TOKEN.encode() not in heard.body
        assert _basic(f"x:{TOKEN}").split()[1].encode() not in heard.body

    def test_of_a_token_in_basic_that_another_request_sent(self, world: World, version: str) -> None:
        for user in ("", "x", "git"):
            kept = base64.b64encode(f"{user}:{TOKEN}".encode()).decode()
            world.one.answering = lambda _, kept=kept: Reply(f"{kept} is it".encode())
            told = world.ask(version, "token", "GET /").body.split()[0]
            assert len(told) == len(kept)
            assert told.count(b"*") >= len(TOKEN) * 4 // 3 - 2


def _deflated(data: bytes) -> bytes:
    import zlib

    return zlib.compress(data)


class TestUploads:
    @pytest.mark.parametrize("host", ["small", "small2"])
    @VERSIONS
    def test_an_announced_length_over_the_limit_goes_nowhere(self, world: World, version: str, host: str) -> None:
        assert world.ask(version, host, "POST /", body=b"x" * 1025).told == (413, "upload_limit")
        assert world.ask(version, host, "POST /", body=b"x" * 1024).status == 200
        assert world.arrived == ["POST /"]

    def test_chunks_count_as_they_come(self, world: World) -> None:
        with world.inside.http1("small.test") as client:
            chunks = b"200\r\n" + b"x" * 512 + b"\r\n"
            client.say(request("POST /", "small", "Transfer-Encoding: chunked\r\n", chunks * 3 + b"0\r\n\r\n"))
            assert client.hear().told == (413, "upload_limit")
        assert world.arrived == []
        assert world.one.raw.count(b"x") <= 1024 + len("transfer-encoding: x")

    @pytest.mark.parametrize("host", ["small", "small2"])
    def test_a_stream_without_a_length_counts_as_it_comes(self, world: World, host: str) -> None:
        with world.inside.http2(f"{host}.test") as client:
            assert client.hear(client.ask(head(host, "/", "POST"), body=b"x" * 1025)).status in (0, 413)
        assert world.arrived == []

    def test_a_session_has_one_budget_over_requests_connections_and_plain_http(self, world: World) -> None:
        body = b"x" * 1500
        assert world.ask("h1", "session", "POST /1", body=body).status == 200
        with closing(Http1(socket.create_connection(("127.0.0.1", world.gate.port)))) as client:
            client.say(request("POST http://session.test/2", "session", "Content-Length: 1500\r\n", body))
            assert client.hear().status == 200
            client.say(request("POST http://session.test/3", "session", "Content-Length: 1500\r\n", body))
            assert client.hear().told == (413, "upload_limit")
        assert world.ask("h2", "session", "POST /4", body=body).told == (413, "upload_limit")
        assert world.arrived == ["POST /1", "POST /2"]

    def test_a_refused_upload_is_not_kept(self, world: World) -> None:
        world.ask("h1", "reading", "GET /")
        before = world.resident
        with world.inside.http1("reading.test") as client:
            client.say(request("POST /", "reading", "Transfer-Encoding: chunked\r\n"))
            chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
            try:
                for _ in range(500):
                    client.sock.sendall(chunk)
            except OSError:
                pass
            assert world.resident - before < 32 * MIB
        assert world.arrived == ["GET /"]


class TestASocket:
    """A WebSocket has one request, and then messages without end."""

    def test_its_answers_are_masked_and_its_uploads_counted(self, world: World) -> None:
        world.socket.seen.clear()
        client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        with world.inside.http1("socket.test") as inside:
            asked = wsproto.events.Request("socket.test", "/", extra_headers=[(b"x-api-key", HOLDER.encode())])
            inside.say(client.send(asked))
            assert isinstance(self.hear(client, inside.sock), wsproto.events.AcceptConnection)
            inside.say(client.send(wsproto.events.TextMessage("small")))
            said = self.hear(client, inside.sock)
            assert isinstance(said, wsproto.events.TextMessage)
            assert said.data == f"small {STARS}"
            inside.say(client.send(wsproto.events.TextMessage("x" * 2000)))
            assert not isinstance(self.hear(client, inside.sock), wsproto.events.TextMessage)
        assert world.socket.seen == ["small"]

    @staticmethod
    def hear(client: wsproto.WSConnection, sock: socket.socket) -> wsproto.events.Event | None:
        """The next event; None at the end."""
        while True:
            for event in client.events():
                return event
            try:
                data = sock.recv(65536)
            except OSError:
                return None
            if not data:
                return None
            client.receive_data(data)


class TestFaults:
    def test_an_engine_that_is_killed_lets_nothing_pass_and_is_replaced(self, fresh: Callable[..., Any]) -> None:
        with fresh() as world, world.inside.http1("small.test") as client:
            client.say(request("POST /1", "small", "Content-Length: 9\r\n", b"half"))
            until(lambda: b"half" in world.one.raw)
            killed = world.engine
            os.kill(killed, signal.SIGKILL)
            assert client.hear() == NOTHING
            until(lambda: any("another is being started" in line for line in world.gate.said))
            assert world.ask("h1", "reading", "POST /2", body=b"x").told == (403, "method_not_listed")
            assert world.ask("h1", "reading", "GET /3").status == 200
            assert world.engine != killed
            assert world.arrived == ["GET /3"]

    def test_a_request_that_cannot_be_put_on_record_goes_nowhere(self, fresh: Callable[..., Any]) -> None:
        with fresh() as world, world.inside.http1("other.test") as client:
            client.say(request("GET /1", "other"))
            assert client.hear().status == 200
            log, aside = world.gate.audit, world.gate.audit.with_suffix(".aside")
            log.rename(aside)
            log.mkdir()
            client.say(request("GET /2", "other"))
            assert client.hear().told == (503, "audit_unavailable")
            log.rmdir()
            aside.rename(log)
            assert world.ask("h2", "other", "GET /3").status == 200
            assert world.arrived == ["GET /1", "GET /3"]

    def test_a_killed_engine_takes_no_count_with_it(self, fresh: Callable[..., Any]) -> None:
        with fresh() as world:
            assert world.ask("h1", "session", "POST /1", body=b"x" * 4000).status == 200
            killed = world.engine
            os.kill(killed, signal.SIGKILL)
            until(lambda: any("another is being started" in line for line in world.gate.said))
            assert world.ask("h1", "session", "POST /2", body=b"x" * 4000).told == (413, "upload_limit")
            assert world.arrived == ["POST /1"]

    def test_the_next_request_is_judged_by_the_policy_as_edited(self, fresh: Callable[..., Any]) -> None:
        with fresh() as world, world.inside.http1("reading.test") as client:
            client.say(request("GET /1", "reading"))
            assert client.hear().status == 200
            text = world.gate.policy.read_text()
            world.gate.policy.write_text(text.replace("methods: [GET, HEAD]", "methods: [HEAD]"))
            until(lambda: any("policy reloaded" in line for line in world.gate.said))
            client.say(request("GET /2", "reading"))
            assert client.hear().told in ((403, "method_not_listed"), (0, ""))
            assert world.arrived == ["GET /1"]


class TestFloods:
    def test_header_lines_without_end(self, world: World) -> None:
        with world.inside.http1("other.test") as client:
            client.say(request("GET /", "other", "x: y\r\n" * 20_000))
            assert client.hear().status in (400, 431)
        assert world.arrived == []

    def test_one_that_asks_for_hundreds_of_lines_to_be_judged(self, world: World) -> None:
        with world.inside.http1("both.test") as client:
            client.say(request("GET /ok", "both", "a:\r\n" * 15_000))
            assert client.hear().told == (431, "too_large")
        assert world.ask("h2", "both", "GET /ok", [(f"x-{number}", "") for number in range(300)]).status == 431
        assert world.gate.records(via="inspect") == []
        assert world.arrived == []

    @pytest.mark.parametrize(("host", "path"), [("both", "/ok"), ("both", "/refused"), ("downgraded", "/ok")])
    def test_streams_that_are_reset_at_once_cost_little(self, world: World, host: str, path: str) -> None:
        world.ask("h2", host, "GET /ok")
        before = world.resident
        with world.inside.http2(f"{host}.test") as client, suppress(OSError):  # it is cut off
            for _ in range(10_000):
                number = client.h2.get_next_available_stream_id()
                client.h2.send_headers(number, head(host, path), end_stream=True)
                client.h2.reset_stream(number, 8)
                client.flush()
        until(lambda: "limit" in world.refusals)
        assert world.ask("h2", host, "GET /ok").status == 200
        assert world.resident - before < 16 * MIB
        assert world.refusals.count("limit") == 1
        (limit,) = world.gate.records(event="decision", reason="limit")
        assert (limit["via"], limit["host"]) == ("connect", f"{host}.test")
        assert len(world.gate.records(event="decision", via="inspect")) < 1000

    def test_others_are_served_while_one_sends_pings_without_end(self, world: World) -> None:
        with world.inside.http2("both.test") as flood, world.inside.http2("both.test") as client:
            with suppress(OSError):
                for _ in range(100):
                    flood.sock.sendall((b"\0\0\x08\x06\0\0\0\0\0" + b"12345678") * 1000)
            assert client.hear(client.ask(head("both"))).status == 200
        until(lambda: world.refusals == ["limit"])
