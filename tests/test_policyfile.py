from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from policykit import document, policy, problems

from egress import policytree
from egress.model import Host, Source, Target
from egress.policy import Fixed
from egress.policyfile import Document, Ref, parse_document
from egress.policylayers import bind
from egress.problems import PolicyError
from egress.refusals import Reason
from egress.rules import Pattern, Requests, Rule, Secret

WHOLE = """\
version: 1
hosts:
  mirror.corp.example: 10.0.0.7:8443
  plain.corp.example: 10.0.0.8
  six.corp.example: "[fd00::7]:443"
  bare.corp.example: fd00::8
groups:
  anthropic: [api.anthropic.com]
  github:
    - github.com
    - "*.github.com"
personas:
  navigator:
    description: reads
    allow: ["@anthropic"]
  implementer:
    allow:
      - "@anthropic"
      - "@github"
      - github.com:22
      - host: api.github.com
        methods: [GET, HEAD]
        paths: ["/repos/acme/**"]
      - host: registry.corp.example
        ports: [443, 8443]
        tls: true
        private: true
      - host: api.anthropic.com
        secret: {env: ANTHROPIC_API_KEY, header: x-api-key}
    deny: [gist.github.com]
    env: [GH_TOKEN]
  craftsman:
    extends: implementer
"""


def test_a_whole_policy_reads_as_it_is_written() -> None:
    whole = document(WHOLE)
    assert {host: fixed for host, (fixed, _) in whole.hosts.items()} == {
        "mirror.corp.example": Fixed("10.0.0.7", 8443),
        "plain.corp.example": Fixed("10.0.0.8"),
        "six.corp.example": Fixed("fd00::7", 443),
        "bare.corp.example": Fixed("fd00::8"),
    }
    implementer = whole.personas["implementer"]
    assert implementer.allow == (
        Ref("anthropic", Source("f.yaml", 18)),
        Ref("github", Source("f.yaml", 19)),
        Rule(Pattern(Host("github.com")), frozenset({22}), source=Source("f.yaml", 20)),
        Rule(
            Pattern(Host("api.github.com")),
            requests=Requests(frozenset({"GET", "HEAD"}), ("/repos/acme/**",)),
            source=Source("f.yaml", 21),
            all_ports=True,
        ),
        Rule(
            Pattern(Host("registry.corp.example")),
            frozenset({443, 8443}),
            tls=True,
            private=True,
            source=Source("f.yaml", 24),
        ),
        Rule(
            Pattern(Host("api.anthropic.com")),
            requests=Requests(secret=Secret("x-api-key", env="ANTHROPIC_API_KEY")),
            source=Source("f.yaml", 28),
            all_ports=True,
        ),
    )
    assert implementer.deny == (Rule(Pattern(Host("gist.github.com")), source=Source("f.yaml", 30), all_ports=True),)
    assert implementer.env == ("GH_TOKEN",)
    assert whole.personas["navigator"].description == "reads"
    assert whole.personas["craftsman"].extends == Ref("implementer", Source("f.yaml", 33))


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_both_parsers_read_the_same(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = document(WHOLE)
    monkeypatch.setattr(policytree, "_Loader", getattr(yaml, loader))
    assert document(WHOLE) == expected
    for text in ("a: [", "a: *.x", "- @x", "a: 1\na: 2", "\0", "", "a: !!str b", "a: &a [*a]", "[" * 50, "a\n---\nb"):
        assert problems(text)


TOP = "(known: version, hosts, groups, personas)"
PERSONA = "(known: description, extends, allow, deny, env, filesystem, tools, sandbox)"
RULE = "(known: host, tool, ports, tls, private, methods, paths, headers, upload_limit, secret, inspect)"
SECRET = "(known: env, file, command, header, format, optional, allow_other, user)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("persona: {}", f"'persona' in a policy; did you mean 'personas'? {TOP}"),
        ("zzz: 1", f"'zzz' in a policy {TOP}"),
        ("Groups: {}", f"'Groups' in a policy; did you mean 'groups'? {TOP}"),
        ("personas: {p: {alow: []}}", f"'alow' in persona 'p'; did you mean 'allow'? {PERSONA}"),
        ("personas: {p: {allowed: []}}", f"'allowed' in persona 'p'; did you mean 'allow'? {PERSONA}"),
        ("groups: {g: [{host: a.test, port: 1}]}", f"'port' in a rule; did you mean 'ports'? {RULE}"),
        ("groups: {g: [{host: a.test, method: GET}]}", f"'method' in a rule; did you mean 'methods'? {RULE}"),
        ("personas: {p: {deny: [{host: a.test, tls: true}]}}", "'tls' in a rule (known: host, ports)"),
        ("groups: {g: [{host: a.test, secret: {value: A, header: b}}]}", f"'value' in a secret {SECRET}"),
    ],
)
def test_an_unknown_key_is_told_with_the_known_ones(text: str, told: str) -> None:
    (problem,) = problems(f"version: 1\n{text}")
    assert problem == f"f.yaml:2: unknown key {told}"


