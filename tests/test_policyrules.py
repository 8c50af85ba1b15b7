from __future__ import annotations

import re

import pytest
from policykit import document, one_rule, policy, problems

from egress.model import Host, Source
from egress.policyrules import TOOLS, ToolRule
from egress.problems import MAX_PROBLEMS, PolicyError
from egress.rules import Headers, Pattern, Requests, Rule, Secret, UploadLimit


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
        ("paths: ['/a/*', '/**', '/a/**/b', '/a-*.tar.gz', '/a/', '/%20%C3%A9', '/~a/b=d,e@f:g', '/a...b']",
         {"requests": Requests(paths=("/a/*", "/**", "/a/**/b", "/a-*.tar.gz", "/a/", "/%20%C3%A9", "/~a/b=d,e@f:g",
                                      "/a...b"))}),
        ("methods: [GET]\n        inspect: true", {"requests": Requests(frozenset({"GET"}), inspect=True)}),
        ("headers: {require: {Accept: text/html, X-Tenant: '*'}}",
         {"requests": Requests(headers=Headers(require=(("accept", "text/html"), ("x-tenant", None))))}),
        ("headers: {forbid: [X-Debug, x-debug, a_b]}",
         {"requests": Requests(headers=Headers(forbid=("x-debug", "a_b")))}),
        ("headers: {require: {a: 'b  c'}, forbid: d}",
         {"requests": Requests(headers=Headers((("a", "b  c"),), ("d",)))}),
        ("upload_limit: 0", {"requests": Requests(upload_limit=UploadLimit(0))}),
        ("upload_limit: 500", {"requests": Requests(upload_limit=UploadLimit(500))}),
        ("upload_limit: 1m", {"requests": Requests(upload_limit=UploadLimit(1 << 20))}),
        ("upload_limit: 64K", {"requests": Requests(upload_limit=UploadLimit(64 * 1024))}),
        ("upload_limit: {request: 1M, session: 2G}",
         {"requests": Requests(upload_limit=UploadLimit(1 << 20, 2 << 30))}),
        ("upload_limit: {session: 1T}", {"requests": Requests(upload_limit=UploadLimit(None, 1 << 40))}),
        ("secret: {env: KEY, header: X-Api-Key}", {"requests": Requests(secret=Secret("x-api-key", env="KEY"))}),
        ("secret: {env: KEY, header: authorization, format: 'Bearer {}'}",
         {"requests": Requests(secret=Secret("authorization", "Bearer {}", "KEY"))}),
        ("secret: {file: ~/.token, header: a}", {"requests": Requests(secret=Secret("a", file="~/.token"))}),
        ("secret: {env: T, file: /run/token, header: a, optional: true}",
         {"requests": Requests(secret=Secret("a", env="T", file="/run/token", optional=True))}),
        ("secret: {env: A, header: Authorization, user: me@b.test}",
         {"requests": Requests(secret=Secret("authorization", env="A", user="me@b.test"))}),
        ("secret: {command: [gh, auth, token], header: a, allow_other: true}",
         {"requests": Requests(secret=Secret("a", command=("gh", "auth", "token"), allow_other=True))}),
        ("secret: {command: 'pass show \"a b\"', header: a}",
         {"requests": Requests(secret=Secret("a", command=("pass", "show", "a b")))}),
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
        ("paths: ['/%zz']", "is not URL segments"),
        ("paths: ['/***']", "is not URL segments"),
        ("paths: ['/a**']", "is not URL segments"),
        ("paths: ['/**b']", "is not URL segments"),
        ("paths: ['/[a]']", "is not URL segments"),
        ("paths: ['/{a,b}']", "is not URL segments"),
        ("paths: ['/a/../b']", "has a segment . or .., and no such request is let through"),
        ("paths: ['/..']", "has a segment . or .., and no such request is let through"),
        ("paths: ['/./a']", "has a segment . or .., and no such request is let through"),
        ("paths: ['//a']", "has an empty segment (//), and no such request is let through"),
        ("paths: ['/a//']", "has an empty segment (//), and no such request is let through"),
        ("paths: ['/%2F']", "path '/%2F' has an escaped / (%2F), and no such request is let through"),
        ("paths: ['/a;b']", "has a ; which some cut off, and no such request"),
        ("paths: ['/%252e']", "is escaped twice"),
        ("paths: ['/%5C']", "has a backslash"),
        ("paths: ['/%C0%AF']", "has escapes that are not UTF-8"),
        ("paths: ['/%41/%c3%a9']", "has escapes that requests are judged without; write /A/%C3%A9"),
        ("headers: x-debug", "`headers` is a mapping, not 'x-debug'"),
        ("headers: {}", "`headers` needs `require:` or `forbid:`, as in {forbid: [x-debug]}"),
        ("headers: {requires: {a: b}}", "unknown key 'requires' in `headers`; did you mean 'require'?"),
        ("headers: {require: {}}", 'expected a mapping such as {x-tenant: acme, accept: "*"}, not an empty one'),
        ("headers: {require: [a]}", "expected a mapping such as"),
        ("headers: {require: {a: }}", 'expected the value of a header, or "*" for any, not nothing'),
        ("headers: {require: {a: ' b'}}", "' b' is not the value of a header: printable ASCII"),
        ('headers: {require: {a: "b\\r\\nc: d"}}', "is not the value of a header"),
        ("headers: {require: {a: é}}", "is not the value of a header"),
        ("headers: {require: {a b: c}}", "'a b' is not a header that a rule can ask for, such as accept"),
        ("headers: {require: {':path': c}}", "':path' is not a header that a rule can ask for"),
        ("headers: {require: {Host: c}}", "'Host' is not a header that a rule can ask for"),
        ("headers: {require: {a: b, A: c}}", "header 'a' stands twice"),
        ("headers: {forbid: []}", "an empty list; write [x-debug], or leave the key out"),
        ("headers: {forbid: [connection]}", "'connection' is not a header that a rule can forbid"),
        ("headers: {require: {a: b}, forbid: [A]}", "header 'a' is both required and forbidden"),
        ("upload_limit: []", "`upload_limit` is a mapping, not a list"),
        ("upload_limit:", "expected a size such as 64K or 1M, not nothing"),
        ("upload_limit: {}", "`upload_limit` needs a size such as 1M, or {request: 1M, session: 20M}"),
        ("upload_limit: {total: 1M}", "unknown key 'total' in `upload_limit` (known: request, session)"),
        ("upload_limit: 1MB", "'1MB' is not a size such as 500, 64K, 1M or 2G"),
        ("upload_limit: -1", "'-1' is not a size"),
        ("upload_limit: 1.5M", "'1.5M' is not a size"),
        ("upload_limit: 01M", "'01M' is not a size"),
        ("upload_limit: ' 1M'", "' 1M' is not a size"),
        ("upload_limit: １M", "is not a size"),
        ("upload_limit: 9999999999999999", "is not a size"),
        ("upload_limit: 1M\n        inspect: false", "`upload_limit` needs inspection"),
        ("secret: KEY", "a secret is a mapping, not 'KEY'"),
        ("secret: {env: KEY}", "a secret needs `header:`, as in {env: API_KEY, header: x-api-key}"),
        ("secret: {header: a}", "a secret needs `env:`, `file:` or `command:`, as in {env: API_KEY, "),
        ("secret: {header: a, file: /b, command: [c]}", "from `file:` or from `command:`, not from both"),
        ("secret: {header: a, file: token}", "'token' is not a path of the host: absolute, or below ~/"),
        ("secret: {header: a, file: ~root/token}", "'~root/token' is not a path of the host"),
        ("secret: {header: a, file: }", "expected a path such as ~/.config/token, not nothing"),
        ("secret: {header: a, command: []}", "an empty command; write one such as [gh, auth, token]"),
        ("secret: {header: a, command: ' '}", "an empty command"),
        ("secret: {header: a, command: ['']}", "an empty command"),
        ("secret: {header: a, command: 'a \"b'}", "cannot be split into words: no closing quotation"),
        ("secret: {header: a, command: [a, [b]]}", "expected a word of the command, not a list"),
        ("secret: {header: a, env: B, optional: yes}", "expected true or false, not 'yes'"),
        ("secret: {header: a, env: B, user: me}", "`user:` is for a secret in authorization, not in a"),
        ("secret: {header: authorization, env: B, user: 'a:b'}", "'a:b' is not a user name"),
        ("secret: {header: authorization, env: B, user: ''}", "'' is not a user name"),
        ("secret: {header: a, env: B, allow_others: true}", "did you mean 'allow_other'?"),
        ("tool: npm", "`tool:` stands in place of `host:`"),
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


