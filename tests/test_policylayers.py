from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from policykit import binding_problems, document, hosts, policy

from egress.model import Host, Target
from egress.policy import Fixed, Policy
from egress.policybook import choose
from egress.policylayers import bind
from egress.problems import PolicyError, UnknownPersona
from egress.refusals import Reason


def test_groups_stand_in_their_place_and_once() -> None:
    text = """\
        version: 1
        groups:
          all: ["@b", a.test, "@b", "@c"]
          b: [b.test, "@c"]
          c: [c.test]
        personas:
          p: {allow: [first.test, "@all", "@c", last.test]}
        """
    assert hosts(policy(text).personas["p"]) == ["first.test", "b.test", "c.test", "a.test", "last.test"]


def test_groups_of_groups_cannot_multiply() -> None:
    lines = ["version: 1", "groups:", "  g0: [a.test]"]
    lines += [f'  g{n}: ["@g{n - 1}", "@g{n - 1}", h{n}.test]' for n in range(1, 200)]
    lines += ["personas:", '  p: {allow: ["@g199"], deny: ["@g198"]}']
    persona = policy("\n".join(lines)).personas["p"]
    assert len(persona.allow) == 200
    assert len(persona.deny) == 199


def test_a_chain_of_groups_may_be_longer_than_the_stack() -> None:
    lines = ["version: 1", "groups:", "  g0: [a.test]"]
    lines += [f'  g{n}: ["@g{n - 1}"]' for n in range(1, 5000)]
    lines += ["personas:", '  p: {allow: ["@g4999"]}']
    assert hosts(policy("\n".join(lines)).personas["p"]) == ["a.test"]


def test_a_chain_of_personas_may_be_longer_than_the_stack() -> None:
    lines = ["version: 1", "personas:", "  p0: {allow: [a.test]}"]
    lines += [f"  p{n}: {{extends: p{n - 1}}}" for n in range(1, 5000)]
    assert hosts(policy("\n".join(lines)).personas["p4999"]) == ["a.test"]


def test_a_group_in_a_deny_list_denies_its_patterns() -> None:
    text = """\
        version: 1
        groups:
          g: [a.test, "*.b.test", c.test:22, {host: d.test, methods: [GET]}, {host: e.test, ports: [443, 80]}]
        personas:
          p:
            allow: [a.test:8080, x.b.test, c.test, c.test:22, d.test:8080, e.test, e.test:8080]
            deny: ["@g"]
        """
    persona = policy(text).personas["p"]
    answers = {
        name: persona.decide(Target(Host(name.partition(":")[0]), int(name.partition(":")[2]))).reason
        for name in (
            "a.test:8080",
            "x.b.test:443",
            "c.test:443",
            "c.test:22",
            "d.test:8080",
            "e.test:443",
            "e.test:8080",
        )
    }
    assert answers == {
        "a.test:8080": Reason.DENIED,
        "x.b.test:443": Reason.DENIED,
        "c.test:443": Reason.LISTED,
        "c.test:22": Reason.DENIED,
        "d.test:8080": Reason.DENIED,
        "e.test:443": Reason.DENIED,
        "e.test:8080": Reason.LISTED,
    }


def test_a_childs_rules_stand_before_its_parents() -> None:
    text = """\
        version: 1
        personas:
          child: {extends: parent, allow: [a.test, {host: b.test, private: true}], deny: [x.test], env: [A, B]}
          parent: {extends: grandparent, description: of the parent, allow: [b.test, c.test], deny: [y.test], env: [B]}
          grandparent: {description: old, allow: [d.test], env: [C]}
        """
    child = policy(text).personas["child"]
    assert hosts(child) == ["a.test", "b.test", "b.test", "c.test", "d.test"]
    decision = child.decide(Target(Host("b.test"), 443))
    assert decision.rule is not None
    assert decision.rule.private
    assert [str(rule.pattern) for rule in child.deny] == ["x.test", "y.test"]
    assert child.env == ("A", "B", "C")
    assert child.description == "of the parent"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("groups: {a: ['@b']}", "unknown group '@b' (groups: a)"),
        ("groups: {git: []}\npersonas: {p: {allow: ['@gti']}}", "unknown group '@gti'; did you mean 'git'? (groups"),
        ("personas: {p: {deny: ['@x']}}", "unknown group '@x' (groups: none)"),
        ("personas: {p: {allow: ['@']}}", "unknown group '@'"),
        ("groups: {a: ['@a']}", "group 'a' contains itself, and no layer below defines it"),
        ("groups: {a: ['@b'], b: ['@a']}", "leads back to itself: "),
        ("groups: {a: ['@b'], b: ['@c'], c: ['@a'], d: ['@a']}", "leads back to itself: "),
        ("personas: {p: {extends: q}}", "unknown persona 'q' (personas: p)"),
        ("personas: {reviewer: {}, p: {extends: reviewr}}", "unknown persona 'reviewr'; did you mean 'reviewer'?"),
        ("personas: {p: {extends: p}}", "persona 'p' extends itself, and no layer below defines it"),
        ("personas: {p: {extends: q}, q: {extends: p}}", "leads back to itself: "),
        ("personas: {p: {extends: q}, q: {extends: r}, r: {extends: p}}", "leads back to itself: "),
    ],
)  # fmt: skip
def test_a_name_that_leads_nowhere_or_round_is_refused(text: str, told: str) -> None:
    (problem,) = binding_problems(f"version: 1\n{text}\n")
    assert re.match(r"layer0\.yaml:[23]: ", problem)
    assert told in problem


