from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policykit import policy

from egress import requestpolicy
from egress.model import Decision, Host, Target
from egress.overrides import HOST_HEADERS, METHOD_HEADERS, PATH_HEADERS, check_hosts
from egress.refusals import Reason, Refused
from egress.requestpolicy import MOST_METHODS, Asked, decide_request, methods_of, secrets_of
from egress.rules import Rule
from egress.urlpath import Ambiguous, canonical

TARGET = Target(Host("a.test"), 443)


def rules(*bodies: str) -> tuple[Rule, ...]:
    """Rules of one host; the first stands on line 5."""
    entries = "".join(f"      - {{host: a.test, {body}}}\n" for body in bodies)
    return policy(f"version: 1\npersonas:\n  p:\n    allow:\n{entries}").personas["p"].request_rules(TARGET)


def ask(found: tuple[Rule, ...], method: str, path: str = "/", **fields: str) -> tuple[str, int | None]:
    """The reason, and the line that gave it."""
    asked = Asked(method, path, tuple((name.replace("_", "-"), value) for name, value in fields.items()))
    answer = decide_request(found, asked)
    assert answer.allowed == (answer.reason is Reason.LISTED)
    return str(answer.reason), answer.rule and answer.rule.source.line


SECRET = "secret: {env: KEY, header: x-key}"
READ = rules("methods: [GET, HEAD]", "methods: [POST], paths: ['/*/*/git-upload-pack']")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/acme/x/info/refs?service=git-upload-pack", ("listed", 5)),
        ("HEAD", "/", ("listed", 5)),
        ("POST", "/acme/x/git-upload-pack", ("listed", 6)),
        ("POST", "/acme/x.git/git-upload-pack", ("listed", 6)),
        # a push, a gist, a comment, an upload
        ("GET", "/acme/x/info/refs?service=git-receive-pack", ("path_not_listed", 6)),
        ("GET", "/acme/x/info/refs?service=git-receive-pack&x=1", ("path_not_listed", 6)),
        ("GET", "/acme/x/info/refs?service=git-receive-pack/../git-upload-pack", ("path_not_listed", 6)),
        ("GET", "/acme/x/info/refs?other=git-receive-pack", ("listed", 5)),
        ("HEAD", "/acme/x/info/refs?service=git-receive-pack", ("listed", 5)),
        ("POST", "/acme/x/git-receive-pack", ("path_not_listed", 6)),
        ("POST", "/gists", ("path_not_listed", 6)),
        ("POST", "/repos/acme/x/issues/1/comments", ("path_not_listed", 6)),
        ("PUT", "/api/v1/crates/new", ("method_not_listed", 5)),
        ("DELETE", "/acme/x/git-upload-pack", ("method_not_listed", 5)),
        ("post", "/acme/x/git-upload-pack", ("method_not_listed", 5)),
        ("get", "/", ("method_not_listed", 5)),
        ("", "/", ("method_not_listed", 5)),
        # the same push by other spellings
        ("POST", "/acme/x/git-receive-pack?/git-upload-pack", ("path_not_listed", 6)),
        ("POST", "/acme/x/git-receive-pack%3F/git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/x/git-receive-pack;/git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/x/git-receive-pack%00/git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/git-receive-pack/../git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/%2e%2e/git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/x%2fy/git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/x\\y/git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme//git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/%252e%252e/git-upload-pack", ("ambiguous_path", 5)),
        ("POST", "/acme/x/git%2Dupload%2dpack", ("listed", 6)),
        ("POST", "/acme/x/GIT-UPLOAD-PACK", ("path_not_listed", 6)),
        ("GET", "/a/../b", ("ambiguous_path", 5)),
    ],
)  # fmt: skip
def test_a_host_that_is_there_for_reading_is_not_written_to(
    method: str, path: str, expected: tuple[str, int | None]
) -> None:
    assert ask(READ, method, path) == expected


def test_the_first_rule_that_has_the_request_allows_it() -> None:
    found = rules("methods: [GET], paths: [/a]", "methods: [GET], upload_limit: 0", "inspect: true")
    assert ask(found, "GET", "/a") == ("listed", 5)
    assert ask(found, "GET", "/b") == ("listed", 6)
    assert ask(found, "PUT", "/b") == ("listed", 7)


