from __future__ import annotations

import re

import pytest
from policykit import one_rule, policy, problems

from egress.model import Host, Source
from egress.problems import MAX_PROBLEMS, PolicyError
from egress.rules import Pattern, Requests, Rule, Secret


@pytest.mark.parametrize(
    "entry",
    [
        "'*'", "'*.com'", "'*.co.uk'", "'*.github.io'", "'*.test'", "'*x.test'", "a*b.test", "https://x/", "x/path",
        "a b.test", "a_b.test", "127.1", "2130706433", "0x7f.1", "user@a.test", "'[a.test]'", "a.test..", "a.test:0",
        "a.test:+443", "a.test:４４３", "é.test", "'*.10.0.0.1'", "xn--a.test", "a\u200bb.test", '"a\\0b.test"',
        "fd00::1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["{}", "{{host: {}}}"], ids=["word", "mapping"])
def test_a_bad_host_is_an_error_in_every_place_that_allows(entry: str, shape: str) -> None:
    written = shape.format(entry)
    for text in (f"groups:\n  g:\n    - {written}", f"personas:\n  p:\n    allow:\n      - {written}"):
        (problem,) = problems(f"version: 1\n{text}")
        assert re.match(r"f\.yaml:[45]: ", problem)


@pytest.mark.parametrize(
    "entry", ["'*'", "'*x.test'", "https://x/", "x/path", "127.1", "a.test:0", "é.test", "'@'", "~"]
)
def test_a_bad_host_is_an_error_in_a_deny_list_too(entry: str) -> None:
    text = f"version: 1\npersonas:\n  p:\n    deny:\n      - {entry}"
    with pytest.raises(PolicyError, match=r"layer0\.yaml:5: "):
        policy(text)


@pytest.mark.parametrize(
    ("entry", "pattern", "ports", "every"),
    [
        ("gist.github.com", "gist.github.com", {443, 80}, True),
        ("'*.github.com'", "*.github.com", {443, 80}, True),
        ("github.com:22", "github.com", {22}, False),
        ("{host: github.com}", "github.com", {443, 80}, True),
        ("{host: github.com, ports: [22, 443]}", "github.com", {22, 443}, False),
        ("'*.github.io'", "*.github.io", {443, 80}, True),
        ("'*.com'", "*.com", {443, 80}, True),
    ],
)
def test_a_denial_without_a_port_is_for_every_port(entry: str, pattern: str, ports: set[int], every: bool) -> None:
    rule = one_rule(entry, "deny")
    assert (str(rule.pattern), rule.ports, rule.all_ports) == (pattern, ports, every)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ports: 8443", {"ports": frozenset({8443})}),
        ("ports: [8443]", {"ports": frozenset({8443})}),
        ("ports: [443, 443, 1, 65535]", {"ports": frozenset({1, 443, 65535})}),
        ("ports: '22'", {"ports": frozenset({22})}),
        ("tls: true", {"tls": True}),
        ("tls: false", {"tls": False}),
        ("private: true", {"private": True}),
        ("private: false", {"private": False}),
        ("inspect: true", {"requests": Requests(inspect=True)}),
        ("inspect: false", {"requests": None}),
        ("methods: [GET, PATCH, M-SEARCH]", {"requests": Requests(frozenset({"GET", "PATCH", "M-SEARCH"}))}),
        ("methods: GET", {"requests": Requests(frozenset({"GET"}))}),
        ("paths: ['/']", {"requests": Requests(paths=("/",))}),
        ("paths: /a", {"requests": Requests(paths=("/a",))}),
        ("paths: ['/a/*', '/**', '/a/**/b', '/a-*.tar.gz', '/a/', '/%2F', '/~a/b;c=d,e@f:g']",
         {"requests": Requests(paths=("/a/*", "/**", "/a/**/b", "/a-*.tar.gz", "/a/", "/%2F", "/~a/b;c=d,e@f:g"))}),
        ("methods: [GET]\n        inspect: true", {"requests": Requests(frozenset({"GET"}), inspect=True)}),
        ("secret: {env: KEY, header: X-Api-Key}", {"requests": Requests(secret=Secret("KEY", "X-Api-Key"))}),
        ("secret: {env: KEY, header: authorization, format: 'Bearer {}'}",
         {"requests": Requests(secret=Secret("KEY", "authorization", "Bearer {}"))}),
    ],
)  # fmt: skip
def test_each_key_of_a_rule_means_what_it_says(body: str, expected: dict[str, object]) -> None:
    rule = one_rule(f"host: a.test\n        {body}")
    plain = Rule(Pattern(Host("a.test")), source=Source("f.yaml", 5), all_ports="ports" not in expected)
    assert rule == plain._replace(**expected)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("ports: []", "an empty list; write 443 or [443, 8443], or leave the key out"),
        ("ports:", "expected a list such as 443 or [443, 8443], not nothing"),
        ("ports: {a: b}", "expected a list such as 443 or [443, 8443], not a mapping"),
        ("ports: 0", "port '0' is not a number from 1 to 65535"),
        ("ports: [443, 65536]", "port '65536' is not"),
        ("ports: ['+443']", "port '+443' is not"),
        ("ports: [4_43]", "port '4_43' is not"),
        ("ports: [４４３]", "is not a number"),
        ("ports: [٤٤٣]", "is not a number"),
        ("ports: [0x1bb]", "port '0x1bb' is not"),
        ("ports: [443.0]", "port '443.0' is not"),
        ("ports: ['443 ']", "port '443 ' is not"),
        ("ports: 80-443", "port '80-443' is not"),
        ("ports: [https]", "port 'https' is not"),
        ("ports: '*'", "port '*' is not"),
        ("ports: [[443]]", "expected a port, not a list"),
        ("ports: [~]", "expected a port, not nothing"),
        ("tls: yes", "expected true or false, not 'yes'"),
        ("tls: on", "expected true or false, not 'on'"),
        ("tls: True", "expected true or false, not 'True'"),
        ("tls: 1", "expected true or false, not '1'"),
        ("tls:", "expected true or false, not nothing"),
        ("private: no", "expected true or false, not 'no'"),
        ("private: TRUE", "expected true or false, not 'TRUE'"),
        ("private: [true]", "expected true or false, not a list"),
        ("inspect: y", "expected true or false, not 'y'"),
        ("methods: []", "an empty list; write [GET, HEAD], or leave the key out"),
        ("methods:", "expected a list such as [GET, HEAD], not nothing"),
        ("methods: [get]", "'get' is not a method in upper case, such as GET"),
        ("methods: ['*']", "'*' is not a method"),
        ("methods: ['GET POST']", "'GET POST' is not a method"),
        ("methods: [GET, '']", "'' is not a method"),
        ("methods: [ＧＥＴ]", "is not a method"),
        ("methods: [GET]\n        inspect: false", "`methods` needs inspection, and `inspect: false` forbids it"),
        ("paths: ['/a']\n        inspect: false", "`paths` needs inspection"),
        ("paths: []", "an empty list; write"),
        ("paths: [a]", "path 'a' does not begin with /"),
        ("paths: ['']", "path '' does not begin with /"),
        ("paths: ['*']", "path '*' does not begin with /"),
        ("paths: ['https://a.test/']", "does not begin with /"),
        ("paths: ['/a?b=c']", "is not URL segments"),
        ("paths: ['/a#b']", "is not URL segments"),
        ("paths: ['/a b']", "is not URL segments"),
        ("paths: ['/é']", "is not URL segments"),
        ("paths: ['/a\\b']", "is not URL segments"),
        ("paths: ['/%2f']", "is not URL segments"),
        ("paths: ['/%zz']", "is not URL segments"),
        ("paths: ['/***']", "is not URL segments"),
        ("paths: ['/a**']", "is not URL segments"),
        ("paths: ['/**b']", "is not URL segments"),
        ("paths: ['/[a]']", "is not URL segments"),
        ("paths: ['/{a,b}']", "is not URL segments"),
        ("paths: ['/a/../b']", "has an empty, . or .. segment"),
        ("paths: ['/..']", "has an empty, . or .. segment"),
        ("paths: ['/./a']", "has an empty, . or .. segment"),
        ("paths: ['//a']", "has an empty, . or .. segment"),
        ("paths: ['/a//']", "has an empty, . or .. segment"),
        ("secret: KEY", "a secret is a mapping, not 'KEY'"),
        ("secret: {env: KEY}", "a secret needs `header:`, as in {env: API_KEY, header: x-api-key}"),
        ("secret: {header: a}", "a secret needs `env:`"),
        ("secret: {env: 'A B', header: a}", "'A B' is not the name of an environment variable"),
        ("secret: {env: A, header: 'a b'}", "'a b' is not a header that can carry a secret"),
        ("secret: {env: A, header: ''}", "'' is not a header"),
        ("secret: {env: A, header: 'a:'}", "'a:' is not a header"),
        ("secret: {env: A, header: Host}", "'Host' is not a header that can carry a secret"),
        ("secret: {env: A, header: Transfer-Encoding}", "is not a header that can carry"),
        ("secret: {env: A, header: content-length}", "is not a header that can carry"),
        ("secret: {env: A, header: b, format: Bearer}", "format 'Bearer' is not printable ASCII with one {} in it"),
        ("secret: {env: A, header: b, format: '{} {}'}", "is not printable ASCII with one {}"),
        ("secret: {env: A, header: b, format: '{0}'}", "is not printable ASCII with one {}"),
        ("secret: {env: A, header: b, format: '{}{'}", "is not printable ASCII with one {}"),
        ('secret: {env: A, header: b, format: "{}\\r\\nx: y"}', "is not printable ASCII with one {}"),
    ],
)  # fmt: skip
def test_a_bad_value_in_a_rule_is_told_with_its_line(body: str, told: str) -> None:
    (problem,) = problems(f"version: 1\npersonas:\n  p:\n    allow:\n      - host: a.test\n        {body}")
    assert re.match(r"f\.yaml:[5-7]: ", problem)
    assert told in problem


