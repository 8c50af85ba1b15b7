"""The live page in a real browser, on a gate with real connections.

With EGRESS_SCREENSHOTS=DIRECTORY it also writes there what the documentation shows.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from controlkit import Controlled, controlled
from gatekit import PATIENCE, Http, rule, upstream
from playwright import async_api as api
from programs import need

from egress.counsel import Asking
from egress.model import Decision, Host, Target, Verdict, Via
from egress.refusals import Reason

pytestmark = pytest.mark.scenario
ARGUMENTS = ["--no-sandbox", "--host-resolver-rules=MAP rebound.test 127.0.0.1"]  # root has no sandbox in chromium
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Controlled]:
    names = ("allowed.test", "asked.test", "github.com", "api.anthropic.com")
    allow = tuple(map(rule, ("allowed.test", "github.com", "*.github.com", "api.anthropic.com")))
    async with upstream(Http(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")) as server:
        hosts = dict.fromkeys(names, server.port)
        async with controlled(tmp_path, allow=allow, deny=(rule("gist.github.com"),), hosts=hosts) as made:
            yield made


@pytest.fixture
async def page(gate: Controlled) -> AsyncIterator[api.Page]:
    """Opened by its link. What the page itself finds wrong is an error, and so is a request to anywhere else."""
    need("chromium")
    async with api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        opened = await browser.new_page(viewport={"width": 1280, "height": 800})
        opened.set_default_timeout(PATIENCE * 1000)
        wrong: list[str] = []
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        opened.on("request", lambda asked: asked.url.startswith(f"http://{gate.host}/") or wrong.append(asked.url))
        await opened.goto(gate.control.link)
        await opened.wait_for_selector("#live[data-state=on]")
        yield opened
        await browser.close()
        assert wrong == []


class AskingNearby(Asking):
    """What a person allows may lead to loopback, where the tests' upstreams are."""

    async def consider(self, persona: str, via: Via, target: Target, refusal: Decision) -> Decision:
        decision = await super().consider(persona, via, target, refusal)
        return decision._replace(rule=decision.rule and decision.rule._replace(private=True))


def record(gate: Controlled, host: str, allowed: bool = False) -> None:
    """A decision on record, as any of the faces puts it there."""
    verdict, reason = (Verdict.ALLOW, Reason.LISTED) if allowed else (Verdict.DENY, Reason.NOT_LISTED)
    audit = gate.kit.gateway.audit
    audit.decision(audit.next_id(), "p", Via.CONNECT, host, 443, Decision(verdict, reason))


async def get(gate: Controlled, host: str) -> bytes:
    request = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    return await gate.kit.ask(request.encode())


async def test_what_is_blocked_appears_and_the_token_is_gone_from_the_address(gate: Controlled, page: api.Page) -> None:
    assert page.url == f"http://{gate.host}/"
    assert b"403" in await get(gate, "evil.test")
    row = page.locator(".rows .row[data-verdict=deny]")
    await api.expect(row).to_contain_text("evil.test:80")
    await api.expect(row).to_contain_text("not listed")
    await api.expect(page.locator("#count-blocked")).to_have_text("1")
    assert b"ok" in await get(gate, "allowed.test")
    await api.expect(page.locator(".rows .row").first).to_contain_text("allowed.test")
    await api.expect(page.locator(".hosts li").first).to_contain_text("evil.test1 blocked")


async def test_a_held_request_goes_through_when_the_page_says_so(gate: Controlled, page: api.Page) -> None:
    gate.kit.gateway.counsel = AskingNearby(gate.questions)
    held = asyncio.create_task(get(gate, "asked.test"))
    question = page.locator(".question")
    await api.expect(question).to_contain_text("asked.test:80")
    assert not held.done()
    await question.get_by_role("button", name="session").click()
    assert (await asyncio.wait_for(held, PATIENCE)).endswith(b"\r\n\r\nok")
    await api.expect(question).to_have_count(0)
    assert gate.kit.records(event="decision", host="asked.test")[0]["reason"] == "answered"
    again = await asyncio.wait_for(get(gate, "asked.test"), PATIENCE)  # without another question
    assert again.endswith(b"\r\n\r\nok")


async def test_a_key_answers_the_first_question_once_it_could_be_read(gate: Controlled, page: api.Page) -> None:
    asked = asyncio.create_task(gate.questions.ask("p", Target(Host("asked.test"), 443), "not_listed"))
    await page.wait_for_selector(".question[data-armed=true]")
    await page.keyboard.press("n")
    assert await asyncio.wait_for(asked, PATIENCE) == "no"


