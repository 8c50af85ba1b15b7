from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from egress.model import Host, Source, Target
from egress.names import Malformed
from egress.rules import (
    DEFAULT_PORTS,
    Headers,
    Pattern,
    Requests,
    Rule,
    Secret,
    UploadLimit,
    parse_pattern,
    parse_rule,
    parse_target,
)

LABEL = st.from_regex(r"[a-z]([a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=2, max_size=4).map(".".join).map(Host)


@pytest.mark.parametrize(
    ("text", "pattern", "port"),
    [
        ("example.com", Pattern(Host("example.com")), None),
        ("EXAMPLE.com.", Pattern(Host("example.com")), None),
        ("*.example.com", Pattern(Host("example.com"), below=True), None),
        ("*.EXAMPLE.com", Pattern(Host("example.com"), below=True), None),
        ("example.com:22", Pattern(Host("example.com")), 22),
        ("*.example.com:8443", Pattern(Host("example.com"), below=True), 8443),
        ("10.0.0.7", Pattern(Host("10.0.0.7")), None),
        ("10.0.0.7:53", Pattern(Host("10.0.0.7")), 53),
        ("[fd00::7]", Pattern(Host("fd00::7")), None),
        ("[FD00::0007]:443", Pattern(Host("fd00::7")), 443),
        ("localhost", Pattern(Host("localhost")), None),
    ],
)
def test_a_rule_is_a_host_or_everything_below_one_and_a_port(text: str, pattern: Pattern, port: int | None) -> None:
    assert parse_pattern(text) == (pattern, port)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("*", "would allow everything; list the hosts"),
        ("**", "a star stands only in front"),
        ("*:443", "a star stands only in front"),
        ("*x.test", "a star stands only in front"),
        ("a*b.test", "a star stands only in front"),
        ("a.*.test", "a star stands only in front"),
        ("*.*.test", "a star stands only in front"),
        ("**.a.test", "a star stands only in front"),
        ("a.test.*", "a star stands only in front"),
        ("*.", "is not letters, digits and hyphens"),
        ("*..a.test", "is not letters, digits and hyphens"),
        (".a.test", "is not letters, digits and hyphens"),
        ("https://x.test/", "is a URL; write only its host: x.test"),
        ("http://", "is a URL; write only its host: example.com"),
        ("https://*.x.test/y", r"is a URL; write only its host: \*\.x\.test"),
        ("x.test/path", "has a path; write x.test, or a mapping with `paths:`"),
        ("/path", "has a path; write example.com"),
        ("x.test/", "has a path; write x.test"),
        ("10.0.0.0/8", "has a path; write 10.0.0.0"),
        ("", "a host without blanks"),
        (" ", "a host without blanks"),
        ("a.test b.test", "a host without blanks"),
        ("a.test ", "a host without blanks"),
        ("\ta.test", "a host without blanks"),
        ("a.test\n", "a host without blanks"),
        ("a\u00a0b.test", "a host without blanks"),
        ("*.10.0.0.7", "an address has nothing below it; write 10.0.0.7"),
        ("*.[fd00::7]", "an address has nothing below it; write fd00::7"),
        ("fd00::7", "an IPv6 address stands in brackets"),
        ("::1", "an IPv6 address stands in brackets"),
        ("a.test:80:443", "an IPv6 address stands in brackets"),
        ("[fd00::7", "brackets hold an IPv6 address"),
        ("[a.test]", "brackets hold an IPv6 address"),
        ("a.test:", "port '' is not a number"),
        ("a.test:0", "port '0' is not a number"),
        ("a.test:65536", "port '65536' is not a number"),
        ("a.test:*", "a star stands only in front"),
        ("a.test:80,443", "is not a number"),
        ("a.test:80-90", "is not a number"),
        ("a.test:https", "is not a number"),
        ("user@a.test", "is not letters"),
        ("a_b.test", "is not letters"),
        ("münchen.test", "write an international name as xn--"),
        ("127.1", "numeric but not a dotted-quad"),
        ("a.test\0", "is not letters"),
        ("@group", "is not letters"),
        ("~a.test", "is not letters"),
        ("!a.test", "is not letters"),
        ("a.test,b.test", "is not letters"),
        ("/a.test/", "has a path"),
        (r"^.*\.a\.test$", "a star stands only in front"),
    ],
)
def test_anything_else_is_an_error_that_says_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(Malformed, match=advice):
        parse_pattern(text)


@pytest.mark.parametrize(
    "host", ["wild.test", "evilwild.test", "a.wild.test.evil.test", "wild.test.evil", "test", "awild.test"]
)
def test_a_wildcard_takes_neither_its_apex_nor_a_lookalike(host: str) -> None:
    assert not Pattern(Host("wild.test"), below=True).matches(Host(host))


@pytest.mark.parametrize("host", ["a.wild.test", "a.b.wild.test", "a.b.c.d.e.wild.test", "wild.test.wild.test"])
def test_a_wildcard_takes_every_name_below_at_any_depth(host: str) -> None:
    assert Pattern(Host("wild.test"), below=True).matches(Host(host))