def test_a_circle_is_told_in_the_order_it_is_walked() -> None:
    (problem,) = binding_problems("version: 1\npersonas: {p: {extends: q}, q: {extends: r}, r: {extends: p}}")
    names = problem.rpartition(": ")[2].split(" → ")
    assert names[0] == names[-1]
    assert "".join(names[:-1]) in "pqrpqr"


def test_all_that_is_wrong_between_definitions_is_told_at_once() -> None:
    assert len(binding_problems("version: 1\npersonas: {p: {extends: x, allow: ['@y'], deny: ['@z']}}")) == 3


SHIPPED = """\
    version: 1
    hosts: {a.test: 10.0.0.1, b.test: 10.0.0.2}
    groups: {web: [web.test]}
    personas:
      reader: {description: reads, allow: ["@web"], deny: [bad.test], env: [A]}
      writer: {extends: reader, allow: [write.test]}
    """


def test_a_later_layer_replaces_a_persona_whole() -> None:
    top = policy(SHIPPED, "version: 1\npersonas: {reader: {allow: [mine.test]}}")
    assert hosts(top.personas["reader"]) == ["mine.test"]
    assert top.personas["reader"].deny == ()
    assert hosts(top.personas["writer"]) == ["write.test", "mine.test"], "who extends it sees the latest"


def test_a_persona_that_extends_its_own_name_adds_to_the_layer_below() -> None:
    mine = "version: 1\npersonas: {reader: {extends: reader, allow: [mine.test], env: [B]}}"
    top = policy(SHIPPED, mine, mine.replace("mine", "third"))
    assert hosts(top.personas["reader"]) == ["third.test", "mine.test", "web.test"]
    assert [str(rule.pattern) for rule in top.personas["reader"].deny] == ["bad.test"]
    assert top.personas["reader"].env == ("B", "A")
    assert top.personas["reader"].description == "reads"
    assert hosts(top.personas["writer"]) == ["write.test", "third.test", "mine.test", "web.test"]


def test_a_later_layer_replaces_a_group_for_everyone() -> None:
    top = policy(SHIPPED, "version: 1\ngroups: {web: [other.test]}")
    assert hosts(top.personas["reader"]) == ["other.test"]


def test_a_group_that_names_itself_adds_to_the_layer_below() -> None:
    top = policy(SHIPPED, "version: 1\ngroups: {web: ['@web', other.test]}")
    assert hosts(top.personas["reader"]) == ["web.test", "other.test"]


def test_a_definition_of_the_same_name_twice_in_a_layer_names_both_places() -> None:
    one = document("version: 1\npersonas: {p: {}}\ngroups: {g: []}\nhosts: {a.test: 10.0.0.1}", "one.yaml")
    two = document("version: 1\ngroups: {g: []}\n\npersonas: {p: {}}\nhosts: {A.test: 10.0.0.2}", "two.yaml")
    with pytest.raises(PolicyError) as caught:
        bind([[one, two]])
    assert sorted(map(str, caught.value.problems)) == [
        "two.yaml:2: group 'g' is already defined in one.yaml:3",
        "two.yaml:4: persona 'p' is already defined in one.yaml:2",
        "two.yaml:5: host 'a.test' already has an address in one.yaml:4",
    ]


def test_fixed_addresses_merge_and_the_later_wins() -> None:
    top = policy(SHIPPED, "version: 1\nhosts: {B.test: 10.9.9.9, c.test: '::1'}")
    assert top.hosts == {"a.test": Fixed("10.0.0.1"), "b.test": Fixed("10.9.9.9"), "c.test": Fixed("::1")}


