"""Policy edits while the gate runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gatekit import Kit, echo, upstream

from egress import enforce, policysources
from egress.app import Gate, Setup
from egress.net.listeners import open_tcp
from egress.policysources import load
from egress.problems import PolicyError
from egress.sessions import Door
from egress.vault import Vault

GOOD = """
version: 1
hosts: {{allowed.test: "127.0.0.1:{port}", other.test: "127.0.0.1:{port}"}}
personas:
  p:
    allow: [{{host: allowed.test, ports: [22], private: true}}, {{host: other.test, ports: [22], private: true}}]
    deny: [{deny}]
"""


class World:
    def __init__(self, kit: Kit, gate: Gate, file: Path, port: int, said: list[str]) -> None:
        self.kit, self.gate, self.file, self.port, self.said = kit, gate, file, port, said

    def write(self, text: str) -> None:
        """As an editor does: a new file in its place."""
        draft = self.file.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.file)

    async def reloaded(self, count: int = 1) -> None:
        while len(self.kit.records(event="policy")) < count:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with upstream(echo) as up:
        file, said = tmp_path / "policy.yaml", []
        file.write_text(GOOD.format(port=up.port, deny=""))
        sources = policysources.locate([str(file)], environ={})
        loop = asyncio.get_running_loop()
        setup = Setup(sources, str(tmp_path / "audit.jsonl"), said.append, Vault({}), personas={"p"})
        gate = Gate(setup, load(sources), loop)
        sock = open_tcp("127.0.0.1", 0)
        gate.open(sock, Door("p"))
        kit = Kit(gate.gateway, gate.reception, sock.getsockname()[1], tmp_path / "audit.jsonl")
        try:
            yield World(kit, gate, file, up.port, said)
        finally:
            await gate.close()


async def test_an_edit_is_noticed_and_closes_what_it_no_longer_allows(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        reader, writer, _ = await w.kit.tunnel("allowed.test:22")
        other, other_writer, _ = await w.kit.tunnel("other.test:22")
        w.write(GOOD.format(port=w.port, deny="allowed.test"))
        with pytest.raises(ConnectionResetError):
            await reader.read()
        other_writer.write(b"still here")
        assert await other.readexactly(10) == b"still here"
        assert b"X-Egress-Reason: denied" in await w.kit.ask(
            b"CONNECT allowed.test:22 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
        )
        assert [r["outcome"] for r in w.kit.records(event="end")] == ["revoked"]
        assert w.kit.records(event="policy")[0]["generation"] == 2
        writer.close()
        other_writer.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        "",
        "null",
        "version: 1\npersonas: [",
        "version: 1\npersonas: {p: {allow: ['*']}}",
        "version: 1\nperson: {}",
        "\0",
    ],
)
async def test_a_bad_edit_keeps_the_last_good_policy_and_is_on_record(tmp_path: Path, nonsense: str) -> None:
    async with world(tmp_path) as w:
        _, writer, _ = await w.kit.tunnel("allowed.test:22")
        w.write(nonsense)
        w.gate.reloader.now()
        await w.reloaded()
        record = w.kit.records(event="policy")[0]
        assert record["generation"] == 1
        assert "policy.yaml" in record["error"]
        assert "policy.yaml" in w.said[0]
        assert len(w.gate.traffic) == 1
        writer.close()


async def test_a_deleted_file_keeps_the_last_good_policy(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.file.unlink()
        await w.reloaded()
        assert w.kit.records(event="policy")[0]["generation"] == 1
        _, writer, answer = await w.kit.tunnel("allowed.test:22")
        assert b" 200 " in answer
        writer.close()


async def test_a_persona_that_an_edit_removed_may_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.write("version: 1\npersonas: {q: {allow: [allowed.test]}}")
        await w.reloaded()
        assert b"X-Egress-Reason: not_listed" in await w.kit.ask(
            b"CONNECT allowed.test:22 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
        )


async def test_taking_private_away_closes_tunnels_that_needed_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        reader, writer, _ = await w.kit.tunnel("allowed.test:22")
        w.write(GOOD.format(port=w.port, deny="").replace(", private: true", ""))
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_an_edit_that_wants_to_look_into_requests_closes_what_was_not_looked_into(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        reader, writer, _ = await w.kit.tunnel("allowed.test:22")
        rule = "{host: allowed.test, ports: [22], private: true, methods: [GET]}"
        w.write(f"version: 1\npersonas: {{p: {{allow: [{rule}]}}}}")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_an_edit_that_needs_a_secret_which_is_not_there_is_not_taken_up(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.write("version: 1\npersonas: {p: {allow: [{host: a.test, secret: {env: KEY, header: x-api-key}}]}}")
        await w.reloaded()
        assert "the secret for a.test: $KEY is not set or empty" in w.kit.records(event="policy")[0]["error"]


def test_a_policy_that_needs_a_secret_which_is_not_there_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "version: 1\npersonas:\n  p:\n    allow:\n      - {host: a.test, secret: {env: KEY, header: x-api-key}}\n"
    )
    sources = policysources.locate([os.fspath(file)], persona="p", environ={})
    with pytest.raises(PolicyError, match=r"policy.yaml:5: the secret for a.test: \$KEY"):
        enforce.load(sources, Vault({}))


async def test_no_engine_is_started_where_no_rule_needs_one(tmp_path: Path) -> None:
    started: list[str] = []
    async with world(tmp_path) as w:
        w.gate.inspection._make_opener = lambda: started.append("engine")  # type: ignore[assignment,func-returns-value,return-value]
        _, writer, _ = await w.kit.tunnel("allowed.test:22")
        writer.close()
    assert started == []
    assert w.gate.inspection._opener is None