@pytest.mark.parametrize("empty", ["", "~", "null", "[]"])
def test_an_empty_allow_list_allows_nothing(empty: str) -> None:
    persona = policy(f"version: 1\npersonas:\n  p:\n    allow: {empty}\n").personas["p"]
    assert persona.allow == ()
    assert persona.decide(Target(Host("api.anthropic.com"), 443)).reason is Reason.NOT_LISTED


@pytest.mark.parametrize("body", ["p:", "p: {}", "p: null", "p: {description: nobody}", "p: {deny: [a.test]}"])
def test_a_missing_allow_list_allows_nothing(body: str) -> None:
    persona = policy(f"version: 1\npersonas:\n  {body}\n").personas["p"]
    assert not persona.decide(Target(Host("a.test"), 443)).allowed


@pytest.mark.parametrize("empty", ["hosts:", "groups:", "personas:", "hosts: {}", "groups: ~", "personas: null"])
def test_an_empty_section_defines_nothing(empty: str) -> None:
    assert document(f"version: 1\n{empty}") == Document("f.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("personas: [a]", "expected a mapping from a persona to what it stands for, not a list"),
        ("groups: a.test", "expected a mapping from a group to what it stands for, not 'a.test'"),
        ("hosts: [a]", "expected a mapping from a host to what it stands for, not a list"),
        ("personas: {p: []}", "persona 'p' is a mapping, not a list"),
        ("personas: {p: a.test}", "persona 'p' is a mapping, not 'a.test'"),
        ("personas: {p: {allow: a.test}}", "expected a list such as [example.com, \"@group\"], not 'a.test'"),
        ("personas: {p: {allow: '*'}}", "expected a list such as"),
        ("personas: {p: {allow: all}}", "expected a list such as"),
        ("personas: {p: {allow: {host: a.test}}}", "expected a list such as [example.com, \"@group\"], not a mapping"),
        ("personas: {p: {allow: ''}}", "expected a list such as"),
        ("personas: {p: {allow: [[a.test]]}}", "a rule is a mapping, not a list"),
        ("personas: {p: {allow: [~]}}", "an empty entry; write a host"),
        ("personas: {p: {allow: [a.test, ]}, q: {deny: [null]}}", "an empty entry; write a host"),
        ("personas: {p: {allow: ['']}}", "a rule is a host without blanks"),
        ("personas: {p: {env: GH_TOKEN}}", "expected a list such as [GH_TOKEN], not 'GH_TOKEN'"),
        ("personas: {p: {env: [GH-TOKEN]}}", "'GH-TOKEN' is not the name of an environment variable, such as GH_TOKEN"),
        ("personas: {p: {env: ['A=b']}}", "'A=b' is not the name"),
        ("personas: {p: {env: [1A]}}", "'1A' is not the name"),
        ("personas: {p: {env: ['Ａ']}}", "is not the name"),
        ("personas: {p: {env: [~]}}", "expected the name of an environment variable, not nothing"),
        ("personas: {p: {extends: }}", "expected the name of a persona, not nothing"),
        ("personas: {p: {extends: [a]}}", "expected the name of a persona, not a list"),
        ("personas: {p: {description: [a]}}", "expected a line of text, not a list"),
        ("personas: {'a b': {}}", "'a b' is no name for a persona"),
        ("personas: {'': {}}", "'' is no name for a persona"),
        ("personas: {'-a': {}}", "'-a' is no name for a persona"),
        ("personas: {'é': {}}", "is no name for a persona"),
        ("groups: {'@a': []}", "'@a' is no name for a group"),
        ("groups: {a: b.test}", "expected a list such as"),
        ("groups: {a: [{ports: 22}]}", "a rule needs `host:`"),
        ("groups: {a: [{}]}", "a rule needs `host:`"),
        ("groups: {a: [{host: ~}]}", "expected a host such as example.com or *.example.com, not nothing"),
        ("groups: {a: [{host: [b.test]}]}", "expected a host such as example.com or *.example.com, not a list"),
        ("groups: {a: [{host: 'https://b.test'}]}", "'https://b.test' is a URL; write only its host: b.test"),
        ("groups: {a: [{host: 'b.test:22', ports: [22]}]}", "the port stands twice"),
        ("groups: {a: [github.com: 22]}", "a rule has no blank in it; write github.com:22"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_shape_says_what_was_expected(text: str, told: str) -> None:
    (problem,) = problems(f"version: 1\n{text}")
    assert problem.startswith("f.yaml:2: ")
    assert told in problem


KEYS = "version hosts groups personas allow deny env extends host ports tls secret p g a.test"
YAMLISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["a.test", "*.a.test", "@g", "*"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS.split()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(YAMLISH)
def test_any_yaml_is_a_policy_or_an_error_with_a_line(value: object) -> None:
    text = yaml.safe_dump({"version": "1", "x": value} if not isinstance(value, dict) else {**value, "version": "1"})
    found = []
    try:
        bind([[parse_document(text, "f.yaml")]]).policy()
    except PolicyError as error:
        found = [problem.source for problem in error.problems]
    assert all(source.file == "f.yaml" and source.line > 0 for source in found)


@given(st.text())
def test_any_text_is_a_policy_or_an_error(text: str) -> None:
    with pytest.raises(PolicyError):  # no random text begins with `version: 1` and ends as a mapping
        parse_document(text, "f.yaml")


@given(st.lists(st.sampled_from(["a.test", "b.test:22", "*.c.test", "*.com", "*", "x/y", "d.test:0"]), max_size=6))
def test_a_list_with_one_bad_entry_is_bad_as_a_whole(entries: list[str]) -> None:
    text = yaml.safe_dump({"version": "1", "personas": {"p": {"allow": entries}}})
    bad = {"*.com", "*", "x/y", "d.test:0"} & set(entries)
    if bad:
        assert len(problems(text)) == sum(entry in bad for entry in entries)
    else:
        assert len(document(text).personas["p"].allow) == len(entries)


def test_a_personas_files_are_read_and_add_up_along_extends() -> None:
    text = """
version: 1
personas:
  base: {filesystem: {write: [~/.cache/go-build], protect: [.github]}}
  child: {extends: base, filesystem: {write: [/opt/data], hide: [secrets]}}
"""
    persona = bind([[parse_document(text, "p.yaml")]]).persona("child")
    assert persona.filesystem == (("/opt/data", "~/.cache/go-build"), (), ("secrets",), (".github",))


@pytest.mark.parametrize("path", ['""', "../up", "a/../../b", "~root/x", '"a\\0b"', "[a]"])
def test_a_path_that_leads_elsewhere_is_an_error(path: str) -> None:
    with pytest.raises(PolicyError, match=r"p\.yaml:1"):
        parse_document(f"{{version: 1, personas: {{p: {{filesystem: {{read: [{path}]}}}}}}}}", "p.yaml")
