from __future__ import annotations

import pytest
from policykit import document

from egress import policysources
from egress.hazards import hazard_at, hazard_below, parents
from egress.lint import lint
from egress.policylayers import bind
from egress.problems import PolicyError


def warnings(*layers: str) -> list[str]:
    book = bind([document(text, f"layer{number}.yaml")] for number, text in enumerate(layers))
    return [str(problem) for problem in lint(book)]


def about(entry: str, key: str = "allow") -> list[str]:
    """The warnings about one entry, each without its place."""
    found = warnings(f"version: 1\npersonas:\n  p:\n    {key}:\n      - {entry}\n      - fine.test\n")
    assert all(line.startswith("layer0.yaml:5: ") for line in found)
    return [line.partition(": ")[2] for line in found]


def test_the_shipped_policy_has_nothing_to_warn_about() -> None:
    assert lint(policysources.read(policysources.locate(environ={}))) == []


@pytest.mark.parametrize(
    "entry",
    ["github.com", "'*.github.com'", "'*.githubusercontent.com'", "raw.githubusercontent.com", "api.anthropic.com",
     "proxy.golang.org", "'*.corp.example'", "github.com:22", "8.8.8.1",
     "{host: a.test, ports: [443, 8443], tls: true}", "{host: mirror.test, private: true}",
     "{host: 10.0.0.7, private: true}", "{host: localhost, private: true}",
     "{host: ssh.test, ports: [22], tls: false}", "bucket.s3.amazonaws.com", "d111.cloudfront.net", "me.github.io",
     "{host: api.test, ports: [443], secret: {env: KEY, header: x-key}}",
     "{host: api.test, ports: 8443, tls: true, secret: {command: [a], header: x-key}}",
     "{host: api.test, ports: [80, 443, 8080], methods: [GET]}", "'*.example.co.uk'", "notpastebin.com",
     "google.com", "slack.com", "'*.google.com'"],
)  # fmt: skip
def test_an_ordinary_entry_is_not_warned_about(entry: str) -> None:
    assert about(entry) == []


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("webhook.site", "webhook.site: webhook.site keeps what it is sent for anyone who knows the address"),
        ("a.webhook.site", "a.webhook.site: webhook.site keeps what it is sent"),
        ("'*.webhook.site'", "*.webhook.site: webhook.site keeps what it is sent"),
        ("pastebin.com", "keeps what it is sent"),
        ("transfer.sh", "keeps what it is sent"),
        ("requestbin.com", "keeps what it is sent"),
        ("hooks.slack.com", "passes messages on to whoever made the hook"),
        ("'*.slack.com'", "*.slack.com takes in hooks.slack.com, which passes messages on"),
        ("abc.ngrok.io", "is a tunnel to machines of anyone"),
        ("abc.ngrok-free.app", "is a tunnel to machines of anyone"),
        ("dns.google", "resolves any name over HTTPS or TLS"),
        ("cloudflare-dns.com", "resolves any name over HTTPS or TLS"),
        ("mozilla.cloudflare-dns.com", "resolves any name over HTTPS or TLS"),
        ("one.one.one.one", "resolves any name over HTTPS or TLS"),
        ("dns.quad9.net", "resolves any name over HTTPS or TLS"),
        ("doh.opendns.com", "resolves any name over HTTPS or TLS"),
        ("'*.opendns.com'", "takes in doh.opendns.com"),
        ("8.8.8.8", "resolves any name over HTTPS or TLS"),
        ("'[2606:4700:4700::1111]'", "resolves any name over HTTPS or TLS"),
        ("storage.googleapis.com", "holds the buckets of all customers under one name"),
        ("'*.amazonaws.com'", "anyone can have a name below"),
        ("'*.core.windows.net'", "anyone can have a name below"),
        ("'*.googleusercontent.com'", "*.googleusercontent.com: anyone can have a name below googleusercontent.com"),
        ("'*.aliyuncs.com'", "anyone can have a name below"),
        ("{host: '*.corp.example', private: true}", "whoever names hosts below it chooses addresses of your network"),
        ("{host: a.test, tls: false}", "with tls: false no server name is checked on 443"),
        ("{host: a.test, tls: true}", "with tls: true plain HTTP fails on port 80; write ports: [443]"),
        ("a.test:53", "port 53 is DNS, which the gate answers itself"),
        ("a.test:853", "port 853 is DNS over TLS"),
        ("a.test:25", "port 25 carries mail to anyone"),
        ("a.test:3128", "port 3128 is where proxies listen"),
        ("{host: a.test, secret: {env: KEY, header: k}}",
         "the secret from $KEY is not put in where there is no TLS; write ports: [443]"),
        ("{host: a.test, ports: 8080, secret: {file: /k, header: k}}", "the file /k is not put in where there is no T"),
        ("{host: a.test, ports: 8080, tls: false, secret: {env: KEY, header: k}}", "$KEY goes out in the clear"),
        ("{host: a.test, ports: 22, inspect: true}", "a.test: port 22 is for ssh, which has no requests to look at"),
        ("{host: a.test, ports: [443, 9418], methods: [GET]}", "port 9418 is for git, which has no requests"),
        ("{host: a.test, ports: 8443, paths: [/a]}", "without tls: true only plain HTTP passes on port 8443"),
        ("{host: '*.a.test', ports: [443], secret: {env: KEY, header: k}}", "$KEY is given to every host below it"),
        ("10.0.0.7", "10.0.0.7 can never be reached: 10.0.0.7 is a private address, and the rule lacks private: true"),
        ("127.0.0.1", "is a loopback address, and the rule lacks private: true"),
        ("localhost", "localhost is a loopback address, and the rule lacks private: true"),
        ("x.localhost", "is a loopback address, and the rule lacks private: true"),
        ("169.254.169.254", "can never be reached: 169.254.169.254 is a cloud metadata service"),
        ("{host: 169.254.169.254, private: true}", "can never be reached: 169.254.169.254 is a cloud metadata service"),
    ],
)  # fmt: skip
def test_a_doubtful_entry_is_told_with_its_reason(entry: str, told: str) -> None:
    (warning,) = about(entry)
    assert told in warning