NO_HOST = "version: 1\ngroups:\n  g:\n    - {}"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_rule_for_a_tool_waits_for_its_hosts_and_keeps_what_was_written(tool: str) -> None:
    (entry,) = document(NO_HOST.format(f"{{tool: {tool}, methods: [GET]}}")).groups["g"].entries
    assert isinstance(entry, ToolRule)
    assert (entry.tool, entry.source) == (tool, Source("f.yaml", 4))
    rule = entry.for_host(Host("mirror.test"), 443, tls=True, private=False)
    assert rule == Rule(
        Pattern(Host("mirror.test")),
        frozenset({443}),
        requests=Requests(frozenset({"GET"})),
        source=entry.source,
        all_ports=True,
    )


@pytest.mark.parametrize(
    ("written", "port", "tls", "private", "expected"),
    [
        ("", 8443, True, False, ({8443}, True, False)),
        ("", 80, False, False, ({80}, None, False)),
        ("", 443, False, True, ({443}, False, True)),
        ("", 8080, False, True, ({8080}, None, True)),
        (", ports: 9000", 443, True, False, ({9000}, None, False)),
        (", tls: false, private: true", 8443, True, False, ({8443}, False, True)),
    ],
)
def test_what_a_tool_rule_says_goes_before_what_its_tool_does(
    written: str, port: int, tls: bool, private: bool, expected: tuple[set[int], bool | None, bool]
) -> None:
    (entry,) = document(NO_HOST.format(f"{{tool: pip{written}}}")).groups["g"].entries
    assert isinstance(entry, ToolRule)
    rule = entry.for_host(Host("mirror.test"), port, tls=tls, private=private)
    assert (rule.ports, rule.tls, rule.private) == expected


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{tool: nmp}", "unknown tool 'nmp'; did you mean 'npm'? (known: npm, pip, apt)"),
        ("{tool: [npm]}", "expected a tool such as npm, not a list"),
        ("{ports: 443}", "a rule needs `host:`"),
    ],
)
def test_a_rule_is_for_a_host_or_for_a_known_tool(entry: str, told: str) -> None:
    assert problems(NO_HOST.format(entry)) == [f"f.yaml:4: {told}"]


@pytest.mark.parametrize(
    "key", ["methods: [GET]", "paths: [/a]", "headers: {forbid: a}", "upload_limit: 1", "tool: npm"]
)
def test_a_denial_looks_at_no_requests(key: str) -> None:
    (problem,) = problems(f"version: 1\npersonas:\n  p:\n    deny:\n      - {{host: a.test, {key}}}")
    assert problem.startswith("f.yaml:5: unknown key ")
    assert problem.endswith("(known: host, ports)")


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