def test_a_circle_over_layers_is_found() -> None:
    (problem,) = binding_problems(SHIPPED, "version: 1\npersonas: {reader: {extends: writer}}")
    assert "leads back to itself" in problem


def test_what_was_replaced_cannot_make_a_circle() -> None:
    lower = "version: 1\npersonas: {a: {extends: b}, b: {allow: [b.test]}}"
    top = policy(lower, "version: 1\npersonas: {a: {allow: [a.test]}, b: {extends: a}}")
    assert hosts(top.personas["b"]) == ["a.test"]


def test_definitions_on_one_line_are_told_apart() -> None:
    top = policy(
        "version: 1\ngroups: {a: [a.test, '@b'], b: [b.test, '@c'], c: [c.test]}\npersonas: {p: {allow: ['@a']}}"
    )
    assert hosts(top.personas["p"]) == ["a.test", "b.test", "c.test"]


def test_allow_from_the_command_line_stands_before_everything() -> None:
    top = policy(SHIPPED, allow=("extra.test:8443", "*.wild.test", "web.test"))
    reader = top.personas["reader"]
    assert hosts(reader) == ["extra.test", "*.wild.test", "web.test", "web.test"]
    decision = reader.decide(Target(Host("web.test"), 443))
    assert str(decision.rule) == "--allow web.test"
    assert not reader.decide(Target(Host("bad.test"), 443)).allowed


@pytest.mark.parametrize(
    "text", ["*", "*.com", "*.github.io", "https://a.test", "a b", "", "@web", "127.1", "a.test:0", "~"]
)
def test_a_bad_allow_from_the_command_line_is_refused(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(SHIPPED, allow=("good.test", text))
    assert str(caught.value).startswith("--allow: ")


def test_an_unknown_persona_is_told_with_the_known_ones() -> None:
    with pytest.raises(UnknownPersona) as caught:
        choose(policy(SHIPPED), "reeder")
    assert str(caught.value) == "--persona: unknown persona 'reeder'; did you mean 'reader'? (personas: reader, writer)"
    assert choose(policy(SHIPPED), "reader").name == "reader"


def test_a_persona_is_made_when_it_is_asked_for_and_once() -> None:
    top = policy(SHIPPED)
    assert list(top.personas) == ["reader", "writer"]
    assert len(top.personas) == 2
    assert "reader" in top.personas
    assert "x" not in top.personas
    assert top.personas.get("x") is None
    assert top.personas["reader"] is top.personas["reader"]


class At(NamedTuple):
    host: Host
    port: int
    tls: bool
    private: bool


TOOLS = """\
    version: 1
    groups:
      npm: [{tool: npm, methods: [GET]}]
      unused: [{tool: apt}]
    personas:
      p:
        allow: [a.test, "@npm", b.test]
        deny: []
      q:
        allow: [a.test, b.test]
        deny: ["@npm"]
    """


def tooled(*found: At) -> tuple[Policy, list[str]]:
    asked: list[str] = []

    def tools(tool: str) -> list[At]:
        asked.append(tool)
        return list(found)

    return bind([[document(TOOLS)]], tools).policy(), asked


def test_a_rule_for_a_tool_becomes_one_for_each_of_its_hosts_where_it_stands() -> None:
    made, asked = tooled(At(Host("m.test"), 443, True, False), At(Host("n.test"), 8081, False, True))
    assert asked == []  # nobody has asked for a persona yet
    rules = made.personas["p"].allow
    assert [str(rule) for rule in rules] == ["f.yaml:7 a.test", "f.yaml:3 m.test", "f.yaml:3 n.test", "f.yaml:7 b.test"]
    assert [(rule.ports, rule.private, rule.needs_inspection) for rule in rules[1:3]] == [
        ({443}, False, True),
        ({8081}, True, True),
    ]
    assert asked == ["npm"]


def test_a_tool_in_a_denied_group_denies_its_hosts_on_every_port() -> None:
    made, _ = tooled(At(Host("a.test"), 443, True, False))
    assert made.personas["q"].decide(Target(Host("a.test"), 80)).reason is Reason.DENIED


def test_a_tool_without_hosts_allows_nothing() -> None:
    assert hosts(tooled()[0].personas["p"]) == ["a.test", "b.test"]


def test_where_no_tool_can_be_asked_its_rule_is_an_error_with_its_line() -> None:
    made = bind([[document(TOOLS)]]).policy()
    with pytest.raises(PolicyError) as caught:
        made.personas["p"]
    assert str(caught.value) == "f.yaml:3: `tool: npm`: nobody here can say which hosts npm uses; write `host:`"