def test_the_reason_is_the_last_thing_that_was_missing_and_the_rule_the_nearest() -> None:
    found = rules(
        "methods: [PUT], paths: [/a]",
        "methods: [GET], paths: [/b]",
        "methods: [GET], paths: [/c], headers: {require: {x: y}}",
    )
    assert ask(found, "DELETE", "/a") == ("method_not_listed", 5)
    assert ask(found, "GET", "/a") == ("path_not_listed", 6)
    assert ask(found, "GET", "/c") == ("header_not_listed", 7)
    assert ask(found, "GET", "/c", x="y") == ("listed", 7)


def test_inspect_alone_lets_every_request_through() -> None:
    assert ask(rules("inspect: true"), "BREW", "/a/../b", x_original_url="/", x_http_method="PUT") == ("listed", 5)


def test_no_rules_allow_nothing() -> None:
    assert ask((), "GET") == ("not_listed", None)


def test_a_rule_that_only_brings_a_secret_lets_all_through_if_it_stands_alone() -> None:
    alone = rules(SECRET, "secret: {env: OTHER, header: x-other}")
    assert ask(alone, "PUT", "/a/../b") == ("listed", 5)


@pytest.mark.parametrize("order", [1, -1])
def test_a_rule_that_only_brings_a_secret_widens_nothing(order: int) -> None:
    found = rules(*[SECRET, "methods: [GET]"][::order])
    assert ask(found, "GET")[0] == "listed"
    assert ask(found, "PUT")[0] == "method_not_listed"
    assert [secret.env for secret in secrets_of(found)] == ["KEY"]


def test_a_rule_with_a_secret_and_more_has_its_say() -> None:
    found = rules(f"methods: [PUT], {SECRET}", "methods: [GET]")
    assert ask(found, "PUT") == ("listed", 5)
    assert ask(found, "GET") == ("listed", 6)