@pytest.mark.parametrize(
    "base",
    ["workers.dev", "cloudfront.net", "blob.core.windows.net", "herokuapp.com", "vercel.app", "netlify.app", "ngrok.io",
     "s3.amazonaws.com", "amazonaws.com", "windows.net", "trycloudflare.com", "cloudflarestorage.com"],
)  # fmt: skip
def test_no_wildcard_on_a_shared_host_goes_unremarked(base: str) -> None:
    try:
        found = about(f"'*.{base}'")
    except PolicyError as error:
        found = [str(error)]
    assert len(found) == 1


def test_a_denial_of_a_doubtful_host_is_not_doubtful() -> None:
    denied = "version: 1\npersonas: {p: {allow: [a.test], deny: [pastebin.com, '*.amazonaws.com', localhost]}}"
    assert warnings(denied) == []


GROUP = "version: 1\ngroups: {g: [g.test]}\npersonas:\n  other: {allow: ['@g']}\n  p:\n    allow:\n"


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (["a.test", "a.test"], "layer0.yaml:8: a.test never speaks: layer0.yaml:7 has the same host and ports"),
        (["a.test", "a.test:443"], "layer0.yaml:8: a.test never speaks: layer0.yaml:7 has"),
        (["a.test:443", "a.test:80", "a.test"], "layer0.yaml:9: a.test never speaks"),
        (
            ["a.test", "{host: a.test, methods: [GET]}"],
            "layer0.yaml:7: a.test never speaks: layer0.yaml:8 looks at the requests to it, and a plain rule adds none",
        ),
        (
            ["{host: a.test, methods: [GET, HEAD]}", "{host: a.test, methods: [GET], paths: [/a]}"],
            "layer0.yaml:8: a.test never speaks: layer0.yaml:7 has the same requests",
        ),
        (
            ["{host: a.test, inspect: true}", "{host: a.test, ports: 443, headers: {forbid: b}, upload_limit: 1}"],
            "layer0.yaml:8: a.test never speaks: layer0.yaml:7 has the same requests",
        ),
        (
            [
                "{host: a.test, ports: 443, secret: {env: A, header: b}}",
                "{host: a.test, ports: 443, secret: {env: A, header: b}}",
            ],
            "layer0.yaml:8: a.test never speaks: layer0.yaml:7 has the same requests",
        ),
        (
            ["{host: a.test, methods: [GET]}", "{host: a.test, methods: [PUT], private: true}"],
            "layer0.yaml:8: a.test has another tls or private than layer0.yaml:7, which speaks for the connection",
        ),
        (
            ["{host: a.test, ports: 8000, methods: [GET]}", "{host: a.test, ports: 8000, methods: [PUT], tls: true}"],
            "layer0.yaml:8: a.test has another tls or private than layer0.yaml:7",
        ),
        (["'*.a.test'", "'*.a.test:443'"], "layer0.yaml:8: *.a.test never speaks"),
        (["'@g'", "g.test"], "layer0.yaml:8: g.test never speaks: layer0.yaml:2 has the same host and ports"),
    ],
)
def test_a_line_that_another_always_answers_for_is_told(entries: list[str], told: str) -> None:
    (warning,) = warnings(GROUP + "".join(f"      - {entry}\n" for entry in entries))
    assert warning.startswith(told)


