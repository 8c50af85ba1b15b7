"""Why a request is blocked, as the page is told it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from controlkit import Controlled, controlled
from gatekit import rule
from policykit import one_rule

from egress.rules import Headers, Requests, Rule, Secret

READ = Requests(methods=frozenset({"GET"}), paths=("/v1/**",))
RUN = Requests(methods=frozenset({"POST"}), paths=("/v1/*/run",), headers=Headers(forbid=("x-debug",)))
ALLOW = (
    rule("plain.test"),
    rule("api.test", requests=READ),
    rule("api.test", requests=RUN),
    rule("api.test", requests=Requests(secret=Secret("x-key", env="KEY"))),
    rule("raw.test:8080", requests=READ),
)
DENY = (rule("denied.test"),)


async def why(c: Controlled, target: str) -> dict[str, Any]:
    answer = await c.say(f"GET /api/why?persona=p&target={quote(target, safe='')}", unix=True)
    assert answer.status == 200
    return json.loads(answer.body)


async def ask(tmp_path: Path, target: str, allow: tuple[Rule, ...] = ALLOW) -> dict[str, Any]:
    async with controlled(tmp_path, allow=allow, deny=DENY, environ={"KEY": "do-not-tell"}) as c:
        return await why(c, target)


@pytest.mark.parametrize(
    ("target", "asked", "verdict", "reason"),
    [
        ("GET https://api.test/v1/x", "GET https://api.test/v1/x", "allow", "listed"),
        ("https://api.test/v1/x?a=b#c", "GET https://api.test/v1/x?a=b", "allow", "listed"),
        ("POST https://api.test/v1/x/run", "POST https://api.test/v1/x/run", "allow", "listed"),
        ("POST api.test/v1/x", "POST https://api.test/v1/x", "deny", "path_not_listed"),
        ("PUT https://api.test/v1/x", "PUT https://api.test/v1/x", "deny", "method_not_listed"),
        ("https://api.test/v1/?_method=PUT", "GET https://api.test/v1/?_method=PUT", "deny", "method_not_listed"),
        ("https://api.test/v1/../x", "GET https://api.test/v1/../x", "deny", "ambiguous_path"),
        ("http://api.test:443/v1/x", "GET http://api.test:443/v1/x", "deny", "not_tls"),
        ("https://raw.test:8080/v1/x", "GET https://raw.test:8080/v1/x", "deny", "not_http"),
        ("POST https://plain.test/x", "POST https://plain.test/x", "allow", "listed"),
        ("POST http://plain.test:443/x", "POST http://plain.test:443/x", "deny", "not_tls"),
        ("https://plain.test/x", "plain.test:443", "allow", "listed"),
        ("POST https://denied.test/x", "POST https://denied.test/x", "deny", "denied"),
        ("POST https://evil.test/x", "POST https://evil.test/x", "deny", "not_listed"),
        ("POST https://169.254.169.254/x", "POST https://169.254.169.254/x", "deny", "metadata_address"),
        ("POST https://127.1/x", "https://127.1", "deny", "malformed_host"),
        ("api.test", "api.test:443", "allow", "listed"),
    ],
)
async def test_a_request_is_judged_and_not_only_its_host(
    tmp_path: Path, target: str, asked: str, verdict: str, reason: str
) -> None:
    told = await ask(tmp_path, target)
    assert (told["asked"], told["verdict"], told["reason"]) == (asked, verdict, reason)


async def test_the_answer_names_the_rule_that_judged_the_request_and_its_terms(tmp_path: Path) -> None:
    told = await ask(tmp_path, "POST https://api.test/v1/x/run")
    assert (told["rule"], told["remedy"]) == ("test.yaml:1 api.test", [])
    assert told["terms"] == "private inspected methods=POST paths=/v1/*/run forbid=x-debug"


async def test_the_sentence_names_the_host_and_the_detail_what_is_wrong_with_the_path(tmp_path: Path) -> None:
    told = await ask(tmp_path, "GET https://api.test/v1/../x")
    assert told["sentence"] == "the path of the request to api.test:443 has more than one reading"
    assert told["detail"] == "the path has a segment . or .."


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        (
            "PUT https://api.test/v1/x",
            ['- {host: api.test, ports: 443, private: true, methods: [PUT], paths: ["/v1/x"]}'],
        ),
        ("PUT https://api.test/a|b", ["add to the methods or paths of test.yaml:1 api.test"]),
        ("POST https://evil.test/x", ["--allow evil.test"]),
        ("POST https://denied.test/x", ["take away the denial test.yaml:1 denied.test"]),
        ("GET https://api.test/v1/../x", []),
        ("POST http://plain.test:443/x", []),
        ("POST https://127.1/x", []),
    ],
)
async def test_it_says_what_would_allow_the_request(tmp_path: Path, target: str, remedy: list[str]) -> None:
    assert (await ask(tmp_path, target))["remedy"] == remedy


async def test_the_rule_that_it_offers_allows_the_request(tmp_path: Path) -> None:
    request = "PUT https://api.test/v2/%7Ea"
    (entry,) = (await ask(tmp_path, request))["remedy"]
    again = await ask(tmp_path, request, (*ALLOW, one_rule(entry.removeprefix("- "))))
    assert (again["verdict"], again["rule"]) == ("allow", "f.yaml:5 api.test")


@pytest.mark.parametrize(
    ("target", "detail"),
    [
        ("", "nothing to check"),
        (" ", "nothing to check"),
        ("get https://api.test/", "'get' is not a method in upper case, such as GET"),
        ("GET https://api.test/ x", "'https://api.test/ x' is not a URL: it has a blank in it"),
        ("GET ssh://api.test/", "'ssh' has no requests that are looked at; expected https or http"),
    ],
)
async def test_what_is_no_question_is_told_with_what_was_expected(tmp_path: Path, target: str, detail: str) -> None:
    told = await ask(tmp_path, target)
    assert (told["verdict"], told["reason"], told["rule"]) == ("deny", "malformed_host", None)
    assert (told["asked"], told["detail"], told["remedy"]) == (target, detail, [])


@pytest.mark.parametrize(
    "target", ["GET https://api.test/v1/\u202ex", "GET https://\x1b[2J/", "get\x00 https://a.test"]
)
async def test_nothing_that_was_typed_is_shown_raw(tmp_path: Path, target: str) -> None:
    told = await ask(tmp_path, target)
    assert told["verdict"] == "deny"
    for shown in ("asked", "sentence", "detail"):
        assert told[shown].isascii()
        assert told[shown].isprintable() or not told[shown]


async def test_the_value_of_a_secret_is_never_part_of_it(tmp_path: Path) -> None:
    for target in ("api.test", "GET https://api.test/v1/x", "PUT https://api.test/v1/x"):
        assert "do-not-tell" not in str(await ask(tmp_path, target))