@pytest.mark.parametrize(
    "host", ["notallowed.test", "allowed.test.evil.test", "allowedxtest", "a.allowed.test", "allowed.tes"]
)
def test_a_host_takes_itself_alone(host: str) -> None:
    assert Pattern(Host("allowed.test")).matches(Host("allowed.test"))
    assert not Pattern(Host("allowed.test")).matches(Host(host))


@given(NAME, NAME)
def test_a_wildcard_matches_exactly_the_names_that_end_in_a_dot_and_its_base(base: Host, host: Host) -> None:
    pattern = Pattern(base, below=True)
    labels, below = base.split("."), host.split(".")
    assert pattern.matches(host) == (len(below) > len(labels) and below[-len(labels) :] == labels)
    assert pattern.matches(Host(f"{host}.{base}"))
    assert not pattern.matches(base)
    assert not pattern.matches(Host(f"x{base}"))


@given(NAME, st.booleans(), st.none() | st.integers(1, 65535))
def test_a_pattern_prints_as_it_is_written(host: Host, below: bool, port: int | None) -> None:
    pattern = Pattern(host, below)
    text = str(pattern) if port is None else f"{pattern}:{port}"
    assert parse_pattern(text) == parse_pattern(text.upper()) == (pattern, port)


@given(st.text())
def test_any_text_is_a_pattern_or_malformed(text: str) -> None:
    try:
        pattern, _ = parse_pattern(text)
    except Malformed:
        return
    assume(":" not in pattern.host)
    assert parse_pattern(str(pattern)) == (pattern, None)


def test_a_rule_without_a_port_grants_https_and_http_and_denies_every_port() -> None:
    rule = parse_rule("example.com", Source("f.yaml", 3))
    assert rule.ports == DEFAULT_PORTS == {443, 80}
    assert rule.all_ports
    assert str(rule) == "f.yaml:3 example.com"


def test_a_rule_with_a_port_is_about_that_port_alone() -> None:
    rule = parse_rule("*.example.com:22")
    assert rule.ports == {22}
    assert not rule.all_ports


@pytest.mark.parametrize(
    ("tls", "expecting"), [(None, {443}), (True, {22, 80, 443, 8443}), (False, set())], ids=["unsaid", "true", "false"]
)
def test_tls_is_expected_on_443_unless_the_rule_says_otherwise(tls: bool | None, expecting: set[int]) -> None:
    rule = Rule(Pattern(Host("example.com")), tls=tls)
    assert {port for port in (22, 80, 443, 8443) if rule.expects_tls(port)} == expecting


def test_a_rule_that_speaks_of_requests_needs_inspection() -> None:
    rule = parse_rule("example.com")
    assert not rule.needs_inspection
    assert rule._replace(requests=Requests(methods=frozenset({"GET"}))).needs_inspection


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("github.com", Target(Host("github.com"), 443)),
        ("github.com:22", Target(Host("github.com"), 22)),
        ("GitHub.com.", Target(Host("github.com"), 443)),
        ("https://github.com/a/b?c#d", Target(Host("github.com"), 443)),
        ("HTTP://github.com", Target(Host("github.com"), 80)),
        ("http://github.com:8080/x", Target(Host("github.com"), 8080)),
        ("wss://github.com", Target(Host("github.com"), 443)),
        ("ws://github.com", Target(Host("github.com"), 80)),
        ("ssh://git@github.com/a/b.git", Target(Host("github.com"), 22)),
        ("git://github.com/a", Target(Host("github.com"), 9418)),
        ("https://github.com?x=/", Target(Host("github.com"), 443)),
        ("[::1]:80", Target(Host("::1"), 80)),
        ("http://[::1]/", Target(Host("::1"), 80)),
    ],
)
def test_a_person_may_ask_with_a_host_or_a_url(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    ["", "https://", "https:///x", "git@github.com:a/b", "a b", "http://a b/", "github.com:x", "*.github.com", "::1"],
)
def test_what_is_neither_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse_target(text)


@pytest.mark.parametrize(
    ("secret", "placeholder", "source"),
    [
        (Secret("authorization", env="GH_TOKEN"), "egress-placeholder-GH_TOKEN", "$GH_TOKEN"),
        (Secret("x-api-key", file="~/.token"), "egress-placeholder-x-api-key", "the file ~/.token"),
        (Secret("a", env="T", command=("gh", "auth")), "egress-placeholder-T", "the command gh auth"),
    ],
)
def test_a_secret_says_where_it_comes_from_and_what_is_seen_instead(
    secret: Secret, placeholder: str, source: str
) -> None:
    assert (secret.placeholder, secret.source) == (placeholder, source)


def test_a_rule_that_only_brings_a_secret_says_nothing_else_about_requests() -> None:
    requests = Requests(secret=Secret("a", env="A"))
    assert requests.only_brings_a_secret
    assert not Requests(inspect=True).only_brings_a_secret
    more = {"methods": frozenset({"GET"}), "paths": ("/",), "inspect": True}
    more |= {"headers": Headers(forbid=("b",)), "upload_limit": UploadLimit(0)}
    assert more.keys() | {"secret"} == set(Requests._fields)
    assert not any(requests._replace(**{key: value}).only_brings_a_secret for key, value in more.items())