@pytest.mark.parametrize(
    "entries",
    [
        ["a.test", "a.test:22"],
        ["a.test", "{host: a.test, ports: [443, 8443]}"],
        ["a.test", "'*.a.test'"],
        ["a.b.test", "'*.b.test'"],
        ["a.test", "{host: a.test, ports: [443], methods: [GET]}"],  # it still speaks for port 80
        ["{host: a.test, methods: [GET]}", "{host: a.test, methods: [GET, PUT]}"],
        ["{host: a.test, methods: [GET], paths: [/a]}", "{host: a.test, methods: [GET]}"],
        ["{host: a.test, headers: {forbid: b}}", "{host: a.test, methods: [GET]}"],
        ["{host: a.test, methods: [GET]}", "{host: a.test, ports: 443, secret: {env: A, header: b}}"],
        ["{host: a.test, ports: 443, secret: {env: A, header: b}}", "{host: a.test, ports: 443, inspect: true}"],
        [f"{{host: a.test, ports: 443, secret: {{env: {name}, header: b}}}}" for name in "AB"],
        ["{host: a.test, private: true, methods: [GET]}", "{host: a.test, methods: [PUT]}"],
        ["{host: g.test, methods: [GET]}", "'@g'"],  # narrowing a group
        ["{host: g.test, private: true}", "'@g'"],  # overriding a line of a group is what order is for
    ],
)
def test_lines_that_each_have_something_to_say_are_left_alone(entries: list[str]) -> None:
    assert warnings(GROUP + "".join(f"      - {entry}\n" for entry in entries)) == []


@pytest.mark.parametrize(
    ("allow", "deny", "silent"),
    [
        ("a.test", "a.test", True),
        ("a.test", "'*.test'", True),
        ("x.a.test", "'*.a.test'", True),
        ("'*.a.test'", "'*.a.test'", True),
        ("'*.x.a.test'", "'*.a.test'", True),
        ("a.test", "a.test:443, a.test:80", True),
        ("a.test:22", "a.test:22", True),
        ("a.test", "a.test:443", False),
        ("a.test", "'*.a.test'", False),
        ("'*.a.test'", "x.a.test", False),
        ("'*.a.test'", "a.test", False),
        ("'@g'", "a.test", False),  # narrowing a group is what deny is for
    ],
)
def test_a_line_that_is_denied_whole_is_told(allow: str, deny: str, silent: bool) -> None:
    persona = f"{{allow: [{allow}, '@g', b.example], deny: [{deny}]}}"
    found = warnings(f"version: 1\ngroups: {{g: [a.test]}}\npersonas: {{p: {persona}}}\n")
    assert [line.split(" by ")[0].partition(" never ")[2] for line in found] == ["speaks: it is denied"] * silent


def test_a_line_that_a_parent_denies_is_told_and_a_parents_line_that_a_child_denies_is_not() -> None:
    parent = "version: 1\npersonas:\n  parent: {allow: [a.test, c.test], deny: [b.test]}\n"
    (warning,) = warnings(parent + "  child: {extends: parent, allow: [b.test], deny: [a.test]}\n")
    assert warning == "layer0.yaml:4: b.test never speaks: it is denied by layer0.yaml:3 b.test"