def test_the_secrets_of_a_host_are_those_of_all_its_rules_once() -> None:
    found = rules("methods: [GET]", SECRET, f"methods: [PUT], {SECRET}", "secret: {file: /f, header: b}")
    assert [secret.header for secret in secrets_of(found)] == ["x-key", "b"]
    assert secrets_of(()) == ()


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ([("accept", "json"), ("tenant", "any")], True),
        ([("accept", " json\t"), ("tenant", "")], True),
        ([("accept", "json"), ("accept", "json"), ("tenant", "a")], True),
        ([("accept", "json"), ("accept", "html"), ("tenant", "a")], False),
        ([("accept", "json, html"), ("tenant", "a")], False),
        ([("accept", "JSON"), ("tenant", "a")], False),
        ([("accept", "json")], False),
        ([("tenant", "a")], False),
        ([], False),
        ([("accept", "json"), ("tenant", "a"), ("x-debug", "")], False),
        ([("accept", "json"), ("tenant", "a"), ("x_debug", "1")], False),
        ([("accept", "json"), ("tenant", "a"), ("x-debugger", "1")], True),
    ],
)
def test_headers_are_required_and_forbidden(fields: list[tuple[str, str]], allowed: bool) -> None:
    found = rules("headers: {require: {accept: json, tenant: '*'}, forbid: [x-debug]}")
    decision = decide_request(found, Asked("GET", "/", fields))
    assert decision.reason is (Reason.LISTED if allowed else Reason.HEADER_NOT_LISTED)


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ([("x-mode", "safe")], True),
        ([("x-mode", "safe"), ("x_mode", "safe")], True),
        ([("x-mode", "safe"), ("x_mode", "evil")], False),
        ([("x_mode", "evil"), ("x-mode", "safe")], False),
        ([("x_mode", "safe")], False),  # which a server that tells them apart does not see
    ],
)
def test_an_underscore_is_no_way_around_a_required_value(fields: list[tuple[str, str]], allowed: bool) -> None:
    found = rules("headers: {require: {x-mode: safe}}")
    assert decide_request(found, Asked("GET", "/", fields)).allowed is allowed


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/", [("x-http-method-override", "DELETE")]),
        ("/", [("x-http-method", "DELETE")]),
        ("/", [("x-method-override", "DELETE")]),
        ("/", [("x-http-method-override", "delete")]),
        ("/", [("x-http-method-override", " Delete ")]),
        ("/", [("x-http-method-override", "GET, DELETE")]),
        ("/", [("x-http-method-override", "GET"), ("x-http-method-override", "DELETE")]),
        ("/", [("x_http_method_override", "DELETE")]),
        ("/", [("x-http_method-override", "DELETE")]),
        ("/", [("x-http-method-override", "")]),
        ("/?_method=DELETE", []),
        ("/?_method=delete", []),
        ("/?a=b&_method=DELETE", []),
        ("/?a=b;_method=DELETE", []),
        ("/?_METHOD=DELETE", []),
        ("/?%5Fmethod=%44ELETE", []),
        ("/?%5f%6d%65%74%68%6f%64=DELETE", []),
        ("/?+_method=DELETE", []),
        ("/?_method=GET&_method=DELETE", []),
        ("/?_HttpMethod=DELETE", []),
        ("/?X-HTTP-Method-Override=DELETE", []),
        ("/?_method", []),
        *(("/", [(name, "DELETE")]) for name in sorted(METHOD_HEADERS)),
        ("/", [("method_override", "DELETE")]),
        ("/?.method=DELETE", []),
        ("/?%2Emethod=DELETE", []),
        ("/?[method=DELETE", []),
        ("/?%5bmethod=DELETE", []),
        ("/?_method%00x=DELETE", []),
        ("/?%5Fmethod%00[]=DELETE", []),
        ("/?.HttpMethod=DELETE", []),
        ("/?x.http.method.override=DELETE", []),
        ("/?X_HTTP_Method_Override=DELETE", []),
    ],
)
def test_a_method_that_is_said_a_second_time_must_be_listed_too(path: str, fields: list[tuple[str, str]]) -> None:
    found = rules("methods: [GET, POST]")
    for method in ("GET", "POST"):
        assert decide_request(found, Asked(method, path, fields)).reason is Reason.METHOD_NOT_LISTED
    assert decide_request(rules("paths: ['/**']"), Asked("GET", path, fields)).allowed  # where no method is listed


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/", [("x-http-method-override", "POST")]),
        ("/?_method=post", []),
        ("/?method=DELETE", []),
        ("/?a=_method&b=%5Fmethod", []),
        ("/_method=DELETE", []),
        ("/?%00_method=DELETE&a_method=DELETE&methods=x", []),
        ("/", [("access-control-request-method", "DELETE"), ("x-stainless-helper-method", "stream")]),
    ],
)
def test_what_says_no_other_method_than_those_listed_passes(path: str, fields: list[tuple[str, str]]) -> None:
    assert decide_request(rules("methods: [GET, POST]"), Asked("GET", path, fields)).allowed


def test_a_second_method_is_judged_with_the_path_as_the_first_is() -> None:
    found = rules("methods: [POST], paths: [/a]", "methods: [DELETE], paths: [/b]")
    assert ask(found, "POST", "/a", x_http_method_override="DELETE") == ("path_not_listed", 6)
    assert methods_of(Asked("POST", "/?_method=delete", [("x-http-method", "post")])) == ["POST", "DELETE"]


@pytest.mark.parametrize(("written", "allowed"), [("A, B", True), ("A, B, C", True), ("A, B, C, D", False)])
def test_whoever_says_more_methods_than_a_few_is_refused_whatever_they_are(written: str, allowed: bool) -> None:
    found = rules("methods: [GET, A, B, C, D]")
    assert decide_request(found, Asked("GET", "/", [("x-http-method", written)])).allowed is allowed


def test_methods_are_read_no_further_than_to_see_that_they_are_too_many() -> None:
    fields: Any = iter([("x-http-method", "A, B, C, D, E")] * 3)
    assert len(methods_of(Asked("GET", "/", fields))) == MOST_METHODS + 1
    assert len(list(fields)) == 2


def test_a_method_that_is_said_a_thousand_times_is_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    judge = requestpolicy._judge

    def counting(found: list[Rule], method: str, path: str, said: requestpolicy.Said) -> Decision:
        judged.append(method)
        return judge(found, method, path, said)

    monkeypatch.setattr(requestpolicy, "_judge", counting)
    fields = [("x-http-method", ",".join(["A"] * 13))] * 1000
    assert decide_request(rules("methods: [GET, A]"), Asked("GET", "/", fields)).allowed
    assert judged == ["GET", "A"]