def test_all_problems_of_a_file_are_told_at_once() -> None:
    text = """\
        version: 2
        hosts:
          a.test: b.test
        groups:
          g: [https://a.test, "*", c.test]
        personas:
          p:
            alow: []
            allow:
              - host: a.test
                tls: maybe
                ports: [0]
            env: [a-b]
        """
    assert [line.split(": ")[0] for line in problems(text)] == [
        "f.yaml:1",
        "f.yaml:3",
        "f.yaml:5",
        "f.yaml:5",
        "f.yaml:8",
        "f.yaml:11",
        "f.yaml:12",
        "f.yaml:13",
    ]


def test_a_file_of_nothing_but_mistakes_is_given_up() -> None:
    found = problems("version: 1\ngroups:\n  g:\n" + "    - a_b\n" * 10_000)
    assert len(found) == MAX_PROBLEMS + 1
    assert "more than 100 problems; the rest was not read" in found[-1]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("10.0.0.1", "10.0.0.2", "'10.0.0.1' is an address; `hosts:` gives an address to a name"),
        ("'*.a.test'", "10.0.0.2", "is not letters, digits and hyphens"),
        ("a.test:80", "10.0.0.2", "is not"),
        ("é.test", "10.0.0.2", "is not ASCII"),
        ("a.test", "b.test", "'b.test' is a name; `hosts:` needs an address such as 10.0.0.7"),
        ("a.test", "10.0.0.2:0", "port '0' is not a number"),
        ("a.test", "'10.0.0.2:'", "port '' is not a number"),
        ("a.test", "10.0.0.2:+80", "port '+80' is not a number"),
        ("a.test", "127.1", "numeric but not a dotted-quad"),
        ("a.test", "'[10.0.0.1]:80'", "brackets hold an IPv6 address"),
        ("a.test", "fe80::1%eth0", "has a zone id"),
        ("a.test", "fd00::1:99999", "is not an IPv6 address"),
        ("a.test", "[10.0.0.1]", "expected an address such as 10.0.0.7 or 10.0.0.7:8443, not a list"),
        ("a.test", "", "expected an address such as 10.0.0.7 or 10.0.0.7:8443, not nothing"),
    ],
)
def test_a_fixed_address_is_a_name_and_an_address(key: str, value: str, told: str) -> None:
    (problem,) = problems(f"version: 1\nhosts:\n  {key}: {value}\n")
    assert problem.startswith("f.yaml:3: ")
    assert told in problem


def test_two_spellings_of_a_host_are_one_host_in_hosts() -> None:
    (problem,) = problems("version: 1\nhosts:\n  a.test: 10.0.0.1\n  A.TEST.: 10.0.0.2\n")
    assert problem == "f.yaml:4: host 'a.test' stands twice, first on line 3"