async def test_a_host_name_with_markup_does_nothing(gate: Controlled, page: api.Page) -> None:
    record(gate, HOSTILE)
    row = page.locator(".rows .row").first
    await api.expect(row.locator(".host")).to_contain_text(HOSTILE)
    await row.click()
    await api.expect(page.locator("#details h2")).to_contain_text(HOSTILE)
    await page.get_by_role("button", name="why?").click()
    await api.expect(page.locator("#why")).to_be_visible()
    await page.keyboard.press("d")
    await page.wait_for_selector("pre.draft")
    assert await page.locator("main img, dialog img, main script, dialog script").count() == 0
    assert await page.title() == "egress"


async def test_ten_thousand_rows_are_a_few_elements(gate: Controlled, page: api.Page) -> None:
    for number in range(10_500):
        record(gate, f"host{number}.test")
    await api.expect(page.locator(".rows .row").first).to_contain_text("host10499.test")
    assert await page.locator(".rows .row").count() < 60
    await page.evaluate("document.getElementById('rows').scrollTop = 1e9")
    await api.expect(page.locator(".rows")).to_contain_text("host500.test")
    await api.expect(page.locator(".rows")).not_to_contain_text("host499.test")
    assert await page.locator(".rows .row").count() < 60
    await page.fill("#search", "host777.test")
    await api.expect(page.locator(".rows .row")).to_have_count(1)


async def test_a_search_says_why(page: api.Page) -> None:
    await page.keyboard.press("/")
    await page.keyboard.type("why is gist.github.com blocked?")
    await page.keyboard.press("Enter")
    await api.expect(page.locator("#why")).to_contain_text("gist.github.com:443 is on the deny list of persona p")
    await page.fill("#search", "api.anthropic.com")
    await page.press("#search", "Enter")
    await api.expect(page.locator("#why h2")).to_have_text("allowed: api.anthropic.com:443")


async def test_rules_and_keys_are_shown(page: api.Page) -> None:
    await page.keyboard.press("r")
    await api.expect(page.locator("#panel-rules")).to_contain_text("*.github.com")
    await page.keyboard.press("?")
    await api.expect(page.locator("#keys")).to_contain_text("answer the first question: for this session")


async def test_on_a_phone_nothing_is_wider_than_the_screen(gate: Controlled, page: api.Page) -> None:
    record(gate, f"{'a' * 60}.{'b' * 60}.{'c' * 60}.test")
    await page.set_viewport_size({"width": 360, "height": 700})
    await api.expect(page.locator(".rows .row").first).to_be_visible()
    for tab in ("hosts", "rules", "draft", "live"):
        await page.locator(f"#tabs [data-tab={tab}]").click()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360


async def test_a_wrong_token_and_a_strange_page_see_nothing(gate: Controlled, page: api.Page) -> None:
    stranger = await (await page.context.browser.new_context()).new_page()
    answer = await stranger.goto(f"http://{gate.host}/?token=wrong")
    assert answer.status == 403
    other = await stranger.goto(f"http://127.0.0.1:{gate.port}/")
    assert other.status == 403
    rebound = await stranger.goto(f"http://rebound.test:{gate.port}/?token={gate.token}")
    assert rebound.status == 403
    assert await stranger.context.cookies() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pictures_for_the_documentation(
    gate: Controlled, page: api.Page, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = ["github.com", "api.anthropic.com", "api.github.com", "telemetry.example", "evil.example"]
    for minute in range(28, 0, -1):  # half an hour of somebody's work
        monkeypatch.setattr("egress.audit.timestamp", functools.partial(_minutes_ago, minute))
        for number in range(minute * minute % 7):
            which = (minute * 3 + number * 7) % 5
            record(gate, seen[which], allowed=which < 3)
    monkeypatch.undo()
    for host in ("github.com", "api.anthropic.com"):
        await get(gate, host)
    held = asyncio.create_task(gate.questions.ask("p", Target(Host("files.example"), 443), "not_listed"))
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": 1100, "height": 640})
    await page.wait_for_selector(".question[data-armed=true]")
    await api.expect(page.locator(".hosts li")).to_have_count(5)
    picture = Path(os.environ.get("EGRESS_SCREENSHOTS", tmp_path)) / f"live-{scheme}.png"
    await page.screenshot(path=picture)
    assert picture.stat().st_size < 200_000
    held.cancel()


def _minutes_ago(count: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=count)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