@pytest.mark.parametrize("name", [*sorted(PATH_HEADERS), "x_original_url", "x-rewrite_url"])
def test_a_path_that_is_said_a_second_time_is_refused_where_paths_are_listed(name: str) -> None:
    asked = Asked("GET", "/a", [(name, "/a")])
    assert decide_request(rules("paths: [/a]"), asked).reason is Reason.AMBIGUOUS_PATH
    assert decide_request(rules("methods: [GET]", "paths: [/b]"), asked).reason is Reason.AMBIGUOUS_PATH
    assert decide_request(rules("methods: [GET]"), asked).allowed


def test_where_no_paths_are_listed_none_is_ambiguous() -> None:
    assert ask(rules("methods: [GET]"), "GET", "/@scope%2fname") == ("listed", 5)


BITS = st.sampled_from(["a", "b", "/", ".", "%61", "%2e", "%2F", "%41", "A", "%C3%A9", "%c3%a9", "-", "%2d", "%2D"])
RAW = st.lists(BITS, max_size=6).map(lambda bits: "/" + "".join(bits))
GLOBS = st.lists(st.sampled_from(["/a", "/*", "/**", "/a/**", "/**/b", "/a*", "/A", "/%C3%A9", "/*-*"]), min_size=1)


def judged(found: tuple[Rule, ...], path: str) -> tuple[Reason, Rule | None]:
    decision = decide_request(found, Asked("GET", path))
    return decision.reason, decision.rule


@given(GLOBS, RAW, st.data())
def test_two_spellings_of_one_path_get_one_answer(globs: list[str], raw: str, data: st.DataObject) -> None:
    def spell(found: re.Match[str]) -> str:
        escape = f"%{ord(found[0]):02x}"
        return data.draw(st.sampled_from([found[0], escape, escape.upper()]))

    found = rules(f"methods: [GET, PUT], paths: {globs}")
    try:
        path = canonical(raw)
    except Ambiguous:
        assert judged(found, raw)[0] is Reason.AMBIGUOUS_PATH
        return
    other = "".join(
        part if part.startswith("%") else re.sub("[A-Za-z0-9.-]", spell, part) for part in re.split("(%..)", path)
    )
    assert canonical(other) == path
    assert judged(found, other) == judged(found, raw) == judged(found, path)


def test_who_may_get_only_hears_of_it_before_git_posts() -> None:
    found = rules("methods: [GET]")
    assert ask(found, "GET", "/acme/x/info/refs?service=git-upload-pack") == ("method_not_listed", 5)
    assert ask(found, "GET", "/acme/x/info/refs") == ("listed", 5)


def test_who_may_push_may_ask_for_it() -> None:
    found = rules("methods: [GET]", "methods: [POST], paths: ['/*/*/git-receive-pack']")
    assert ask(found, "GET", "/acme/x/info/refs?service=git-receive-pack") == ("listed", 5)


# The host, said again


@pytest.mark.parametrize("name", [*sorted(HOST_HEADERS), "x_forwarded_host"])
def test_a_host_that_is_said_again_is_the_same_or_the_request_is_refused(name: str) -> None:
    for same in ("a.test", "A.Test.", "a.test:443", "a.test, a.test"):
        check_hosts([("accept", "b.test"), (name, same)], TARGET)
    for other in ("b.test", "a.test:80", "a.test, b.test", "b.test,a.test", "", "a.test@b.test", "https://a.test"):
        with pytest.raises(Refused) as caught:
            check_hosts([(name, other)], TARGET)
        assert (caught.value.reason, caught.value.detail) == (
            Reason.HOST_MISMATCH,
            f"its {name} header names another host",
        )


@pytest.mark.parametrize(
    "value", ["for=192.0.2.60", "for=1.2.3.4;host=a.test", 'by=x; Host="a.test:443", host=a.test', ""]
)
def test_forwarded_may_name_the_host(value: str) -> None:
    check_hosts([("forwarded", value)], TARGET)


@pytest.mark.parametrize(
    "value",
    ["host=b.test", "for=x;HOST=b.test", 'for=x, for=y; host="b.test"', "host = b.test", "host=a.test;host=b.test"],
)
def test_forwarded_may_name_no_other(value: str) -> None:
    with pytest.raises(Refused):
        check_hosts([("forwarded", value)], TARGET)
