"""Real resolvers ask our nameserver, each in its own way, on port 53 of a network of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from dnsbox import MANY, Came, inside
from programs import need

pytestmark = pytest.mark.scenario

V4, V6 = ip_network("198.18.0.0/15"), ip_network("fd65:6772:6573:7300::/64")


def is_synthetic(text: str) -> bool:
    address = ip_address(text)
    return address in (V6 if address.version == 6 else V4)


def denied(came: Came) -> list[str]:
    return [record["host"] for record in came.records if record["verdict"] == "deny"]


# dig and kdig


def dig(mode: str, *words: str, program: str = "dig") -> Came:
    need(program, "unshare", "ip")
    came = inside(mode, program, *words)
    assert came.code == 0, came
    assert "WARNING" not in came.out + came.err, "the client found something odd in the answer"
    assert "malformed" not in (came.out + came.err).lower()
    return came


DIGS = pytest.mark.parametrize("program", ["dig", "kdig"])
WAYS = [(), ("+tcp",), ("+noedns",), ("+bufsize=4096",), ("+dnssec",), ("@::1",), ("+tcp", "@::1")]


@DIGS
@pytest.mark.parametrize("words", WAYS, ids=lambda words: " ".join(words) or "plain")
def test_dig_gets_an_address_for_every_name_in_a_sandbox(program: str, words: tuple[str, ...]) -> None:
    came = dig("sandbox", *words, "+short", "good.test", "A", "evil.test", "AAAA", program=program)
    first, second = came.out.split()
    assert [is_synthetic(first), is_synthetic(second)] == [True, True]
    assert (denied(came), came.upstream) == (["evil.test"], [])


@DIGS
def test_dig_gets_the_addresses_of_an_allowed_name_by_itself(program: str) -> None:
    came = dig("refused", "+short", "good.test", "A", "good.test", "AAAA", program=program)
    assert came.out.split() == ["9.9.9.9", "2620:fe::9"]
    assert came.upstream == ["good.test."] * 2


@DIGS
@pytest.mark.parametrize(
    ("mode", "status"), [("refused", "REFUSED"), ("nxdomain", "NXDOMAIN"), ("sinkhole", "NOERROR")]
)
def test_dig_shows_why_a_name_is_blocked(program: str, mode: str, status: str) -> None:
    words = ["+edns"] if program == "kdig" else []
    came = dig(mode, *words, "evil.test", program=program)
    assert f"status: {status}" in came.out
    assert "15 (Blocked)" in came.out
    assert "evil.test is not on the allowlist of persona p" in came.out
    assert ("0.0.0.0" in came.out) is (mode == "sinkhole")
    assert (denied(came), came.upstream) == (["evil.test"], [])


@DIGS
def test_dig_does_not_get_a_private_address(program: str) -> None:
    came = dig("refused", "inner.test", program=program)
    assert "status: REFUSED" in came.out
    assert "10.0.0.1" not in came.out
    assert denied(came) == ["inner.test"]


@DIGS
@pytest.mark.parametrize("qtype", ["HTTPS", "SVCB", "TXT", "MX", "SRV", "NS", "SOA", "CAA", "NULL"])
@pytest.mark.parametrize("mode", ["sandbox", "refused"])
def test_dig_gets_no_other_data(program: str, qtype: str, mode: str) -> None:
    came = dig(mode, "good.test", qtype, program=program)
    assert "status: NOERROR" in came.out
    assert "ANSWER SECTION" not in came.out
    assert came.upstream == []


def test_dig_comes_back_over_tcp_for_what_was_cut() -> None:
    came = dig("refused", "+noedns", MANY, "AAAA")
    assert "Truncated, retrying in TCP mode" in came.out
    assert "ANSWER: 16," in came.out
    assert len(came.upstream) == 1


def test_dig_finds_its_own_spelling_again() -> None:
    assert ";gOoD.TeSt.\t" in dig("sandbox", "gOoD.TeSt").out


def test_dig_is_told_about_versions_classes_and_opcodes() -> None:
    assert "status: BADVERS" in dig("sandbox", "+edns=7", "+noednsnegotiation", "good.test").out
    assert "status: REFUSED" in dig("sandbox", "-c", "CH", "version.bind", "TXT").out
    assert "status: NOTIMP" in dig("sandbox", "+noedns", "+opcode=notify", "good.test").out
    assert "status: FORMERR" in dig("sandbox", "+noedns", "+header-only", "good.test").out


def test_kdig_asks_many_things_over_one_connection() -> None:
    names = [f"n{number}.wild.test" for number in range(20)]
    came = dig("sandbox", "+tcp", "+keepopen", "+short", *names, program="kdig")
    assert len({ip for ip in came.out.split() if is_synthetic(ip)}) == 20


def test_dig_resolves_addresses_backwards_to_nothing() -> None:
    assert "status: NXDOMAIN" in dig("sandbox", "-x", "198.18.1.1").out
    assert "status: NXDOMAIN" in dig("sandbox", "-x", "fd65:6772:6573:7300::c612:101").out


# getaddrinfo: of glibc by way of Python, of musl by way of a program of its own


GLIBC = """
import json, socket, sys
for name in sys.argv[1:]:
    try:
        print(name, *sorted({row[4][0] for row in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)}))
    except socket.gaierror as error:
        print(name, {socket.EAI_NONAME: "NONAME", socket.EAI_AGAIN: "AGAIN"}.get(error.errno, error.errno))
