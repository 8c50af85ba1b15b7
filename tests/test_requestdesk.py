"""One answer for a request, whichever way it comes: may it go, with which credential, how much may it send?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gatekit import gate
from policykit import policy

from egress import controlsocket
from egress.counsel import OBSERVING, Asking, Observing
from egress.model import Target, Verdict
from egress.names import parse_host
from egress.oversight import Oversight, Wishes
from egress.policy import Persona
from egress.policysources import Sources
from egress.refusals import Reason, Refused
from egress.requestdesk import HTTP, HTTPS, Desk, Ruling, check_host
from egress.requestpolicy import Asked
from egress.uploads import Uploads
from egress.vault import Vault

A = parse_host("a.example")
PLACEHOLDER = ("x-key", "egress-placeholder-TOKEN")
SECRET = "secret: {env: TOKEN, header: x-key}"


class Room:
    """A desk, and a persona with one rule for a.example, whose token is `real`."""

    def __init__(self, *rules: str) -> None:
        entries = "".join(f"\n      - {{host: a.example, {rule}}}" for rule in rules)
        vault, self.uploads = Vault({"TOKEN": "real-token"}), Uploads()
        written = policy(f"version: 1\npersonas:\n  p:\n    allow:{entries}\n")
        self.persona: Persona = vault.settle(written, {"p"}).personas["p"]
        self.desk = Desk(vault, self.uploads)

    def judge(self, asked: Asked, scheme: str = HTTPS, port: int = 443, length: int = 0) -> Ruling:
        return self.desk.judge(self.persona, Target(A, port), scheme, asked, length)


@contextlib.contextmanager
def room(*rules: str) -> Iterator[Room]:
    made = Room(*rules)
    try:
        yield made
    finally:
        made.uploads.close()


def test_a_request_that_no_rule_has_is_refused_by_its_reason() -> None:
    with room("methods: [GET]") as it:
        assert it.judge(Asked("GET", "/")).decision.reason is Reason.LISTED
        ruling = it.judge(Asked("POST", "/"))
    assert (ruling.decision.verdict, ruling.decision.reason) == (Verdict.DENY, Reason.METHOD_NOT_LISTED)


def test_a_target_that_is_not_listed_stays_refused_whatever_the_request() -> None:
    with room("inspect: true") as it:
        assert it.judge(Asked("GET", "/"), port=22).decision.reason is Reason.PORT_NOT_LISTED


def test_a_credential_is_put_in_where_it_is_asked_for() -> None:
    with room(SECRET) as it:
        ruling = it.judge(Asked("GET", "/", [PLACEHOLDER]))
    assert ruling.exchange.put == (("x-key", "real-token"),)
    assert b"real-token" in ruling.exchange.masks


def test_another_credential_is_refused_by_the_rule_that_would_have_let_the_request_pass() -> None:
    with room("methods: [GET]", SECRET) as it:
        ruling = it.judge(Asked("GET", "/", [("x-key", "stolen")]))
        assert ruling.decision == (Verdict.DENY, Reason.CREDENTIAL_MISMATCH, it.persona.allow[0], None)
    assert (ruling.detail, ruling.exchange.put) == ("in its x-key header", ())


@pytest.mark.parametrize("field", [("x-forwarded-host", "b.example"), ("forwarded", "for=x;host=b.example")])
def test_a_request_that_names_a_second_host_is_refused_by_its_rule(field: tuple[str, str]) -> None:
    with room("inspect: true") as it:
        ruling = it.judge(Asked("GET", "/", [field]))
        assert ruling.decision == (Verdict.DENY, Reason.HOST_MISMATCH, it.persona.allow[0], None)
        assert it.judge(Asked("GET", "/", [("x-forwarded-host", "a.example")])).decision.allowed


def test_a_request_that_is_refused_gets_no_credential() -> None:
    with room("methods: [GET]", SECRET) as it:
        ruling = it.judge(Asked("POST", "/", [PLACEHOLDER]))
    assert (ruling.decision.reason, ruling.exchange.put) == (Reason.METHOD_NOT_LISTED, ())


def test_a_secret_is_not_put_into_a_request_in_the_clear() -> None:
    with room(SECRET) as it:
        assert it.judge(Asked("GET", "/", [PLACEHOLDER]), HTTP, 80).decision.reason is Reason.NOT_TLS
        assert it.judge(Asked("GET", "/"), HTTP, 80).decision.allowed


def test_a_secret_goes_in_the_clear_where_its_rule_says_so() -> None:
    with room(f"ports: [80], tls: false, {SECRET}") as it:
        assert it.judge(Asked("GET", "/", [PLACEHOLDER]), HTTP, 80).exchange.put == (("x-key", "real-token"),)


def test_a_body_announced_as_too_long_is_refused_before_it_is_sent() -> None:
    with room("upload_limit: 10") as it:
        assert it.judge(Asked("POST", "/"), length=10).decision.allowed
        ruling = it.judge(Asked("POST", "/"), length=11)
    assert (ruling.decision.reason, ruling.detail) == (Reason.UPLOAD_LIMIT, "at most 10 bytes in one request")


def test_what_a_session_has_sent_is_taken_off_what_a_body_may_announce() -> None:
    with room("upload_limit: {session: 10}") as it:
        budget = it.judge(Asked("POST", "/"), length=10).budget
        assert budget is not None
        it.uploads.counts.add(budget.slot, 4)
        assert it.judge(Asked("POST", "/"), length=6).decision.allowed
        assert it.judge(Asked("POST", "/"), length=7).decision.reason is Reason.UPLOAD_LIMIT


def test_an_observing_desk_lets_pass_what_is_not_listed_and_says_so() -> None:
    with room("methods: [GET]", SECRET) as it:
        it.desk.observing = True
        decision = it.judge(Asked("POST", "/")).decision
    assert (decision.reason, decision.would_deny) == (Reason.OBSERVED, Reason.METHOD_NOT_LISTED)


def test_an_observing_desk_still_refuses_ambiguous_paths_other_credentials_and_long_bodies() -> None:
    with room("paths: [/a/**], upload_limit: 5", SECRET) as it:
        it.desk.observing = True
        assert it.judge(Asked("GET", "/a/../b")).decision.reason is Reason.AMBIGUOUS_PATH
        assert it.judge(Asked("GET", "/b", [("x-key", "own")])).decision.reason is Reason.CREDENTIAL_MISMATCH
        assert it.judge(Asked("POST", "/b"), length=6).decision.reason is Reason.UPLOAD_LIMIT


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a", "/a"),
        ("/a?", "/a?"),
        ("/a?key=1&other=2", "/a?key=***&other=***"),
        ("/a?a=b=c", "/a?a=***"),
        ("/a?token", "/a?***"),
        ("/a b", "/a%20b"),
    ],
)
def test_the_values_of_a_query_are_not_put_on_record(path: str, shown: str) -> None:
    assert Desk(Vault({}), Uploads()).shown(Asked("GET", path)) == ("GET", shown)


def test_queries_are_on_record_where_that_is_wanted() -> None:
    desk = Desk(Vault({}), Uploads(), log_queries=True)
    assert desk.shown(Asked("GET", "/a?key=1&token")) == ("GET", "/a?key=1&token")


def test_a_record_has_no_controls_and_an_end() -> None:
    method, path = Desk(Vault({}), Uploads()).shown(Asked("GE\nT", "/\x1b[2J" + "a" * 9000))
    assert (method.isprintable(), path.isprintable()) == (True, True)
    assert len(path) < 2100


@pytest.mark.parametrize(
    ("scheme", "port", "named"),
    [
        (HTTP, 80, "GET http://a.example/x"),
        (HTTPS, 443, "GET https://a.example/x"),
        (HTTP, 443, "GET http://a.example:443/x"),
        (HTTPS, 8443, "GET https://a.example:8443/x"),
    ],
)
def test_a_request_is_named_as_it_can_be_asked_about(scheme: str, port: int, named: str) -> None:
    assert Desk(Vault({}), Uploads()).named(scheme, Target(A, port), Asked("GET", "/x")) == named


@pytest.mark.parametrize(
    ("authority", "scheme", "port"),
    [("a.example", HTTPS, 443), ("A.Example.", HTTPS, 443), ("a.example:443", HTTPS, 443), ("a.example", HTTP, 80),
     ("a.example:8080", HTTP, 8080)],
)  # fmt: skip
def test_a_host_that_is_the_target_passes_in_every_spelling(authority: str, scheme: str, port: int) -> None:
    check_host(authority, Target(A, port), scheme)


@pytest.mark.parametrize(
    ("authority", "scheme", "port"),
    [("b.example", HTTPS, 443), ("a.example", HTTPS, 8443), ("a.example", HTTP, 443), ("a.example:80", HTTPS, 443),
     ("", HTTPS, 443), ("a.example@b.example", HTTPS, 443), ("a.example, b.example", HTTPS, 443),
     ("b.a.example", HTTPS, 443)],
)  # fmt: skip
def test_any_other_host_is_a_mismatch(authority: str, scheme: str, port: int) -> None:
    with pytest.raises(Refused) as caught:
        check_host(authority, Target(A, port), scheme)
    assert caught.value.reason is Reason.HOST_MISMATCH


# A person's part


class Panel:
    """Stands for the live page, and remembers how it was opened."""

    def __init__(self, *made_with: Any) -> None:
        self.made_with, self.metrics = made_with, self
        self.opened: dict[str, Any] = {}
        self.closed = False

    def observe(self, name: str, seconds: float) -> None:
        pytest.fail("nothing is asked for here")

    async def start(self, **wishes: Any) -> str:
        self.opened = wishes
        return "http://link" if wishes["page"] else ""

    async def close(self) -> None:
        self.closed = True


NO_SOURCES = Sources("/nowhere", None)


async def test_a_gate_without_wishes_is_left_as_it_was_and_opens_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    async with gate(tmp_path) as g:
        oversight = Oversight(g.gateway, NO_SOURCES, Wishes(), said.append)
        await oversight.start(lambda *_: pytest.fail("nothing is to be opened"), ["p"])
        await oversight.close()
        assert (g.gateway.counsel, g.gateway.desk.observing, g.gateway.timings) == (None, False, None)
    assert said == []


async def test_observing_is_for_connections_and_requests_and_is_said_aloud(tmp_path: Path) -> None:
    said: list[str] = []
    async with gate(tmp_path) as g:
        oversight = Oversight(g.gateway, NO_SOURCES, Wishes(observe=True), said.append)
        assert isinstance(g.gateway.counsel, Observing)
        assert g.gateway.desk.observing
        await oversight.close()
    assert said == list(OBSERVING)


async def test_who_observes_asks_nobody(tmp_path: Path) -> None:
    async with gate(tmp_path) as g:
        oversight = Oversight(g.gateway, NO_SOURCES, Wishes(observe=True, ask=5.0), lambda _: None)
        assert isinstance(g.gateway.counsel, Observing)
        await oversight.close()


async def test_asking_leaves_requests_to_the_rules(tmp_path: Path) -> None:
    said: list[str] = []
    async with gate(tmp_path) as g:
        oversight = Oversight(g.gateway, NO_SOURCES, Wishes(ask=5.0), said.append)
        assert isinstance(g.gateway.counsel, Asking)
        assert not g.gateway.desk.observing
        await oversight.close()
    assert "waits 5 s" in said[0]


async def test_the_page_is_opened_told_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlsocket, "make_path", lambda session, environ: f"/run/{session}")
    said: list[str] = []
    panels: list[Panel] = []

    def make(*made_with: Any) -> Panel:
        panels.append(Panel(*made_with))
        return panels[0]

    async with gate(tmp_path) as g:
        oversight = Oversight(g.gateway, NO_SOURCES, Wishes(page=True, metrics=("::1", 9)), said.append)
        await oversight.start(make, ["p"])
        assert g.gateway.timings is panels[0].metrics
        assert panels[0].made_with == (g.gateway, None, ["p"])
        await oversight.close()
    assert panels[0].opened == {"page": True, "unix": "/run/test", "metrics": ("::1", 9)}
    assert (said, panels[0].closed) == (["the live page is at http://link"], True)


async def test_without_a_place_for_its_socket_the_page_still_opens_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(session: str, environ: object) -> str:
        raise PermissionError(13, "Permission denied", "/run/egress")

    monkeypatch.setattr(controlsocket, "make_path", nowhere)
    said: list[str] = []
    panel = Panel()
    async with gate(tmp_path) as g:
        oversight = Oversight(g.gateway, NO_SOURCES, Wishes(metrics=("::1", 9)), said.append)
        await oversight.start(lambda *_: panel, ["p"])
        await oversight.close()
    assert panel.opened["unix"] is None
    assert said == ["warning: `egress watch` will only see the log: /run/egress: Permission denied"]


@pytest.mark.parametrize(
    ("wishes", "needs"),
    [(Wishes(), False), (Wishes(observe=True), False), (Wishes(ask=1.0), True), (Wishes(page=True), True),
     (Wishes(metrics=("::1", 9)), True)],
)  # fmt: skip
def test_only_what_people_look_at_needs_a_control(wishes: Wishes, needs: bool) -> None:
    assert wishes.need_control is needs
