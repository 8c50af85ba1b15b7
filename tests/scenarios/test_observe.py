"""A gate that observes: what would have been blocked passes, is marked, and becomes a policy that blocks none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gatekit import Http, Names, gate, upstream
from policykit import policy

from egress.counsel import Observing
from egress.draft import draft
from egress.model import Host, Target
from egress.rules import parse_rule
from egress.sightings import SeenRecords

pytestmark = pytest.mark.scenario


def get(target: str) -> bytes:
    return f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n".encode()


@pytest.fixture(autouse=True)
def _loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of a test are on loopback, and what is observed may lead to public addresses only."""
    from egress import policy as judge
    from egress.addresses import Kind, classify

    objection = judge._objection
    monkeypatch.setattr(judge, "classify", lambda ip: Kind.PUBLIC if ip == "127.0.0.1" else classify(ip))
    monkeypatch.setattr(judge, "_objection", lambda at, *more: objection(at._replace(own=False), *more))


async def test_what_is_not_listed_passes_and_is_marked_and_what_is_denied_does_not(tmp_path: Path) -> None:
    web = Http()
    async with upstream(web) as server:
        hosts = dict.fromkeys(("new.test", "denied.test"), server.port)
        async with gate(tmp_path, deny=(parse_rule("denied.test"),), hosts=hosts) as kit:
            kit.gateway.counsel = Observing()
            assert (await kit.ask(get("new.test"))).startswith(b"HTTP/1.1 200 ")
            assert (await kit.ask(get("denied.test"))).startswith(b"HTTP/1.1 403 ")
            passed, refused = kit.records(event="decision")
    assert len(web.heads) == 1
    assert (passed["verdict"], passed["reason"], passed["would_deny"]) == ("allow", "observed", "not_listed")
    assert passed["rule"] == "--observe new.test"
    assert (refused["verdict"], refused["reason"]) == ("deny", "denied")
    assert "would_deny" not in refused


async def test_addresses_that_are_not_public_stay_refused(tmp_path: Path) -> None:
    names = Names({}, anything=["10.0.0.7"])
    async with gate(tmp_path, names=names) as kit:
        kit.gateway.counsel = Observing()
        for target in ("inner.test", "169.254.169.254", "10.0.0.7", "[::1]:80"):
            assert b" 403 " in (await kit.ask(get(target))).split(b"\r\n")[0]
        assert kit.records(event="end") == []
        last = [record["reason"] for record in kit.records(verdict="deny")]
    assert last == ["resolved_private", "metadata_address", "address_literal", "address_literal"]


async def test_the_handshake_must_still_name_the_host(tmp_path: Path) -> None:
    async with upstream(Http()) as server, gate(tmp_path, hosts={"new.test": server.port}) as kit:
        kit.gateway.counsel = Observing()
        reader, writer, reply = await kit.tunnel("new.test:443")
        assert reply.startswith(b"HTTP/1.1 200 ")
        writer.write(b"SSH-2.0-not-tls\r\n")
        await reader.read()
        writer.close()
        assert [record["reason"] for record in kit.records(event="decision")] == ["observed", "not_tls"]


async def test_the_draft_of_an_observed_session_blocks_nothing_of_it_and_allows_no_more(tmp_path: Path) -> None:
    async with upstream(Http()) as server:
        hosts = dict.fromkeys(("a.test", "b.test", "never.test"), server.port)
        async with gate(tmp_path, hosts=hosts) as kit:
            kit.gateway.counsel = Observing()
            for target in ("a.test", "b.test:8080"):
                await kit.ask(get(target))
            records = SeenRecords().entries(kit.audit.read_bytes())
    drafted = policy(draft(records, "d")).personas["d"]
    targets = [("a.test", 80), ("b.test", 8080), ("a.test", 8080), ("b.test", 80), ("never.test", 80)]
    assert [drafted.decide(Target(Host(host), port)).allowed for host, port in targets] == [True, True] + [False] * 3