"""
MUSL = r"""
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = 0;
        int error = getaddrinfo(words[at], "443", &wanted, &found);
        printf("%s", words[at]);
        if (error) printf(" %s", error == EAI_NONAME ? "NONAME" : error == EAI_AGAIN ? "AGAIN" : gai_strerror(error));
        for (struct addrinfo *each = error ? 0 : found; each; each = each->ai_next) {
            char text[INET6_ADDRSTRLEN];
            void *ip = each->ai_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)each->ai_addr)->sin6_addr
                                                   : (void *)&((struct sockaddr_in *)each->ai_addr)->sin_addr;
            printf(" %s", inet_ntop(each->ai_family, ip, text, sizeof text));
        }
        printf("\n");
    }
    return 0;
}
"""


@pytest.fixture(scope="module", params=["glibc", "musl"])
def libc(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that resolves each of its words, and prints what came of it in a line of its own."""
    need("unshare", "ip")
    if request.param == "glibc":
        return [sys.executable, "-c", GLIBC]
    need("musl-gcc")
    directory: Path = tmp_path_factory.mktemp("musl")
    (directory / "resolve.c").write_text(MUSL)
    command = ["musl-gcc", "-static", "-O1", "-o", str(directory / "resolve"), str(directory / "resolve.c")]
    subprocess.run(command, check=True)
    return [str(directory / "resolve")]


def resolved(mode: str, libc: Sequence[str], *names: str) -> tuple[list[list[str]], Came]:
    came = inside(mode, *libc, *names)
    lines = [line.split() for line in came.out.splitlines()]
    assert [line[0] for line in lines] == list(names), came
    return [sorted(line[1:]) for line in lines], came


def test_getaddrinfo_gets_both_addresses_of_every_name_in_a_sandbox(libc: list[str]) -> None:
    (good, evil, again), came = resolved("sandbox", libc, "good.test", "evil.test", "good.test")
    assert good == again != evil
    assert [ip_address(ip).version for ip in good] == [4, 6]
    assert all(map(is_synthetic, good + evil))
    assert (denied(came), came.upstream) == (["evil.test"], [])


def test_getaddrinfo_knows_localhost(libc: list[str]) -> None:
    (found,), _ = resolved("sandbox", libc, "x.localhost")
    assert {"127.0.0.1"} <= set(found) <= {"127.0.0.1", "::1"}


def test_getaddrinfo_resolves_what_is_allowed(libc: list[str]) -> None:
    (good,), came = resolved("refused", libc, "good.test")
    assert good == ["2620:fe::9", "9.9.9.9"]
    assert sorted(came.upstream) == ["good.test."] * 2


@pytest.mark.parametrize(
    ("mode", "found"), [("refused", ["AGAIN"]), ("nxdomain", ["NONAME"]), ("sinkhole", ["0.0.0.0", "::"])]
)
def test_getaddrinfo_takes_each_way_of_blocking_as_it_is_meant(libc: list[str], mode: str, found: list[str]) -> None:
    (evil,), came = resolved(mode, libc, "evil.test")
    assert evil == found
    assert (denied(came), came.upstream) == (["evil.test"], [])


# Node: c-ares by `resolve`, the C library by `lookup`


NODE = """
const dns = require("node:dns").promises;
const told = (promise) => promise.then((value) => value, (error) => error.code);
(async () => {
  const other = new dns.Resolver();
  other.setServers(["[::1]:53"]);
  console.log(JSON.stringify({
    lookup: await told(dns.lookup("NAME", { all: true })),
    v4: await told(dns.resolve4("NAME", { ttl: true })),
    v6: await told(other.resolve6("NAME")),
    txt: await told(dns.resolveTxt("NAME")),
    any: await told(dns.resolveAny("NAME")),
    reverse: await told(dns.reverse("198.18.1.1")),
  }));
})();
"""


def node(mode: str, name: str) -> tuple[dict[str, object], Came]:
    need("node", "unshare", "ip")
    came = inside(mode, "node", "-e", NODE.replace("NAME", name))
    assert came.code == 0, came.err
    return json.loads(came.out), came


@pytest.mark.parametrize("name", ["good.test", "evil.test"])
def test_node_gets_addresses_and_nothing_else_in_a_sandbox(name: str) -> None:
    told, came = node("sandbox", name)
    ((v4,), (v6,)) = told["v4"], told["v6"]  # type: ignore[misc]
    assert is_synthetic(v4["address"])
    assert v4["ttl"] == 10
    assert is_synthetic(v6)
    assert {found["address"] for found in told["lookup"]} == {v4["address"], v6}  # type: ignore[attr-defined]
    assert (told["txt"], told["any"], told["reverse"]) == ("ENODATA", "EREFUSED", "ENOTFOUND")
    assert came.upstream == []


def test_node_resolves_what_is_allowed() -> None:
    told, _ = node("refused", "good.test")
    assert (told["v4"], told["v6"]) == ([{"address": "9.9.9.9", "ttl": 60}], ["2620:fe::9"])
    assert told["txt"] == "ENODATA"


@pytest.mark.parametrize(("mode", "code"), [("refused", "EREFUSED"), ("nxdomain", "ENOTFOUND")])
def test_node_takes_each_way_of_blocking_as_it_is_meant(mode: str, code: str) -> None:
    told, came = node(mode, "evil.test")
    assert {told["v4"], told["v6"], told["txt"]} == {code}
    assert told["lookup"] == ("EAI_AGAIN" if mode == "refused" else "ENOTFOUND")
    assert came.upstream == []