def test_a_plain_line_that_does_not_undo_what_a_parent_looks_at_is_told() -> None:
    parent = "version: 1\npersonas:\n  parent: {allow: [{host: a.test, methods: [GET]}]}\n"
    (warning,) = warnings(parent + "  child: {extends: parent, allow: [a.test]}\n")
    assert warning.startswith("layer0.yaml:4: a.test never speaks: layer0.yaml:3 looks at the requests to it")


def test_a_parents_plain_line_that_a_child_narrows_is_not_told() -> None:
    parent = "version: 1\npersonas:\n  parent: {allow: [a.test]}\n"
    assert warnings(parent + "  child: {extends: parent, allow: [{host: a.test, methods: [GET]}]}\n") == []


def test_an_unused_group_is_told() -> None:
    groups = "version: 1\ngroups: {a: ['@b'], b: [b.test], c: [c.test], d: [d.test]}\n"
    assert warnings(groups + "personas: {p: {allow: ['@a'], deny: ['@d']}}") == ["layer0.yaml:2: group 'c' is not used"]


def test_a_group_is_not_used_by_adding_to_itself() -> None:
    shipped = "version: 1\ngroups: {a: [a.test]}\npersonas: {p: {allow: [b.test]}}"
    mine = "version: 1\ngroups: {a: ['@a', c.test]}\npersonas: {q: {allow: [b.test]}}"
    assert warnings(shipped, mine) == ["layer1.yaml:2: group 'a' is not used"]


def test_a_file_of_groups_alone_is_there_to_be_taken_from() -> None:
    assert warnings("version: 1\ngroups: {a: [a.test]}", "version: 1\npersonas: {p: {allow: [b.test]}}") == []


def test_a_persona_that_allows_nothing_is_told() -> None:
    assert warnings("version: 1\npersonas:\n  p:\n    allow:\n") == ["layer0.yaml:3: persona 'p' allows nothing"]


def test_a_secret_that_env_passes_in_anyway_is_told() -> None:
    text = """\
        version: 1
        personas:
          parent: {allow: [{host: a.test, ports: [443], secret: {env: KEY, header: x-key}}]}
          child: {extends: parent, env: [KEY]}
        """
    (warning,) = warnings(text)
    assert warning == "layer0.yaml:3: the secret KEY is kept outside, and env: passes it into the sandbox"


def test_a_fixed_address_that_its_rule_may_not_reach_is_told() -> None:
    text = (
        "version: 1\nhosts: {a.test: 10.0.0.7, b.test: 10.0.0.8, c.test: 140.82.112.3}\npersonas:\n  p:\n    allow:\n"
    )
    text += "      - a.test\n      - {host: b.test, private: true}\n      - c.test\n"
    (warning,) = warnings(text)
    assert warning.startswith("layer0.yaml:6: a.test can never be reached: hosts: gives it 10.0.0.7, a private address")


def test_a_fixed_address_that_nobody_may_reach_is_told() -> None:
    (warning,) = warnings("version: 1\nhosts: {a.test: 169.254.169.254}\npersonas: {p: {allow: [b.test]}}")
    assert warning == "layer0.yaml:2: a.test can never be reached: 169.254.169.254 is a cloud metadata service"


def test_only_the_files_that_are_asked_about_are_told_about() -> None:
    layers = [document(f"version: 1\npersonas: {{{name}: {{}}}}", f"{name}.yaml") for name in ("one", "two")]
    book = bind([layer] for layer in layers)
    assert [problem.source.file for problem in lint(book)] == ["one.yaml", "two.yaml"]
    assert [problem.source.file for problem in lint(book, ["two.yaml"])] == ["two.yaml"]


def test_a_rule_that_many_personas_have_is_told_once() -> None:
    text = (
        "version: 1\ngroups: {g: [pastebin.com]}\npersonas: {p: {allow: ['@g']}, q: {allow: ['@g']}, r: {extends: p}}"
    )
    assert len(warnings(text)) == 1


def test_a_hazard_is_known_from_above_and_below() -> None:
    assert hazard_at("pastebin.com") == hazard_at("a.b.pastebin.com")
    assert hazard_at("notpastebin.com") is None
    assert hazard_below("slack.com")
    assert hazard_below("hooks.slack.com") is None
    assert list(parents("a.b.c")) == ["b.c", "c"]
