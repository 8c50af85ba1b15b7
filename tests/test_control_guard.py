"""Who may see the page, and press its buttons."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controlkit import Controlled, controlled

ANSWER = b'{"id": 1, "choice": "once"}'
TELL = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
TELL += "s.sendall(b'GET /api/rules?persona=p HTTP/1.0\\r\\n\\r\\n'); print(s.recv(64).split()[1].decode())"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Controlled]:
    async with controlled(tmp_path) as made:
        yield made


async def test_the_link_becomes_a_strict_cookie_and_leaves_the_address_bar(page: Controlled) -> None:
    answer = await page.get(f"/?token={page.token}")
    assert (answer.status, answer.fields["location"]) == (303, "/")
    name, *terms = answer.fields["set-cookie"].split("; ")
    assert sorted(terms) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert name.startswith(f"egress_{page.port}=")
    assert page.token not in name
    shown = await page.get("/", Cookie=name)
    assert (shown.status, shown.fields["content-type"]) == (200, "text/html; charset=utf-8")


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/api/events", "/api/rules?persona=p", "/metrics", "/nothing"])
async def test_without_the_cookie_there_is_nothing(page: Controlled, path: str) -> None:
    assert (await page.get(path)).status == 403
    assert (await page.get(path, Cookie=f"egress_{page.port}=guess")).status == 403
    assert (await page.get(path, Cookie=f"egress_{page.port}={page.token}")).status == 403


@pytest.mark.parametrize("token", ["", "wrong", "%00", "%ff%fe", "a" * 5000])
async def test_a_wrong_token_gets_no_cookie(page: Controlled, token: str) -> None:
    answer = await page.get(f"/?token={token}")
    assert answer.status == 403
    assert "set-cookie" not in answer.fields


async def test_the_token_opens_the_page_and_nothing_else(page: Controlled) -> None:
    assert (await page.get(f"/api/rules?persona=p&token={page.token}")).status == 403
    assert (await page.say(f"POST /?token={page.token}", Origin=f"http://{page.host}")).status == 403


@pytest.mark.parametrize(
    "host",
    ["evil.test:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "egress-other.localhost:{port}", "", "[::1]:{port}"],
)
async def test_another_host_is_refused_even_with_cookie_and_token(page: Controlled, host: str) -> None:
    cookie = await page.cookie()
    named = host.format(port=page.port)
    for path in ("/", f"/?token={page.token}", "/api/rules?persona=p"):
        assert (await page.get(path, Host=named, Cookie=cookie)).status in (400, 403)


async def test_two_hosts_are_none(page: Controlled) -> None:
    answer = await page.get("/", Cookie=f"{await page.cookie()}\r\nHost: {page.host}")
    assert answer.status in (400, 403)


async def test_by_its_numbers_the_host_is_ours_as_well(page: Controlled) -> None:
    cookie = await page.cookie()
    for host in (f"127.0.0.1:{page.port}", f"localhost:{page.port}"):
        assert (await page.get("/", Host=host, Cookie=cookie)).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.test", "null", "https://{host}", "http://127.0.0.1:{port}", "http://localhost:8000", None]
)
async def test_only_the_page_itself_may_answer(page: Controlled, origin: str | None) -> None:
    fields = {} if origin is None else {"Origin": origin.format(host=page.host, port=page.port)}
    answer = await page.say("POST /api/answer", ANSWER, Cookie=await page.cookie(), **fields)
    assert answer.status == 403


async def test_the_page_itself_may_answer(page: Controlled) -> None:
    answer = await page.say("POST /api/answer", ANSWER, Cookie=await page.cookie(), Origin=f"http://{page.host}")
    assert (answer.status, answer.body) == (200, b'{"taken":false}')


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_page_may_not_read_either(page: Controlled, site: str) -> None:
    """A page on another port of the same host is `same-site`."""
    cookie = await page.cookie()
    assert (await page.get("/api/rules?persona=p", Cookie=cookie, Sec_Fetch_Site=site)).status == 403
    assert (await page.get("/api/rules?persona=p", Cookie=cookie, Origin="http://127.0.0.1:8000")).status == 403
    assert (await page.get("/api/rules?persona=p", Cookie=cookie, Sec_Fetch_Site="same-origin")).status == 200


async def test_every_answer_forbids_what_the_page_does_not_need(page: Controlled) -> None:
    cookie = await page.cookie()
    for path, fields in (("/", {}), ("/", {"Cookie": cookie}), ("/nothing", {"Cookie": cookie})):
        answer = await page.get(path, **fields)
        policy = dict(part.split(" ", 1) for part in answer.fields["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert answer.fields["x-content-type-options"] == "nosniff"
        assert answer.fields["cache-control"] == "no-store"
        assert answer.fields["referrer-policy"] == "no-referrer"
        assert "server" not in answer.fields


async def test_prometheus_may_bring_the_token_of_the_link(page: Controlled) -> None:
    bearer = f"Bearer {page.token}"
    assert (await page.get("/metrics", Authorization=bearer)).status == 200
    assert (await page.get("/metrics", Authorization="Bearer wrong")).status == 403
    assert (await page.get("/api/rules?persona=p", Authorization=bearer)).status == 403


async def test_a_large_body_is_not_read(page: Controlled) -> None:
    answer = await page.say("POST /api/answer", b" " * 10_000, Cookie=await page.cookie(), Origin=f"http://{page.host}")
    assert answer.status == 413


async def test_the_socket_is_its_owners_alone(page: Controlled) -> None:
    assert stat.S_IMODE(page.unix.stat().st_mode) == 0o600
    assert (await page.say("GET /api/rules?persona=p", unix=True)).status == 200


async def _told(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    return said.decode().strip()


async def test_from_another_network_namespace_the_socket_does_not_answer(page: Controlled) -> None:
    ask = (sys.executable, "-c", TELL, str(page.unix))
    assert await _told(*ask) == "200"
    assert await _told("unshare", "--user", "--map-current-user", "--net", *ask) == "403"


async def test_the_gate_leads_nobody_to_its_page(page: Controlled) -> None:
    listeners = page.kit.gateway.listeners
    tcp = [sock for sock in page.control.listeners if sock.family == socket.AF_INET]
    assert [sock.getsockname() for sock in tcp] == [("127.0.0.1", page.port)]
    assert ("127.0.0.1", page.port) in listeners.exact
    assert os.path.exists(page.unix)
